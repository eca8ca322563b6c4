/* The residual stream under --precision bf16: its members, with and without dropout, and rounded copies for
 * calls. */
#include "graphs.h"

#include "fuse/kernel.h"
#include "residual/residual.h"

enum { WIDTH = 4, LENGTH = 2, BLOCKS = 2 };

typedef struct Form {
  bool dropout;  /* after each block */
  bool after;    /* norms apply to sums instead of block inputs */
  bool narrow;   /* the stream comes from a product, without a norm that makes it f32 */
  bool unsummed; /* blocks are not added to their bypass */
} Form;

static int norm(Graph *g, int x) {
  int mean = apply_2(g, &op_div, apply_1(g, &op_sum, x), graph_constant(g, WIDTH, 0, NO_SPAN));
  int centered = apply_2(g, &op_sub, x, mean);
  int variance = apply_1(g, &op_sum, apply_1(g, &op_square, centered));
  return apply_2(g, &op_mul, centered,
                 apply_1(g, &op_rsqrt, apply_2(g, &op_add, variance, graph_constant(g, 1, 0, NO_SPAN))));
}

static int named(Graph *g, int value, const char *name, int i) {
  g->values.at[value].name = internf("%s%d", name, i);
  return value;
}

static int dropped(Graph *g, int x, int i) {
  return apply(g, &op_dropout, &x, 1, (Attr[MAX_ATTR]){{.number = 0.5}, {.text = internf("dropout/%d", i)}});
}

static int block(Graph *g, int x, Form form, int i) {
  int w = new_param(g, internf("w%d", i), SHAPE(WIDTH, WIDTH));
  int in = form.after || form.narrow ? x : norm(g, x);
  int y = apply_1(g, &op_tanh, apply_2(g, &op_matmul, in, w));
  y = apply_2(g, &op_matmul, y, new_param(g, internf("out%d", i), SHAPE(WIDTH, WIDTH)));
  if (form.dropout)
    y = dropped(g, y, i);
  y = form.unsummed ? apply_2(g, &op_mul, x, y) : apply_2(g, &op_add, x, y);
  y = named(g, y, "sum", i);
  return form.after ? named(g, norm(g, y), "norm", i) : y;
}

/* Embedded tokens, or a product, followed by blocks. */
static Graph *network(Form form) {
  Graph *g = new_graph();
  int x = form.narrow ? apply_2(g, &op_matmul, operand(g, "x", true, SHAPE(LENGTH, WIDTH)),
                                new_param(g, "in", SHAPE(WIDTH, WIDTH)))
                      : apply_2(g, &op_gather, new_param(g, "wte", SHAPE(7, WIDTH)),
                                new_tokens(g, "tokens", 7, SHAPE(LENGTH)));
  if (form.dropout)
    x = named(g, dropped(g, x, BLOCKS), "start", 0);
  for (int i = 0; i < BLOCKS; i++)
    x = block(g, x, form, i);
  int last = form.narrow || form.after ? x : norm(g, x);
  weigh(g, apply_2(g, &op_matmul, last, new_param(g, "head", SHAPE(WIDTH, WIDTH))));
  return g;
}

static Graph *compiled(Form form, Residual kept) {
  Graph *g = network(form);
  round_residuals(g, kept);
  autodiff(g);
  simplify(g);
  mark_residuals(g, kept);
  graph_verify(g);
  return g;
}

static int find(const Graph *g, const char *name) {
  for (int v = 0; v < g->values.n; v++)
    if (g->values.at[v].name == intern(name))
      return v;
  fail_msg("there is no '%s'", name);
  return -1;
}

static int gradient(const Graph *g, int value) {
  const Value *v = &g->values.at[value];
  for (int u = 0; u < v->gradients.n; u++)
    if (v->gradients.at[u] >= 0)
      return v->gradients.at[u];
  fail_msg("'%s' has no gradient", v->name);
  return -1;
}

