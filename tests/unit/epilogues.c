/* GELU merged into products: equal numbers, only without other readers of its inputs, and without a cut after
 * it. */
#include "graphs.h"

#include "cut/cut.h"
#include "layout/epilogues.h"

enum { WIDTH = 3, HIDDEN = 5 };

typedef enum { PLAIN, MIRRORED, READ_BEFORE, READ_WITHIN, OTHER_FACTOR, NO_BIAS, OF_SAMPLES } Form;

static int number(Graph *g, double x) { return graph_constant(g, x, 0, NO_SPAN); }
static int times(Graph *g, int x, int y) { return apply_2(g, &op_mul, x, y); }

/* As in stdlib_layers/nn.pdm, or with the operands of each node swapped. */
static int gelu(Graph *g, int x, Form form) {
  double cube = form == OTHER_FACTOR ? 0.05 : 0.044715, factor = 2 * sqrt(2 / M_PI);
  bool mirrored = form == MIRRORED;
  int cubed = mirrored ? times(g, times(g, x, x), times(g, x, number(g, cube)))
                       : times(g, times(g, times(g, number(g, cube), x), x), x);
  int sum = mirrored ? apply_2(g, &op_add, cubed, x) : apply_2(g, &op_add, x, cubed);
  int scaled = mirrored ? times(g, sum, number(g, factor)) : times(g, number(g, factor), sum);
  int s = apply_1(g, &op_sigmoid, scaled);
  if (form == READ_WITHIN)
    weigh(g, apply_1(g, &op_exp, scaled));
  return mirrored ? times(g, s, x) : times(g, x, s);
}

/* x + fc2(gelu(fc1(x))), with an instance for each layer. */
static Graph *network(Form form) {
  Graph *g = new_graph();
  int x = apply_1(g, &op_sin, operand(g, "x", true, SHAPE(2, WIDTH)));
  int w = new_param(g, "w", SHAPE(HIDDEN, WIDTH)), bias = new_param(g, "bias", SHAPE(HIDDEN));
  int in = form == OF_SAMPLES ? new_input(g, "m", SHAPE(WIDTH, HIDDEN)) : apply_1(g, &op_transpose, w);
  int h = apply_2(g, &op_matmul, x, in);
  if (form != NO_BIAS)
    h = apply_2(g, &op_add, h, bias);
  if (form == READ_BEFORE)
    weigh(g, apply_1(g, &op_exp, h));
  int y = apply_2(g, &op_matmul, gelu(g, h, form), new_param(g, "out", SHAPE(HIDDEN, WIDTH)));
  weigh(g, apply_2(g, &op_add, x, y));
  return g;
}

static void expect_same_numbers(const Graph *plain, const Graph *merged) {
  double **a = run_graph(plain, signed_numbers_for(plain)), **b = run_graph(merged, signed_numbers_for(merged));
  const double within = 1e-6; /* the constants have six digits */
  for (int i = 0; i < plain->figures.n; i++) {
    int p = plain->figures.at[i].value, q = merged->figures.at[i].value;
    for (int64_t k = 0; k < shape_elements(&plain->values.at[p].shape) * BATCH; k++)
      assert_true(fabs(a[p][k] - b[q][k]) <= within);
  }
  expect_same_gradients(plain, a, merged, b, within);
}

static void test_numbers(void **state) {
  (void)state;
  for (Form form = PLAIN; form <= OF_SAMPLES; form++) {
    Graph *plain = network(form), *merged = network(form);
    merge_gelus(merged);
    graph_verify(merged);
    assert_int_equal(count_nodes(merged, &op_matmul_gelu), form <= MIRRORED);
    autodiff(plain);
    autodiff(merged);
    simplify(merged);
    graph_verify(merged);
    assert_int_equal(count_nodes(merged, &op_matmul_gelu_gradient), form <= MIRRORED);
    assert_int_equal(count_nodes(merged, &op_sigmoid), form <= MIRRORED ? 0 : 1);
    expect_same_numbers(plain, merged);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
