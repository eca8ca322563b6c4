/* Expressions of ops: the tree of each prints as written, lists the words that it reads, and has the necessary
 * parentheses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/expression.h"

static Fragment written(void *op, const ExpressionNode *leaf) {
  static const char *const words[N_WORDS] = {"j", "i", "s", "following", "seed", "scope", "training", "shard"};
  char *text = leaf->kind == EXPRESSION_OPERAND     ? format("$%d", leaf->index)
               : leaf->kind == EXPRESSION_ATTRIBUTE ? format("${%s}", ((const Op *)op)->attr[leaf->index].name)
                                                    : format("$%s", words[leaf->index]);
  return (Fragment){text, PRECEDENCE_PRIMARY};
}

static void expect_same(const Op *op) {
  assert_string_equal(expression_text(expression_parse(op), written, NULL, (void *)op).text, op->expression);
}

static void test_all_print_as_written(void **state) {
  (void)state;
  for (int i = 0; i < n_ops; i++) {
    assert_int_equal(op_expression(all_ops[i]) != NULL, all_ops[i]->expression != NULL);
    if (all_ops[i]->expression)
      expect_same(all_ops[i]);
  }
}

static void test_any_prints_as_written(void **state) {
  (void)state;
  static const char *const expressions[] = {
      "$0",
      "-(-$0)",
      "-($0 + $1)",
      "(float)$j",
      "(float)-$0",
      "(float)($0 * $1)",
      "$0 - $1 - $2",
      "$0 - ($1 - $2)",
      "$0 / $1 * $2",
      "$0 / ($1 * $2)",
      "($0 + 1.0f) * -$1",
      "$0 * $1 + $2 * $3",
      "($0 > $1) == ($2 > $3) ? 0.125f : 1.0f",
      "$0 > $1 ? $1 : $2 > 0.5f ? $2 : -$3",
      "($training ? $0 : $1) * ${p}",
      "pd_f(pd_g(), $0 + $1, $0 < 0.0f ? -$0 : $0, MICROBATCH)",
  };
  for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++)
    expect_same(&(Op){.name = "an op", .attr = {{"p", ATTR_NUMBER, true, 0}}, .expression = expressions[i]});
}

static Fragment operand(void *precedence, const ExpressionNode *leaf) {
  return (Fragment){format("%c", 'a' + leaf->index), *(const Precedence *)precedence};
}

/* An expression with operands a, b and so on of this precedence. */
static Fragment with_operands(const char *expression, Precedence precedence) {
  return expression_text(expression_parse(&(Op){.name = "an op", .expression = expression}), operand, NULL,
                         &precedence);
}

static void expect_text(const char *expression, Precedence precedence, const char *text) {
  assert_string_equal(with_operands(expression, precedence).text, text);
}

static void test_operands_have_parentheses(void **state) {
  (void)state;
  expect_text("$0 + $1", PRECEDENCE_CONDITION, "(a) + (b)");
  expect_text("$0 + $1", PRECEDENCE_SUM, "a + (b)");
  expect_text("$0 + $1", PRECEDENCE_FACTOR, "a + b");
  expect_text("$0 * $1", PRECEDENCE_SUM, "(a) * (b)");
  expect_text("$0 * $1", PRECEDENCE_FACTOR, "a * (b)");
  expect_text("$0 * $1", PRECEDENCE_UNARY, "a * b");
  expect_text("-$0", PRECEDENCE_UNARY, "-(a)");
  expect_text("(float)$0", PRECEDENCE_UNARY, "(float)(a)");
  expect_text("$0 > $1 ? $2 : $3", PRECEDENCE_UNARY, "(a) > (b) ? c : d");
  expect_text("$0 > $1 ? $2 : $3", PRECEDENCE_CONDITION, "(a) > (b) ? (c) : (d)");
  expect_text("$0 > $1 ? $2 : $3", PRECEDENCE_PRIMARY, "a > b ? c : d");
  expect_text("pd_f($0, $1)", PRECEDENCE_CONDITION, "pd_f(a, b)");
}

static Precedence precedence_of(const char *expression) {
  return with_operands(expression, PRECEDENCE_SUM).precedence;
}

static Fragment letter(void *context, const ExpressionNode *leaf) {
  (void)context;
  return (Fragment){format("%c", 'a' + leaf->index), PRECEDENCE_PRIMARY};
}

/* The first operand is nonzero if x > y; the other operands have no such words. */
static Fragment truth(void *context, const ExpressionNode *leaf) {
  (void)context;
  return (Fragment){leaf->index == 0 ? "x > y" : NULL, PRECEDENCE_COMPARISON};
}

static void expect_true_text(const char *expression, const char *text) {
  const Expression *e = expression_parse(&(Op){.name = "an op", .expression = expression});
  assert_string_equal(expression_text(e, letter, truth, NULL).text, text);
}

static void test_conditions_have_their_own_words(void **state) {
  (void)state;
  expect_true_text("$0 != 0.0f ? $1 : $2", "x > y ? b : c");
  expect_true_text("$1 != 0.0f ? $0 : $2", "b != 0.0f ? a : c");
  expect_true_text("$0 != 1.0f ? $1 : $2", "a != 1.0f ? b : c");
  expect_true_text("$0 == 0.0f ? $1 : $2", "a == 0.0f ? b : c");
  expect_true_text("$1 > $2 ? $0 : 0.0f", "b > c ? a : 0.0f");
  assert_non_null(expression_condition(op_expression(&op_greater)));
  assert_null(expression_condition(op_expression(&op_select)));
  assert_null(expression_condition(op_expression(&op_add)));
}

static void test_text_has_a_precedence(void **state) {
  (void)state;
  assert_int_equal(precedence_of("$0 > $1 ? $2 : $3"), PRECEDENCE_CONDITION);
  assert_int_equal(precedence_of("$0 > $1"), PRECEDENCE_COMPARISON);
  assert_int_equal(precedence_of("$0 - $1"), PRECEDENCE_SUM);
  assert_int_equal(precedence_of("$0 / $1"), PRECEDENCE_FACTOR);
  assert_int_equal(precedence_of("-$0"), PRECEDENCE_UNARY);
  assert_int_equal(precedence_of("pd_f($0)"), PRECEDENCE_PRIMARY);
  assert_int_equal(precedence_of("$0"), PRECEDENCE_SUM); /* the operand's own */
}

static void test_what_is_read(void **state) {
  (void)state;
  const Expression *dropout = op_expression(&op_dropout), *average = op_expression(&op_running_average);
  assert_int_equal(dropout->words, 1u << WORD_SEED | 1u << WORD_SCOPE | 1u << WORD_SAMPLE | 1u << WORD_ELEMENT |
                                       1u << WORD_TRAINING);
  assert_int_equal(average->words, 1u << WORD_TRAINING);
  assert_false(op_reads_words(&op_share, 1u << WORD_SAMPLE)); /* $following is another word */
  assert_true(op_reads_words(&op_share, 1u << WORD_FOLLOWING));
  assert_true(op_reads_words(&op_one_hot, COUNTING_WORDS));
  assert_true(op_reads_operand(&op_running_average, 0));
  assert_false(op_reads_operand(&op_running_average, 1));
  assert_true(op_reads_operand(&op_matmul, 1));
  assert_int_equal(op_expression(&op_square)->mentions[0], 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_print_as_written),      cmocka_unit_test(test_any_prints_as_written),
      cmocka_unit_test(test_operands_have_parentheses), cmocka_unit_test(test_conditions_have_their_own_words),
      cmocka_unit_test(test_text_has_a_precedence),     cmocka_unit_test(test_what_is_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