static void expect(const Graph *g, const char *name, bool bf16) {
  const bool *in_bf16 = values_in_bf16(g, PRECISION_BF16);
  int value = find(g, name);
  if (in_bf16[value] != bf16)
    fail_msg("'%s' is %sin bf16", name, bf16 ? "not " : "");
  if (in_bf16[gradient(g, value)] != bf16)
    fail_msg("the gradient of '%s' is %sin bf16", name, bf16 ? "not " : "");
}

/* Products read and write bf16, whatever the stream's type. */
static void expect_products(const Graph *g) {
  const bool *in_bf16 = values_in_bf16(g, PRECISION_BF16);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    for (int k = 0; k < n->n_in && (n->op == &op_matmul || n->op == &op_weight_gradient); k++)
      assert_true(in_bf16[n->in[k]]);
  }
}

static void test_dropout_changes_nothing(void **state) {
  (void)state;
  for (Residual kept = RESIDUAL_F32; kept <= RESIDUAL_BF16; kept++)
    for (int dropout = 0; dropout < 2; dropout++)
      for (int after = 0; after < 2; after++) {
        const Graph *g = compiled((Form){.dropout = dropout, .after = after}, kept);
        expect(g, "sum0", kept == RESIDUAL_BF16);
        expect(g, after ? "norm0" : "sum1", kept == RESIDUAL_BF16);
        if (dropout)
          expect(g, "start0", kept == RESIDUAL_BF16); /* its gradient has one reader */
        expect_products(g);
      }
}

/* As in autocast: results of products and their sums. */
static void test_stream_of_products(void **state) {
  (void)state;
  for (int dropout = 0; dropout < 2; dropout++) {
    const Graph *g = compiled((Form){.dropout = dropout, .narrow = true}, RESIDUAL_F32);
    expect(g, "sum0", true);
    expect_products(g);
    for (int i = 0; i < g->nodes.n; i++)
      assert_ptr_not_equal(g->nodes.at[i].op, &op_rounded);
  }
}

static int marked(const Graph *g) {
  int n = 0;
  for (int v = 0; v < g->values.n; v++)
    n += g->values.at[v].bf16;
  return n;
}

/* Sums within a function of one value, sums of losses, and products with the bypass are not part of the stream. */
static void test_other_sums(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x =
      apply_2(g, &op_matmul, operand(g, "x", true, SHAPE(LENGTH, WIDTH)), new_param(g, "w", SHAPE(WIDTH, WIDTH)));
  int h = apply_2(g, &op_mul, x, apply_1(g, &op_tanh, apply_2(g, &op_add, x, apply_1(g, &op_square, x))));
  int y = apply_2(g, &op_matmul, h, new_param(g, "v", SHAPE(WIDTH, WIDTH)));
  int loss = apply_2(g, &op_add, apply_1(g, &op_sum, apply_1(g, &op_exp, x)), apply_1(g, &op_sum, y));
  weigh(g, apply_2(g, &op_mul, loss, apply_1(g, &op_tanh, loss)));
  round_residuals(g, RESIDUAL_BF16);
  autodiff(g);
  simplify(g);
  mark_residuals(g, RESIDUAL_BF16);
  assert_int_equal(marked(g), 0);
  assert_int_equal(marked(compiled((Form){.unsummed = true}, RESIDUAL_BF16)), 0);
}

/* Copies do not change numbers. */
static void test_numbers(void **state) {
  (void)state;
  for (int dropout = 0; dropout < 2; dropout++)
    for (int after = 0; after < 2; after++) {
      Form form = {.dropout = dropout, .after = after};
      Graph *plain = network(form), *g = compiled(form, RESIDUAL_F32);
      autodiff(plain);
      double **a = run_graph(plain, numbers_for(plain)), **b = run_graph(g, numbers_for(g));
      for (int i = 0; i < plain->params.n; i++) {
        const double *x = gradient_of(plain, a, i), *y = gradient_of(g, b, i);
        for (int64_t k = 0; k < shape_elements(&plain->params.at[i].shape); k++)
          assert_true(fabs(x[k] - y[k]) <= 1e-12 * (1 + fabs(x[k])));
      }
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_dropout_changes_nothing),
                                     cmocka_unit_test(test_stream_of_products), cmocka_unit_test(test_other_sums),
                                     cmocka_unit_test(test_numbers)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
