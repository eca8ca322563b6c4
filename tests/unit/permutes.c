/* Moving permutes keeps every number; none remains between layers that compute in another order of axes. */
#include "graphs.h"

#include "layout/permutes.h"

static int permute(Graph *g, int x, int64_t a, int64_t b, int64_t c) {
  return apply(g, &op_permute, &x, 1, (Attr[MAX_ATTR]){{.n = 3, .list = (int64_t[]){a, b, c}}});
}

static int orders_in(const Graph *g) {
  int n = 0;
  for (int i = 0; i < g->nodes.n; i++)
    n += g->nodes.at[i].op->order != NULL;
  return n;
}

/* An image layer: [C, H, W] outside, [H, W, C] inside. */
static int mix(Graph *g, int x, const char *name, int64_t channels) {
  int64_t had = g->values.at[x].shape.dim[0];
  int y = apply_2(g, &op_matmul, permute(g, x, 1, 2, 0), new_param(g, name, SHAPE(had, channels)));
  return permute(g, y, 2, 0, 1);
}

/* x * weight[C, 1, 1], as in normalisations. */
static int scale(Graph *g, int x, const char *name) {
  int w = new_param(g, name, SHAPE(g->values.at[x].shape.dim[0]));
  Attr shape[MAX_ATTR] = {{.n = 3, .list = (int64_t[]){g->values.at[x].shape.dim[0], 1, 1}}};
  return apply_2(g, &op_mul, x, apply(g, &op_reshape, &w, 1, shape));
}

static int relu(Graph *g, int x) { return apply_2(g, &op_maximum, x, graph_constant(g, 0.4, 0, NO_SPAN)); }

static int flat(Graph *g, int x) {
  Attr shape[MAX_ATTR] = {{.n = 1, .list = (int64_t[]){-1}}};
  return apply(g, &op_reshape, &x, 1, shape);
}

static Graph *residual_network(void) {
  Graph *g = new_graph();
  int x = new_input(g, "image", SHAPE(3, 4, 5));
  x = relu(g, mix(g, x, "a", 4));
  int y = scale(g, mix(g, x, "b", 4), "scale");
  x = relu(g, apply_2(g, &op_add, y, x));
  x = apply(g, &op_pad, &x, 1, (Attr[MAX_ATTR]){{.number = 1}, {.number = 1}, {.number = 2}});
  int c = mix(g, x, "c", 2), d = apply_1(g, &op_sin, mix(g, x, "d", 3));
  x = apply(g, &op_concat, (int[]){c, x, d}, 3, (Attr[MAX_ATTR]){{.number = 0}});
  x = apply(g, &op_slice, &x, 1, (Attr[MAX_ATTR]){{.number = 0}, {.number = 1}, {.number = 7}});
  weigh(g, flat(g, x));
  return g;
}

static void expect_same_numbers(const Graph *before, const Graph *after) {
  Numbers n = numbers_for(before);
  double **a = run_graph(before, n), **b = run_graph(after, n);
  expect_near(interpret_loss(after, BATCH, b), interpret_loss(before, BATCH, a), 1e-12, "loss", 0);
  for (int i = 0; i < before->figures.n; i++) {
    const Value *v = &before->values.at[before->figures.at[i].value];
    assert_true(shape_equal(&v->shape, &after->values.at[after->figures.at[i].value].shape));
    for (int64_t k = 0; k < shape_elements(&v->shape) * BATCH; k++)
      expect_near(b[after->figures.at[i].value][k], a[before->figures.at[i].value][k], 1e-12, "loss", k);
  }
  for (int p = 0; p < before->params.n; p++) {
    double *x = gradient_of(before, a, p), *y = gradient_of(after, b, p);
    for (int64_t i = 0; i < shape_elements(&before->params.at[p].shape); i++)
      expect_near(y[i], x[i], 1e-12, before->params.at[p].name, i);
  }
}

static void test_residual_network(void **state) {
  (void)state;
  Graph *g = residual_network(), *moved = residual_network();
  move_permutes(moved);
  graph_verify(moved);
  assert_int_equal(orders_in(g), 8);
  assert_int_equal(orders_in(moved), 2); /* of the image, and before flattening */
  autodiff(g);
  autodiff(moved);
  expect_same_numbers(g, moved);
  simplify(moved);
  graph_verify(moved);
  assert_int_equal(orders_in(moved), 2 + 1 + 3); /* the flat value's gradient; weights of products backward */
  expect_same_numbers(g, moved);
}

static void test_names_stay(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = mix(g, new_input(g, "image", SHAPE(3, 4, 5)), "a", 4);
  g->values.at[x].name = intern("features");
  int y = relu(g, x);
  g->values.at[y].name = intern("active");
  weigh(g, flat(g, mix(g, y, "b", 2)));
  move_permutes(g);
  int features = 0, active = 0;
  for (int v = 0; v < g->values.n; v++) {
    const Op *op = g->nodes.at[g->values.at[v].node].op;
    features += op == &op_matmul && !strcmp(g->values.at[v].name, "features");
    active += op == &op_maximum && !strcmp(g->values.at[v].name, "active");
  }
  assert_int_equal(features, 1);
  assert_int_equal(active, 1);
}

