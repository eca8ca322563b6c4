#include "split.h"

#include "bert.h"

const char pd_gpt2_expression[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char pd_digits_expression[] = "\\p{N}+", pd_digit_expression[] = "\\p{N}";

size_t pd_split_word(const struct pd_splitter *s, const char *text, size_t n) {
  return s->pattern ? pd_pattern_word(s->pattern, s->behavior, text, n) : pd_bert_word(text, n);
}

bool pd_splits_at_newlines(const struct pd_splitter *s, int n) {
  for (int i = 0; i < n; i++) {
    const struct pd_pattern *p = s[i].pattern;
    if (!p) return true;
    if (s[i].behavior != PD_ISOLATED || !pd_pattern_divides_lines(p)) return false;
    if (pd_pattern_covers_newlines(p)) return true; /* later splitters see no line's end */
  }
  return false;
}
