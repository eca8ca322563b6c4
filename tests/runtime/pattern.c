/* Patterns over names: by examples, and all short ones against a definition by recursion. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "shared/pattern.h"

static void test_examples(void **state) {
  (void)state;
  static const struct {
    const char *pattern, *name;
    bool matches;
  } examples[] = {
      {"h.*|wte.*", "h.0.attn.c_attn.weight", true},
      {"h.*|wte.*", "wte.weight", true},
      {"h.*|wte.*", "wpe.weight", false},
      {"h.0", "h.0.mlp.c_fc.bias", true},
      {"h.0", "h.01.mlp.c_fc.bias", false},
      {"h.0", "h.10.mlp.c_fc.bias", false},
      {"h.?", "h.3.bias", true},
      {"h.?", "h.33.bias", false},
      {"bias", "h.0.mlp.c_fc.bias", true},
      {"bias", "head.bias_2", false},
      {"ln_*", "transformer.h.0.ln_1.weight", true},
      {"ln", "h.0.ln_1.weight", false},
      {"*.c_*.weight", "h.0.attn.c_attn.weight", true},
      {" wte | wpe ", "wpe.weight", true},
      {"*", "x", true},
      {"x", "x", true},
      {"", "x", false},
      {"|", "x", false},
      {"a.b.c.d", "a.b.c", false},
  };
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
    if (pd_pattern_matches(examples[i].pattern, examples[i].name) != examples[i].matches)
      fail_msg("'%s' and '%s'", examples[i].pattern, examples[i].name);
}

static struct pd_range whole(const char *text) { return (struct pd_range){text, strlen(text)}; }

static void test_alternatives(void **state) {
  (void)state;
  const char *pattern = "a| b c ||d";
  struct pd_range alternative;
  char all[64] = "";
  while (pd_pattern_next(&pattern, &alternative))
    sprintf(all + strlen(all), "<%.*s>", (int)alternative.n, alternative.at);
  assert_string_equal(all, "<a><b c><><d>");
}

static void test_wildcards(void **state) {
  (void)state;
  struct pd_range w[PD_MAX_WILDCARDS];
  assert_true(pd_alternative_is(whole("*.h.?.*"), whole("a.h.bb.h.7.w"), w));
  const char *const want[] = {"a.h.bb", "7", "w"};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(w[i].n, strlen(want[i]));
    assert_memory_equal(w[i].at, want[i], w[i].n);
  }
  assert_false(pd_alternative_is(whole("?????????????????"), whole("12345678901234567"), w));
  assert_true(pd_alternative_is(whole("?????????????????"), whole("12345678901234567"), NULL));
}

static bool is(const char *p, const char *x) {
  if (*p == '*') return is(p + 1, x) || (*x && is(p, x + 1));
  return *p == *x ? !*p || is(p + 1, x + 1) : *p == '?' && *x && is(p + 1, x + 1);
}

/* The definition, word by word. */
static bool matches(const char *p, const char *name) {
  for (size_t first = 0; *p && first <= strlen(name); first++)
    for (size_t end = first; end <= strlen(name); end++) {
      char parts[16];
      snprintf(parts, sizeof parts, "%.*s", (int)(end - first), name + first);
      bool whole_parts = (first == 0 || name[first - 1] == '.') && (!name[end] || name[end] == '.');
      if (whole_parts && is(p, parts)) return true;
    }
  return false;
}

/* What the wildcards stand for, in their places, gives the name. */
static void check_filled(const char *p, const char *name) {
  struct pd_range w[PD_MAX_WILDCARDS];
  char filled[64] = "", *to = filled;
  if (!pd_alternative_is(whole(p), whole(name), w)) return;
  for (int n = 0; *p; p++)
    if (*p == '*' || *p == '?')
      to += sprintf(to, "%.*s", (int)w[n].n, w[n].at), n++;
    else
      *to++ = *p;
  assert_string_equal(filled, name);
}

/* The number'th text of these characters. */
static void text_of(int number, const char *characters, char *to) {
  int base = (int)strlen(characters);
  for (; number > 0; number = (number - 1) / base) *to++ = characters[(number - 1) % base];
  *to = 0;
}

static void test_all_short_ones(void **state) {
  (void)state;
  enum { PATTERNS = 1 + 4 + 16 + 64 + 256 + 1024, NAMES = 1 + 3 + 9 + 27 + 81 + 243 };
  for (int i = 0; i < PATTERNS; i++)
    for (int k = 0; k < NAMES; k++) {
      char p[16], name[16];
      text_of(i, "a.*?", p);
      text_of(k, "ab.", name);
      if (pd_alternative_is(whole(p), whole(name), NULL) != is(p, name) ||
          pd_pattern_matches(p, name) != matches(p, name))
        fail_msg("'%s' and '%s'", p, name);
      check_filled(p, name);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_examples),
      cmocka_unit_test(test_alternatives),
      cmocka_unit_test(test_wildcards),
      cmocka_unit_test(test_all_short_ones),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
