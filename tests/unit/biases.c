/* Bias gradients computed by products: equal numbers, only if the sum would be a separate loop, and only if no cut
 * can separate both. */
#include "graphs.h"

#include "biases/biases.h"
#include "cut/cut.h"

enum { WIDTH = 4, HIDDEN = 6 };

typedef enum {
  BY_CALLS,      /* the incoming gradient is a product */
  BY_PARTS,      /* it is assembled from products */
  VIEWED,        /* it is a view of a product */
  LOOPED,        /* a loop computes it */
  PARTLY_LOOPED, /* a loop computes a part of it */
  READ_BY_LOOP,  /* a loop reads it, too */
  TWO_BIASES,    /* the sum is the gradient of two parameters */
  MADE_BIAS,     /* the bias is computed from a parameter */
  APART,         /* the addition is in another layer than the product */
  NO_WEIGHTS,    /* a value of the sample in place of weights */
  N_FORMS
} Form;
static const bool is_merged[N_FORMS] = {[BY_CALLS] = true, [BY_PARTS] = true, [VIEWED] = true};

static int product(Graph *g, int x, const char *name, int64_t from, int64_t to) {
  return apply_2(g, &op_matmul, x, new_param(g, name, SHAPE(from, to)));
}

/* The loss after the sum h[2, HIDDEN]. */
static void go_on(Graph *g, int h, Form form) {
  if (form == LOOPED) {
    h = apply_1(g, &op_tanh, h);
  } else if (form == BY_PARTS || form == PARTLY_LOOPED) {
    int half = HIDDEN / 2, split = graph_node(g, &op_split, &h, 1, (Attr[MAX_ATTR]){{.number = 2}}, 0, NO_SPAN);
    assert_true(split >= 0);
    int a = graph_output(g, split, 0), b = graph_output(g, split, 1);
    weigh(g, product(g, a, "part", half, 3));
    weigh(g, product(g, form == BY_PARTS ? b : apply_1(g, &op_sin, b), "other_part", half, 3));
    return;
  } else if (form == VIEWED) {
    int64_t dims[] = {2 * HIDDEN};
    h = apply(g, &op_reshape, &h, 1, (Attr[MAX_ATTR]){{.n = 1, .list = dims}});
    weigh(g, product(g, h, "next", 2 * HIDDEN, 3));
    return;
  }
  weigh(g, product(g, h, "next", HIDDEN, 3));
}

static Graph *network(Form form) {
  Graph *g = new_graph();
  int x = apply_1(g, &op_sin, operand(g, "x", true, SHAPE(2, WIDTH)));
  int bias = new_param(g, "bias", SHAPE(HIDDEN));
  if (form == MADE_BIAS)
    bias = apply_1(g, &op_exp, bias);
  int y = form == NO_WEIGHTS ? apply_2(g, &op_matmul, x, new_input(g, "m", SHAPE(WIDTH, HIDDEN)))
                             : product(g, x, "w", WIDTH, HIDDEN);
  int scope = form == APART ? graph_scope(g, 0, intern("sum"), intern("sum"), NO_SPAN) : 0;
  int h = apply_in(g, scope, &op_add, (int[]){y, bias}, 2, NULL);
  if (form == TWO_BIASES)
    h = apply_2(g, &op_add, h, new_param(g, "second", SHAPE(HIDDEN)));
  if (form == READ_BY_LOOP) /* its gradient equals the sum's, too */
    h = apply_2(g, &op_add, h, operand(g, "r", true, SHAPE(2, HIDDEN)));
  go_on(g, h, form);
  autodiff(g);
  simplify(g);
  return g;
}

static void test_forms(void **state) {
  (void)state;
  for (Form form = 0; form < N_FORMS; form++) {
    Graph *plain = network(form), *merged = network(form);
    int sums = count_nodes(plain, &op_sum_to), products = count_nodes(plain, &op_weight_gradient);
    merge_bias_gradients(merged);
    graph_verify(merged);
    int both = count_nodes(merged, &op_weight_and_bias_gradient);
    if (both != is_merged[form])
      fail_msg("form %d: %d merged", (int)form, both);
    assert_int_equal(count_nodes(merged, &op_sum_to), sums - both);
    assert_int_equal(count_nodes(merged, &op_weight_gradient), products - both);
    expect_same_gradients(plain, run_graph(plain, signed_numbers_for(plain)), merged,
                          run_graph(merged, signed_numbers_for(merged)), 1e-12);
    merge_bias_gradients(merged); /* idempotent */
    assert_int_equal(count_nodes(merged, &op_weight_and_bias_gradient), both);
  }
}

/* With two products that read the incoming gradient, the first computes the sum. */
static void test_one_product_of_two(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = apply_1(g, &op_sin, operand(g, "x", true, SHAPE(2, WIDTH)));
  int z = apply_1(g, &op_cos, operand(g, "z", true, SHAPE(2, WIDTH)));
  int sum = apply_2(g, &op_add, product(g, x, "u", WIDTH, HIDDEN), product(g, z, "v", WIDTH, HIDDEN));
  weigh(g, product(g, apply_2(g, &op_add, sum, new_param(g, "bias", SHAPE(HIDDEN))), "next", HIDDEN, 3));
  autodiff(g);
  simplify(g);
  merge_bias_gradients(g);
  graph_verify(g);
  assert_int_equal(count_nodes(g, &op_weight_and_bias_gradient), 1);
  assert_int_equal(count_nodes(g, &op_weight_gradient), 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_forms), cmocka_unit_test(test_one_product_of_two)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