static void test_nothing_to_move(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = operand(g, "x", true, SHAPE(2, 3, 4));
  weigh(g, flat(g, apply_1(g, &op_sum, relu(g, x))));
  char *before = dump_of(g);
  move_permutes(g);
  assert_string_equal(dump_of(g), before);
}

/* ---- random graphs -------------------------------------------------------------------------------- */

static uint64_t state_of_chance;

static int chance(int n) {
  state_of_chance = state_of_chance * 6364136223846793005u + 1442695040888963407u;
  return (int)((state_of_chance >> 33) % (uint64_t)n);
}

static int permute_at_random(Graph *g, int x) {
  static const int64_t orders[][3] = {{0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  const int64_t *o = orders[chance(5)];
  return permute(g, x, o[0], o[1], o[2]);
}

/* A value of the pool with the shape of x, which is in the pool. */
static int alike(const Graph *g, const Ints *pool, int x) {
  for (int tries = 0; tries < 20; tries++) {
    int y = pool->at[chance(pool->n)];
    if (shape_equal(&g->values.at[x].shape, &g->values.at[y].shape))
      return y;
  }
  return x;
}

/* A parameter that broadcasts to x: some axes are 1, and leading axes may be missing. */
static int broadcast(Graph *g, int x) {
  Shape s = g->values.at[x].shape;
  int lacks = chance(3);
  s.batched = false;
  s.rank -= lacks;
  for (int i = 0; i < s.rank; i++)
    s.dim[i] = chance(2) ? s.dim[i + lacks] : 1;
  return new_param(g, format("p%d", g->params.n), s);
}

static int step(Graph *g, const Ints *pool) {
  int x = pool->at[chance(pool->n)];
  Shape s = g->values.at[x].shape;
  Attr axis = {.number = chance(3)};
  int64_t size = s.dim[(int)axis.number];
  switch (chance(12)) {
  case 0: return apply_1(g, &op_sin, x);
  case 1: return apply_2(g, &op_mul, x, alike(g, pool, x));
  case 2: return apply_2(g, &op_add, alike(g, pool, x), x);
  case 3: return apply_2(g, &op_mul, x, broadcast(g, x));
  case 4: return apply_2(g, &op_sub, broadcast(g, x), x);
  case 5: return apply(g, &op_concat, (int[]){x, alike(g, pool, x)}, 2, (Attr[MAX_ATTR]){axis});
  case 6: return apply(g, &op_pad, &x, 1, (Attr[MAX_ATTR]){axis, {.number = chance(2)}, {.number = 1}});
  case 7: return apply(g, &op_slice, &x, 1, (Attr[MAX_ATTR]){axis, {.number = size > 1}, {.number = 0}});
  case 8:
    x = apply_1(g, chance(2) ? &op_sum : &op_max, x);
    return apply(g, &op_expand, &x, 1, (Attr[MAX_ATTR]){{.n = 3, .list = s.dim}});
  case 9: return flat(g, x);
  default: return permute_at_random(g, x);
  }
}

static Graph *random_graph(int seed) {
  Graph *g = new_graph();
  Ints pool = {0};
  state_of_chance = (uint64_t)seed;
  push(&pool, operand(g, "x", true, SHAPE(2, 3, 4)));
  push(&pool, operand(g, "y", true, SHAPE(3, 1, 2)));
  push(&pool, new_input(g, "z", SHAPE(2, 3, 4)));
  for (int i = 0; i < 20; i++) {
    int x = step(g, &pool);
    if (g->values.at[x].shape.rank == 3 && shape_elements(&g->values.at[x].shape) < 200)
      push(&pool, x);
    else
      weigh(g, apply_1(g, &op_sin, x));
  }
  weigh(g, pool.at[pool.n - 1]);
  add_loss(g, permute_at_random(g, pool.at[pool.n - 2]));
  return g;
}

static void test_random_graphs(void **state) {
  (void)state;
  int removed = 0;
  for (int seed = 0; seed < 300; seed++) {
    Graph *g = random_graph(seed), *moved = random_graph(seed);
    move_permutes(moved);
    graph_verify(moved);
    removed += orders_in(g) - orders_in(moved);
    autodiff(g);
    autodiff(moved);
    graph_verify(moved);
    simplify(moved);
    graph_verify(moved);
    expect_same_numbers(g, moved);
  }
  assert_true(removed > 300);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_residual_network), cmocka_unit_test(test_names_stay),
                                     cmocka_unit_test(test_nothing_to_move), cmocka_unit_test(test_random_graphs)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
