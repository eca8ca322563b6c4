/* Regular expressions that split texts into words, as Oniguruma matches them for Hugging Face's library: the first
 * alternative that matches wins, and repetitions are greedy. The subset is that of tokenizers:
 *   a  \n  .  \s \d \p{L} \P{Lu}  [^\s\p{L}a-z]  [a[bc]&&d]  \u3042  \x{1F600}   one character
 *   x?  x*  x+  x{1,3}  x?+  x*+  x++                                            of one character
 *   ab  a|b  (a|b)  (?:ab)?  (?i:ab)  (?=[ab])  (?![ab])  $                      (?i: of ASCII; looking at one character
 * Expressions that match the empty text, or that can take more than about n^2 steps for n characters, are refused.
 * Characters are Unicode's; bytes that are not UTF-8 count as unassigned characters. */
#ifndef PD_PATTERN_H
#define PD_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

struct pd_pattern;

/* The place of matches in words. */
enum pd_behavior { PD_ISOLATED, PD_WITH_PREVIOUS, PD_WITH_NEXT, PD_CONTIGUOUS };

/* NULL after filling `why` with the part that is not supported. */
struct pd_pattern *pd_pattern_compile(const char *expression, char *why);
/* The pattern of this text itself, which is not empty. */
struct pd_pattern *pd_pattern_of_text(const char *text, char *why);
void pd_pattern_free(struct pd_pattern *p); /* accepts NULL */

/* The length in bytes, at least 1, of the word at the start of n > 0 bytes of text: a match, or the text up to the
 * next match, or both together. */
size_t pd_pattern_word(const struct pd_pattern *p, enum pd_behavior behavior, const char *text, size_t n);

/* Whether every character of every text belongs to a match. */
bool pd_pattern_covers(const struct pd_pattern *p);
/* Whether a text can be divided behind a newline, between a printed ASCII character before it and an ASCII letter: both
 * parts then have the words of the whole text, unless the newline belongs to no match. */
bool pd_pattern_divides_lines(const struct pd_pattern *p);
/* Whether a newline always belongs to a match. */
bool pd_pattern_covers_newlines(const struct pd_pattern *p);

#endif
