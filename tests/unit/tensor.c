/* On all ranks of a shard group, a divided graph computes the losses and gradients of the whole graph, for every
 * division. Random costs choose the ways. PD_CASES=1000 sets the number of random graphs, PD_SEED=N selects
 * others. */
#include "network.h"
#include "random.h"

#include <stdlib.h>
#include <string.h>

#include "ops/rules.h"
#include "tensor/internal.h"

/* ---- parts of parameters -------------------------------------------------------------------------- */

typedef struct Part {
  int64_t runs, part; /* elements of a run on one rank */
} Part;

static Part part_of(const Param *p) {
  Part x = {1, shape_elements(&p->shape)};
  if (p->layout.kind != LAYOUT_SPLIT)
    return x;
  x.runs = p->layout.blocks;
  for (int i = 0; i < p->layout.axis; i++)
    x.runs *= p->shape.dim[i];
  x.part /= x.runs;
  return x;
}

static const double *own_numbers(const Param *p, const double *whole, int rank, int ranks) {
  Part x = part_of(p);
  double *own = alloc((size_t)shape_elements(&p->shape) * sizeof *own);
  if (p->layout.kind != LAYOUT_SPLIT)
    return whole;
  int64_t all = x.part * ranks - (p->surplus ? x.part / p->shape.dim[0] * p->surplus : 0); /* of a run */
  for (int64_t i = 0; i < x.runs; i++)
    for (int64_t k = 0; k < x.part && rank * x.part + k < all; k++)
      own[i * x.part + k] = whole[i * all + rank * x.part + k];
  return own;
}

static void expect_own(const Param *p, const double *got, const double *whole, int rank, int ranks) {
  const double *expected = own_numbers(p, whole, rank, ranks);
  for (int64_t i = 0; i < shape_elements(&p->shape); i++)
    expect_near(got[i], expected[i], 1e-9, p->name, i);
}

static void expect_divided(const Graph *whole, const Graph *g, int ranks) {
  Numbers n = numbers_for(whole);
  double **a = run_graph(whole, n);
  const double *const **param = alloc((size_t)ranks * sizeof *param);
  for (int r = 0; r < ranks; r++) {
    const double **own = alloc((size_t)(g->params.n + 1) * sizeof *own);
    for (int p = 0; p < g->params.n; p++)
      own[p] = own_numbers(&g->params.at[p], n.param[p], r, ranks);
    param[r] = own;
  }
  double ***b = interpret_shards(g, ranks, BATCH, (const double *const *)n.input, param);
  for (int r = 0; r < ranks; r++) {
    expect_near(interpret_loss(g, BATCH, b[r]), interpret_loss(whole, BATCH, a), 1e-9, "loss", r);
    for (int p = 0; p < g->params.n; p++)
      expect_own(&g->params.at[p], gradient_of(g, b[r], p), gradient_of(whole, a, p), r, ranks);
  }
}

/* ---- random graphs ------------------------------------------------------------------------------- */

static double any_cost(void) { return (double)below(1000); }

enum { ROWS = 4, HEADS = 4 };

static int pick(const Ints *v) { return v->at[below((uint64_t)v->n)]; }

static int with_width(Graph *g, int x, int64_t width, int number) {
  int w = new_param(g, internf("w%d", number), SHAPE(g->values.at[x].shape.dim[1], width));
  return apply_2(g, &op_matmul, x, w);
}

static int attended(Graph *g, int x, int number) {
  int qkv = with_width(g, x, 24, number), in[3];
  int split = graph_node(g, &op_split, &qkv, 1, (Attr[MAX_ATTR]){{.number = 3}}, 0, NO_SPAN);
  for (int i = 0; i < 3; i++) {
    Attr heads[MAX_ATTR] = {{.n = 3, .list = (int64_t[]){ROWS, HEADS, 2}}};
    int v = graph_output(g, split, i);
    v = apply(g, &op_reshape, &v, 1, heads);
    in[i] = apply(g, &op_transpose, &v, 1, (Attr[MAX_ATTR]){{.number = 0}, {.number = 1}});
  }
  int o = apply(g, &op_attention, in, 3, (Attr[MAX_ATTR]){{.number = (double)below(2)}, {0}});
  o = apply(g, &op_transpose, &o, 1, (Attr[MAX_ATTR]){{.number = 0}, {.number = 1}});
  return apply(g, &op_reshape, &o, 1, (Attr[MAX_ATTR]){{.n = 2, .list = (int64_t[]){ROWS, 8}}});
}

