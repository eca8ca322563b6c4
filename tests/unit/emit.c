/* Names and literals of emitted C: no text of a model can end a comment, a string or an identifier, and every
 * number reads back equal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "emit/print.h"

/* clang-format off */
static const char *const hostile[] = {
  "", "_", "0", "3d", "int", "while", "main", "pd_fail", "MPI_Init", "a.b", "a b", "a;system(\"x\")",
  "*/ int x; /*", "x\n#include <y>", "\"", "\\", "h\xc3\xa9", ("?" "?/"), "arena", "weights", "VERSIONS",
  "exp", "%s%n", "/**/",
};
/* clang-format on */
enum { N_HOSTILE = sizeof hostile / sizeof *hostile };

static void test_identifiers(void **state) {
  (void)state;
  for (int i = 0; i < N_HOSTILE; i++) {
    Name name = c_identifier(hostile[i]);
    assert_true(isalpha((unsigned char)name[0]) || name[0] == '_');
    for (const char *c = name; *c; c++)
      assert_true(isalnum((unsigned char)*c) || *c == '_');
    if (strlen(hostile[i]) > 1)
      assert_true(strcmp(name, hostile[i]) != 0);
  }
  assert_string_equal(c_identifier("attn.c_attn.weight"), "attn_c_attn_weight");
}

static void test_names_are_unique(void **state) {
  (void)state;
  Names taken = {0};
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < N_HOSTILE; i++)
      unique_name(&taken, hostile[i]);
  for (int i = 0; i < taken.n; i++)
    for (int j = 0; j < i; j++)
      assert_true(taken.at[i] != taken.at[j]);
}

/* Names declared by headers are used only within functions. A numbered name never equals such a name. */
static void test_names_of_headers(void **state) {
  (void)state;
  Names taken = {0};
  assert_string_equal(unique_kernel_name(&taken, "ballot"), "ballot_");
  assert_string_equal(unique_name(&taken, "ballot"), "ballot");
  assert_string_equal(unique_name(&taken, "errno"), "errno_");
  assert_string_equal(unique_kernel_name(&taken, "atan"), "atan_");
  assert_string_equal(unique_kernel_name(&taken, "uint"), "uint_");
  unique_name(&taken, "dim");
  unique_name(&taken, "dim");
  assert_string_equal(unique_name(&taken, "dim"), "dim4"); /* CUDA has dim3 */
  const ReservedNames *lists[] = {&declared_by_headers, &macros_of_headers};
  for (int i = 0; i < 2; i++)
    for (size_t k = 1; k < lists[i]->n; k++)
      assert_true(strcmp(lists[i]->at[k - 1], lists[i]->at[k]) < 0);
}

/* Timing programs prefix kernel names, and some kernels have a second name. */
static void test_names_that_follow_from_kernels(void **state) {
  (void)state;
  static const char *const wanted[] = {"attn", "run_attn", "at_attn",     "attn_sums", "fill_at_x",
                                       "x",    "at_x",     "x_sums_rows", "x_sums"};
  static const char *const made[] = {"%s", "%s_sums", "%s_rows", "run_%s", "fill_%s", "at_%s"};
  enum { N = sizeof wanted / sizeof *wanted, N_MADE = sizeof made / sizeof *made };
  Names taken = {0}, all = {0};
  for (int i = 0; i < N; i++) {
    Name name = unique_kernel_name(&taken, wanted[i]);
    for (int k = 0; k < N_MADE; k++)
      push(&all, intern(format(made[k], name))); /* NOLINT: the formats are above */
  }
  for (int i = 0; i < all.n; i++)
    for (int j = 0; j < i; j++)
      assert_true(all.at[i] != all.at[j]);
}

static void test_comments_and_strings(void **state) {
  (void)state;
  for (int i = 0; i < N_HOSTILE; i++) {
    assert_null(strstr(comment_text(hostile[i]), "*/"));
    assert_null(strstr(comment_text(hostile[i]), "/*"));
    assert_null(strchr(comment_text(hostile[i]), '\n'));
    const char *literal = string_literal(hostile[i]);
    size_t n = strlen(literal);
    assert_true(n >= 2 && literal[0] == '"' && literal[n - 1] == '"');
    for (size_t c = 1; c + 1 < n; c++) {
      assert_true(literal[c] != '"' && literal[c] != '?' && isprint((unsigned char)literal[c]));
      if (literal[c] == '\\')
        c++;
    }
  }
  assert_string_equal(string_literal("a\"b\\"), "\"a\\\"b\\\\\"");
}

static void test_literals_read_back(void **state) {
  (void)state;
  uint32_t bits = 1;
  for (int i = 0; i < 20000; i++) {
    bits = bits * 1664525u + 1013904223u;
    float x;
    memcpy(&x, &bits, sizeof x);
    if (!isfinite(x))
      continue;
    char *text = float_literal((double)x);
    assert_true(text[strlen(text) - 1] == 'f' && strpbrk(text, ".e"));
    float back = strtof(text, NULL);
    assert_memory_equal(&back, &x, sizeof x);
    double wide = (double)x * 1.1, again = strtod(double_literal(wide), NULL);
    assert_memory_equal(&again, &wide, sizeof wide);
  }
  assert_string_equal(float_literal(1), "1.0f");
  assert_string_equal(float_literal(-INFINITY), "-INFINITY");
  assert_string_equal(double_literal(0.1), "0.1");
}

static void test_lists_break_at_the_width(void **state) {
  (void)state;
  Names list = {0};
  for (int i = 0; i < 60; i++)
    push(&list, internf("argument_%d", i));
  Text out = {0};
  text_list(&out, 4, "call(", &list, ");\n");
  for (char *line = out.at; *line; line += strcspn(line, "\n") + 1)
    assert_true(strcspn(line, "\n") <= WIDTH);
  assert_non_null(strstr(out.at, "argument_59);\n"));
  Text comment = {0};
  text_comment(&comment, 2,
               "many words */ that go on and on, more than a line holds, until the very end of "
               "the paragraph, where the comment closes and nothing is left over");
  assert_ptr_equal(strstr(comment.at, "*/"), comment.at + comment.n - 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_identifiers),
      cmocka_unit_test(test_names_are_unique),
      cmocka_unit_test(test_names_of_headers),
      cmocka_unit_test(test_names_that_follow_from_kernels),
      cmocka_unit_test(test_comments_and_strings),
      cmocka_unit_test(test_literals_read_back),
      cmocka_unit_test(test_lists_break_at_the_width),
  };
  return cmocka_run_group_tests_name("emit", tests, NULL, NULL);
}
