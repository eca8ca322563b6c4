/* Zero rows after a vocabulary's rows change no number; only matrices that are both multiplied and looked up get
 * them. */
#include "graphs.h"

#include "layout/pad_rows.h"

enum { VOCABULARY = 517, PADDED = 640, WIDTH = 3, LENGTH = 2, MULTIPLE = 128 };

/* A tied vocabulary whose logits are also summed, and a separate head. */
static Graph *vocabulary(int64_t rows) {
  Graph *g = new_graph();
  int wte = new_param(g, "wte", SHAPE(rows, WIDTH)), head = new_param(g, "head", SHAPE(rows, WIDTH));
  int x = apply_2(g, &op_gather, wte, new_tokens(g, "tokens", 7, SHAPE(LENGTH)));
  int logits = apply_2(g, &op_matmul, x, apply_1(g, &op_transpose, wte));
  g->values.at[logits].name = intern("logits");
  int others = apply_2(g, &op_matmul, apply_1(g, &op_sin, x), apply_1(g, &op_transpose, head));
  weigh(g, apply_1(g, &op_exp, logits));
  weigh(g, apply_2(g, &op_mul, apply_1(g, &op_max, others), apply_1(g, &op_sum, logits)));
  return g;
}

/* Numbers of a parameter by index, with zeros after its own. */
static double *filled(const Param *p, int which) {
  Shape whole = padded_shape(p);
  double *x = alloc((size_t)shape_elements(&whole) * sizeof *x);
  for (int64_t i = 0; i < shape_elements(&p->shape); i++)
    x[i] = sin(1.0 + which + 0.7 * (double)i);
  return x;
}

/* All values of a batch, with tokens 0 .. 6 and weights of the losses. */
static double **run(const Graph *g) {
  const double **input = alloc((size_t)(g->inputs.n + 1) * sizeof *input),
               **param = alloc((size_t)(g->params.n + 1) * sizeof *param);
  for (int i = 0; i < g->inputs.n; i++) {
    const Value *v = &g->values.at[g->inputs.at[i].value];
    double *x = alloc((size_t)(shape_elements(&v->shape) * BATCH) * sizeof *x);
    for (int64_t k = 0; k < shape_elements(&v->shape) * BATCH; k++)
      x[k] = v->type == TYPE_TOKEN ? (double)(k % 7) : cos(0.3 * (double)k);
    input[i] = x;
  }
  for (int i = 0; i < g->params.n; i++)
    param[i] = filled(&g->params.at[i], i);
  return interpret(g, BATCH, input, param);
}

/* Summed over all uses. */
static double gradient_at(const Graph *g, double *const *values, int param, int64_t element) {
  const Param *p = &g->params.at[param];
  double sum = 0;
  for (int u = 0; u < p->gradients.n; u++)
    if (p->gradients.at[u] >= 0)
      sum += values[p->gradients.at[u]][element];
  return sum;
}

static void expect_same_numbers(const Graph *plain, const Graph *padded) {
  double **a = run(plain), **b = run(padded);
  for (int i = 0; i < plain->figures.n; i++) {
    const Value *v = &plain->values.at[plain->figures.at[i].value];
    assert_true(shape_equal(&v->shape, &padded->values.at[padded->figures.at[i].value].shape));
    for (int64_t k = 0; k < shape_elements(&v->shape) * BATCH; k++)
      assert_true(a[plain->figures.at[i].value][k] == b[padded->figures.at[i].value][k]);
  }
  for (int p = 0; p < plain->params.n; p++)
    for (int64_t k = 0; k < PADDED * WIDTH; k++) {
      double expected = k < VOCABULARY * WIDTH ? gradient_at(plain, a, p, k) : 0;
      assert_true(fabs(gradient_at(padded, b, p, k) - expected) <= 1e-12);
    }
}

static void test_numbers(void **state) {
  (void)state;
  Graph *plain = vocabulary(VOCABULARY), *padded = vocabulary(VOCABULARY);
  pad_rows(padded, MULTIPLE);
  graph_verify(padded);
  for (int p = 0; p < 2; p++) {
    assert_int_equal(padded->params.at[p].padding, PADDED - VOCABULARY);
    assert_int_equal(padded->params.at[p].shape.dim[0], VOCABULARY);
  }
  autodiff(plain);
  autodiff(padded);
  expect_same_numbers(plain, padded);
  simplify(padded);
  graph_verify(padded);
  expect_same_numbers(plain, padded);
}

static void test_names_stay(void **state) {
  (void)state;
  Graph *g = vocabulary(VOCABULARY);
  int slices = 0;
  pad_rows(g, MULTIPLE);
  for (int v = 0; v < g->values.n; v++) {
    bool slice = g->nodes.at[g->values.at[v].node].op == &op_slice && !strcmp(g->values.at[v].name, "logits");
    slices += slice;
    if (slice)
      assert_int_equal(g->values.at[v].shape.dim[1], VOCABULARY);
  }
  assert_int_equal(slices, 1);
}

static int padded_params(Graph *g, int multiple) {
  int n = 0;
  pad_rows(g, multiple);
  graph_verify(g);
  for (int i = 0; i < g->params.n; i++)
    n += g->params.at[i].padding > 0;
  return n;
}

static void test_what_is_padded(void **state) {
  (void)state;
  assert_int_equal(padded_params(vocabulary(VOCABULARY), MULTIPLE), 2);
  assert_int_equal(padded_params(vocabulary(VOCABULARY), 0), 0);
  assert_int_equal(padded_params(vocabulary(520), MULTIPLE), 0); /* rows of the logits start at multiples of 16
                                                                    bytes */
  assert_int_equal(padded_params(vocabulary(61), MULTIPLE), 0);  /* too few rows */
  /* Another reader, here a sum, could count the zeros. */
  Graph *g = vocabulary(VOCABULARY);
  weigh(g, apply_2(g, &op_mul, apply_1(g, &op_exp, g->params.at[0].value),
                   new_input(g, "x", SHAPE(VOCABULARY, WIDTH))));
  assert_int_equal(padded_params(g, MULTIPLE), 1);
  /* Only looked up. */
  g = new_graph();
  weigh(g, apply_2(g, &op_gather, new_param(g, "wte", SHAPE(VOCABULARY, WIDTH)),
                   new_tokens(g, "tokens", 7, SHAPE(LENGTH))));
  assert_int_equal(padded_params(g, MULTIPLE), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_names_stay),
      cmocka_unit_test(test_what_is_padded),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