/* Two values of two columns each, concatenated: an axis in blocks. */
static int rearranged(Graph *g, int x) {
  int n = graph_node(g, &op_split, &x, 1, (Attr[MAX_ATTR]){{.number = 2}}, 0, NO_SPAN);
  int a = graph_output(g, n, 0), b = graph_output(g, n, 1);
  return apply_2(g, &op_concat, b, apply_1(g, &op_tanh, a));
}

static int next_value(Graph *g, const Ints *values, int number) {
  int x = pick(values), y = pick(values);
  const Shape *s = &g->values.at[x].shape;
  bool alike = shape_equal(s, &g->values.at[y].shape);
  switch (below(11)) {
  case 0: return with_width(g, x, 8, number);
  case 1: return with_width(g, x, 12, number);
  case 2: return attended(g, x, number);
  case 3: return alike ? apply_2(g, &op_add, x, y) : apply_1(g, &op_sigmoid, x);
  case 4: return alike ? apply_2(g, &op_mul, x, y) : apply_1(g, &op_square, x);
  case 5:
    return apply_2(g, &op_sub, x, apply_2(g, &op_div, apply_1(g, &op_sum, x), graph_constant(g, 7, 0, NO_SPAN)));
  case 6: return apply_2(g, &op_sub, x, apply_1(g, &op_max, x));
  case 7: return apply_2(g, &op_add, x, new_param(g, internf("b%d", number), SHAPE(s->dim[1])));
  case 8: return rearranged(g, x);
  case 9: return apply(g, &op_dropout, &x, 1, (Attr[MAX_ATTR]){{.number = 0.3}, {0}});
  default: return apply_2(g, &op_mul, x, new_param(g, internf("s%d", number), SHAPE(ROWS, 1)));
  }
}

/* -log softmax(x)[token], as in the layer cross_entropy. */
static void cross_entropy(Graph *g, int x, int tokens) {
  Attr column[MAX_ATTR] = {{.n = 2, .list = (int64_t[]){ROWS, 1}}};
  int hot = apply_1(g, &op_one_hot, apply(g, &op_reshape, &tokens, 1, column));
  int shifted = apply_2(g, &op_sub, x, apply_1(g, &op_detach, apply_1(g, &op_max, x)));
  int picked = apply(g, &op_select, (int[]){hot, shifted, graph_constant(g, 0, 0, NO_SPAN)}, 3, NULL);
  int sum = apply_1(g, &op_log, apply_1(g, &op_sum, apply_1(g, &op_exp, shifted)));
  add_loss(g, apply_2(g, &op_sub, sum, apply_1(g, &op_sum, picked)));
}

/* From a table of classes or numbers to a sum, or to classes by a head that may be the same table. */
static Graph *random_graph(void) {
  Graph *g = new_graph();
  Ints values = {0};
  int64_t classes = 9 + (int64_t)below(4); /* 12 is divisible among all ranks */
  int table = new_param(g, "table", SHAPE(classes, 8));
  int tokens = new_tokens(g, "tokens", classes, SHAPE(ROWS)),
      labels = new_tokens(g, "labels", classes, SHAPE(ROWS));
  push(&values, below(2) ? operand(g, "x", true, SHAPE(ROWS, 8)) : apply_2(g, &op_gather, table, tokens));
  int n = 2 + (int)below(8);
  for (int i = 0; i < n; i++)
    push(&values, next_value(g, &values, i));
  int last = apply_1(g, &op_tanh, values.at[values.n - 1]); /* of any size, so that rounding errors are relatively
                                                               small */
  int64_t width = g->values.at[last].shape.dim[1];
  if (below(2)) {
    weigh(g, last);
    return g;
  }
  int head = width == 8 && below(2) ? table : new_param(g, "head", SHAPE(classes, width));
  cross_entropy(g, apply_2(g, &op_matmul, last, apply_1(g, &op_transpose, head)), labels);
  return g;
}

static Graph *trained(Graph *g) {
  autodiff(g);
  simplify(g);
  return g;
}

static int count(const Graph *g, const Op *op, bool forward) {
  int n = 0;
  for (int i = 0; i < g->nodes.n; i++)
    n += g->nodes.at[i].op == op && (g->nodes.at[i].serves < 0) == forward;
  return n;
}

static void divide(Graph *g, int ranks, bool at_random) {
  Division d = division_of(g, ranks);
  d.any_cost = at_random ? any_cost : NULL;
  d.least = d.multiple = 1;
  assert_true(tensor_by(&d));
  graph_verify(g);
}

static int number_from(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

static void test_random_graphs(void **unused) {
  (void)unused;
  int cases = number_from("PD_CASES", 60), seed = number_from("PD_SEED", 1);
  int scattered = 0;
  for (int i = 0; i < cases; i++) {
    uint64_t start = (uint64_t)seed * 1000003 + (uint64_t)i * 7919 + 1;
    state = start;
    Graph *whole = trained(random_graph());
    state = start;
    Graph *g = trained(random_graph());
    int ranks = below(2) ? 2 : 4;
    divide(g, ranks, i % 4 != 0);
    expect_divided(whole, g, ranks);
    scattered += count(g, &op_reduce_scatter, true) + count(g, &op_reduce_scatter, false) > 0;
  }
  assert_true(scattered >= cases / 20); /* this share has parts of sums */
}

/* Blocks with ties, residuals, norms, heads and dropout; divided by 2, and by 3 if sizes are multiples of 3. */
static void test_network(void **unused) {
  (void)unused;
  for (int ranks = 2; ranks <= 3; ranks++)
    for (int i = 0; i < 6; i++) {
      Graph *whole = trained(network(2, 0.3)), *g = trained(network(2, 0.3));
      divide(g, ranks, i > 0);
      expect_divided(whole, g, ranks);
    }
}

/* x + down(tanh(up(x))), of a width at which moving activations costs less than computing. Hidden units are split,
 * with one sum forward; x is an input, so its gradient needs none. */
static void test_hidden_units_are_split(void **unused) {
  (void)unused;
  Graph *g = new_graph();
  int x = new_input(g, "x", SHAPE(16, 256));
  int y = apply_2(g, &op_matmul, x, new_param(g, "up", SHAPE(256, 1024)));
  y = apply_2(g, &op_matmul, apply_1(g, &op_tanh, y), new_param(g, "down", SHAPE(1024, 256)));
  add_loss(g, apply_1(g, &op_square, apply_2(g, &op_add, x, y)));
  divide(trained(g), 2, false);
  assert_int_equal(count(g, &op_all_reduce, true), 1);
  assert_int_equal(count(g, &op_all_reduce, false), 0);
  assert_int_equal(count(g, &op_all_gather, true) + count(g, &op_all_gather, false), 0);
  assert_int_equal(g->params.at[0].shape.dim[1], 512);
  assert_int_equal(g->params.at[1].shape.dim[0], 512);
}

/* x + dropout(down(tanh(up(x / sum(x) * scale)))), twice: half of a transformer block, with a norm's scale. */
static Graph *halves(void) {
  Graph *g = new_graph();
  int x = apply_2(g, &op_gather, new_param(g, "table", SHAPE(64, 128)), new_tokens(g, "tokens", 64, SHAPE(64)));
  for (int i = 0; i < 2; i++) {
    int y = apply_2(g, &op_mul, apply_2(g, &op_div, x, apply_1(g, &op_sum, apply_1(g, &op_square, x))),
                    new_param(g, internf("scale%d", i), SHAPE(128)));
    y = apply_1(g, &op_tanh, apply_2(g, &op_matmul, y, new_param(g, internf("up%d", i), SHAPE(128, 512))));
    y = apply_2(g, &op_matmul, y, new_param(g, internf("down%d", i), SHAPE(512, 128)));
    x = apply_2(g, &op_add, x, apply(g, &op_dropout, &y, 1, (Attr[MAX_ATTR]){{.number = 0.3}, {0}}));
  }
  add_loss(g, apply_1(g, &op_square, apply_1(g, &op_tanh, x)));
  return trained(g);
}

/* If memory is short, values between the products are split by positions. Partial sums are scattered after the
 * second product and gathered before the first; the backward pass reverses this and gathers once more for the
 * first one's weights. Scales are whole on every rank, so their gradients are summed. */
static void test_positions_are_split(void **unused) {
  (void)unused;
  for (int ranks = 2; ranks <= 4; ranks += 2) {
    Graph *whole = halves(), *g = halves();
    Division d = division_of(g, ranks);
    d.spread = true;
    assert_true(tensor_by(&d));
    graph_verify(g);
    expect_divided(whole, g, ranks);
    assert_true(g->spread);
    assert_true(count(g, &op_reduce_scatter, true) >= 2 && count(g, &op_reduce_scatter, false) >= 2);
    assert_true(count(g, &op_all_gather, true) >= 2 && count(g, &op_all_gather, false) >= 4);
    for (int i = 0; i < g->nodes.n; i++)
      if (g->nodes.at[i].op == &op_all_reduce)
        assert_true(g->nodes.at[i].serves >= 0 && !out_shape(g, i, 0)->batched);
    for (int i = 0; i < g->params.n; i++)
      assert_true(!strncmp(g->params.at[i].name, "scale", 5) == (g->params.at[i].layout.kind == LAYOUT_WHOLE));
  }
}

static int convolved(Graph *g, int x, int64_t channels, int number) {
  int w = new_param(g, internf("kernel%d", number), SHAPE(channels, g->values.at[x].shape.dim[2], 3, 3));
  return apply(g, &op_convolution, (int[]){x, w}, 2,
               (Attr[MAX_ATTR]){{.number = 1}, {.number = 1}, {.number = 1}, {.number = 1}});
}

/* x minus its mean per channel over a microbatch's pixels, which a buffer tracks; then a bias. */
static int centred(Graph *g, int x, int number) {
  Attr channels[MAX_ATTR] = {{.n = 1, .list = (int64_t[]){g->values.at[x].shape.dim[2]}}};
  int buffer = new_buffer(g, internf("mean%d", number), SHAPE(channels->list[0]));
  int mean = apply_2(g, &op_mul, apply(g, &op_sum_to, &x, 1, channels), graph_constant(g, 0.02, 0, NO_SPAN));
  mean = apply(g, &op_running_average, (int[]){buffer, mean, mean}, 3, (Attr[MAX_ATTR]){{.number = 0.1}});
  int bias = new_param(g, internf("bias%d", number), SHAPE(channels->list[0]));
  return apply_2(g, &op_add, apply_2(g, &op_sub, x, mean), bias);
}

/* Convolutions with all operations between them, and a classifier. */
static Graph *images(int64_t size, int64_t width) {
  Graph *g = new_graph();
  Attr window[MAX_ATTR] = {{.number = 2}, {.number = 2}};
  int x = convolved(g, new_input(g, "image", SHAPE(size, size, 3)), width, 0);
  x = apply(g, &op_max_pool, (int[]){apply_1(g, &op_tanh, centred(g, x, 0))}, 1, window);
  x = convolved(g, x, 2 * width, 1);
  int y = convolved(g, apply_1(g, &op_tanh, centred(g, x, 1)), 2 * width, 2);
  x = apply_2(g, &op_add, x, centred(g, y, 2));
  x = apply(g, &op_average_pool, &x, 1, window);
  x = apply(g, &op_adaptive_average_pool, &x, 1, (Attr[MAX_ATTR]){{.number = 1}});
  x = apply(g, &op_reshape, &x, 1, (Attr[MAX_ATTR]){{.n = 1, .list = (int64_t[]){2 * width}}});
  weigh(g, apply_2(g, &op_matmul, x, new_param(g, "classifier", SHAPE(2 * width, 5))));
  return trained(g);
}

/* With random ways; and with sizes at which computing costs more than moving, every kernel is split along
 * channels. */
static void test_channels_are_split(void **unused) {
  (void)unused;
  for (int ranks = 2; ranks <= 4; ranks += 2) {
    for (int i = 0; i < number_from("PD_CASES", 60) / 6; i++) {
      Graph *whole = images(8, 4), *g = images(8, 4);
      divide(g, ranks, i > 0);
      expect_divided(whole, g, ranks);
    }
    Graph *g = images(32, 32);
    divide(g, ranks, false);
    for (int i = 0; i < g->params.n; i++)
      if (!strncmp(g->params.at[i].name, "kernel", 6))
        assert_int_equal(g->params.at[i].layout.kind, LAYOUT_SPLIT);
    assert_int_equal(g->params.at[0].shape.dim[0], 32 / ranks);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_channels_are_split),
      cmocka_unit_test(test_random_graphs),
      cmocka_unit_test(test_network),
      cmocka_unit_test(test_hidden_units_are_split),
      cmocka_unit_test(test_positions_are_split),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
