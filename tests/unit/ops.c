/* Every primitive: derivatives against finite differences before and after simplify, completeness of its tables,
 * and diagnostics. ops_sequences.c has those over sequences. */
#include "derivatives.h"

static void unary(const Op *op) {
  for (int batched = 0; batched < 2; batched++) {
    Graph *g = new_graph();
    check(g, apply_1(g, op, operand(g, "x", batched, SHAPE(2, 3))));
  }
}

static void test_functions(void **state) {
  (void)state;
  const Op *const ops[] = {&op_neg,     &op_square, &op_exp, &op_expm1, &op_log,    &op_log1p,
                           &op_sigmoid, &op_tanh,   &op_erf, &op_erfc,  &op_sqrt,   &op_rsqrt,
                           &op_sin,     &op_cos,    &op_sum, &op_max,   &op_rounded};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
    unary(ops[i]);
}

/* Positive and negative arguments. */
static void test_relu_and_abs(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    Graph *g = new_graph();
    int x = apply_2(g, &op_sub, operand(g, "x", true, SHAPE(4, 5)), graph_constant(g, 2, 0, NO_SPAN));
    check(g, apply_1(g, i ? &op_abs : &op_relu, x));
  }
}

static void test_arithmetic_broadcasts(void **state) {
  (void)state;
  const Op *const ops[] = {&op_add, &op_sub, &op_mul, &op_div, &op_maximum, &op_minimum};
  const Shape shapes[][2] = {{SHAPE(2, 3), SHAPE(2, 3)},    {SHAPE(2, 3), SHAPE(3)},
                             {SHAPE(2, 1), SHAPE(3)},       {SHAPE(2, 1), SHAPE(1, 3)},
                             {SHAPE(2, 2, 3), SHAPE(2, 1)}, {SHAPE(3), SHAPE(2, 1, 3)}};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
      for (int batched = 0; batched < 4; batched++) {
        Graph *g = new_graph();
        int a = operand(g, "a", batched & 1, shapes[s][0]), b = operand(g, "b", batched >> 1, shapes[s][1]);
        check(g, apply_2(g, ops[i], a, b));
      }
}

static void test_same_operand_twice(void **state) {
  (void)state;
  const Op *const ops[] = {&op_add, &op_mul, &op_div};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
    for (int batched = 0; batched < 2; batched++) {
      Graph *g = new_graph();
      int x = operand(g, "x", batched, SHAPE(4));
      check(g, apply_2(g, &op_add, apply_2(g, ops[i], x, x), x));
    }
}

static void test_select(void **state) {
  (void)state;
  for (int batched = 0; batched < 4; batched++) {
    Graph *g = new_graph();
    int a = operand(g, "a", batched & 1, SHAPE(2, 3)), b = operand(g, "b", batched >> 1, SHAPE(3));
    int condition = apply_2(g, &op_greater, new_input(g, "c", SHAPE(2, 3)), graph_constant(g, 1, 0, NO_SPAN));
    check(g, apply(g, &op_select, (int[]){condition, a, b}, 3, NULL));
  }
}

static void test_ties(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = new_param(g, "x", SHAPE(4));
  weigh(g, apply_1(g, &op_max, apply_2(g, &op_mul, x, graph_constant(g, 0, 0, NO_SPAN))));
  int y = new_param(g, "y", SHAPE(4));
  weigh(g, apply_2(g, &op_maximum, y, y));
  autodiff(g);
  Numbers n = numbers_for(g);
  double **value = run_graph(g, n), *gx = gradient_of(g, value, 0), *gy = gradient_of(g, value, 1);
  for (int i = 0; i < 4; i++) {
    double weight = 0;
    for (int s = 0; s < BATCH; s++)
      weight += n.input[1][s * 4 + i] / 4;
    expect_near(gx[i], 0, 1e-12, "through a product with 0", i);
    expect_near(gy[i], weight, 1e-12, "both sides of a tie", i);
  }
}

static void test_views(void **state) {
  (void)state;
  struct {
    const Op *op;
    Attr attr[MAX_ATTR];
  } cases[] = {
      {&op_reshape, {{.n = 2, .list = (int64_t[]){3, -1}}}},
      {&op_transpose, {{.number = 0}, {.number = 2}}},
      {&op_transpose, {{.number = -2}, {.number = -1}}},
      {&op_permute, {{.n = 3, .list = (int64_t[]){2, 0, 1}}}},
      {&op_permute, {{.n = 3, .list = (int64_t[]){-2, -1, 0}}}},
      {&op_slice, {{.number = 1}, {.number = 1}, {.number = 2}}},
      {&op_slice, {{.number = -1}, {.number = -3}, {.number = 0}}},
      {&op_expand, {{.n = 4, .list = (int64_t[]){2, 2, 3, 4}}}},
      {&op_pad, {{.number = 1}, {.number = 2}, {.number = 1}}},
      {&op_dropout, {{.number = 0.4}, {0}}},
      {&op_dropout, {{.number = 0}, {0}}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int batched = cases[i].op == &op_dropout; batched < 2; batched++) {
      Graph *g = new_graph();
      int x = operand(g, "x", batched, SHAPE(2, 3, 4));
      check(g, apply(g, cases[i].op, &x, 1, cases[i].attr));
    }
}

static void test_expand_axes(void **state) {
  (void)state;
  for (int batched = 0; batched < 2; batched++) {
    Graph *g = new_graph();
    int x = operand(g, "x", batched, SHAPE(3, 1));
    check(g, apply(g, &op_expand, &x, 1, (Attr[MAX_ATTR]){{.n = 3, .list = (int64_t[]){2, 3, 4}}}));
  }
}

/* Sums over samples: alone, and combined with the summed value. */
static void test_sum_to(void **state) {
  (void)state;
  const Shape to[] = {SHAPE(2, 1, 1), SHAPE(1, 3, 1), SHAPE(4), SHAPE(3, 1), SHAPE(2, 3, 4), {.rank = 0}};
  for (size_t i = 0; i < sizeof to / sizeof to[0]; i++)
    for (int batched = 0; batched < 2; batched++) {
      Attr attr[MAX_ATTR] = {{.n = to[i].rank, .list = (int64_t *)to[i].dim}};
      Graph *g = new_graph();
      int x = operand(g, "x", batched, SHAPE(2, 3, 4));
      check(g, apply(g, &op_sum_to, &x, 1, attr));
      g = new_graph();
      x = operand(g, "x", batched, SHAPE(2, 3, 4));
      check(g, apply_2(g, &op_mul, x, apply_1(g, &op_sin, apply(g, &op_sum_to, &x, 1, attr))));
    }
}

/* x of each sample normalised by the microbatch's mean and variance: the gradient passes through both, and each
 * buffer gets momentum * statistic. */
static void test_running_averages(void **state) {
  (void)state;
  Graph *g = new_graph();
  Attr channels[MAX_ATTR] = {{.n = 2, .list = (int64_t[]){2, 1}}};
  Attr flat[MAX_ATTR] = {{.n = 1, .list = (int64_t[]){2}}};
  Attr momentum[MAX_ATTR] = {{.number = 0.3}};
  int x = operand(g, "x", true, SHAPE(2, 3)), statistic[2];
  int n = apply_2(g, &op_mul, apply(g, &op_microbatch, NULL, 0, NULL), graph_constant(g, 3, 0, NO_SPAN));
  int y = x;
  for (int i = 0; i < 2; i++) {
    int summed = i ? apply_1(g, &op_square, apply_2(g, &op_sub, x, apply_1(g, &op_detach, y))) : x;
    int mean = apply_2(g, &op_div, apply(g, &op_sum_to, &summed, 1, channels), n);
    statistic[i] = apply(g, &op_reshape, &mean, 1, flat);
    int in[3] = {new_buffer(g, i ? "running_var" : "running_mean", SHAPE(2)), statistic[i], statistic[i]};
    int used = apply(g, &op_running_average, in, 3, momentum);
    y = apply(g, &op_reshape, &used, 1, channels);
    if (i == 0)
      statistic[i] = y;
  }
  int deviation = apply_1(g, &op_sqrt, apply_2(g, &op_add, y, graph_constant(g, 0.01, 0, NO_SPAN)));
  check(g, apply_2(g, &op_div, apply_2(g, &op_sub, x, statistic[0]), deviation));
  double **value = run_graph(g, numbers_for(g));
  for (int p = 0; p < g->params.n; p++) {
    const Param *buffer = &g->params.at[p];
    if (!buffer->buffer)
      continue;
    const Node *use = &g->nodes.at[buffer->uses.at[0]];
    for (int i = 0; i < 2; i++)
      expect_near(value[buffer->gradients.at[0]][i], 0.3 * value[use->in[1]][i], 1e-12, buffer->name, i);
  }
}

/* No loss needs the statistic's gradient, and the average has none. */
static void test_shares_need_no_gradient(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = new_input(g, "x", SHAPE(3));
  int statistic = apply(g, &op_sum_to, &x, 1, (Attr[MAX_ATTR]){{.n = 1, .list = (int64_t[]){3}}});
  int in[3] = {new_buffer(g, "kept", SHAPE(3)), statistic, statistic};
  weigh(g, apply_2(g, &op_add, x, apply(g, &op_running_average, in, 3, NULL)));
  weigh(g, new_param(g, "w", SHAPE(3)));
  autodiff(g);
  simplify(g);
  graph_verify(g);
  assert_true(g->params.at[0].gradients.at[0] >= 0);
  for (int i = g->n_forward; i < g->nodes.n; i++)
    assert_ptr_not_equal(g->nodes.at[g->nodes.at[i].serves].op, &op_add);
}

static void test_split_and_concat(void **state) {
  (void)state;
  for (int used = 1; used < 8; used++) { /* set of used parts, of three */
    Graph *g = new_graph();
    int x = operand(g, "x", true, SHAPE(2, 6)), parts[3], n = 0;
    int node = graph_node(g, &op_split, &x, 1, (Attr[MAX_ATTR]){{.number = 3}}, 0, NO_SPAN);
    for (int i = 0; i < 3; i++)
      if (used >> i & 1) {
        parts[n] = apply_1(g, &op_sin, graph_output(g, node, i));
        n++;
      }
    check(g, apply(g, &op_concat, parts, n, (Attr[MAX_ATTR]){{.number = 0}}));
  }
}

static void test_slices_of_one_value(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = operand(g, "x", true, SHAPE(2, 6));
  Attr first[MAX_ATTR] = {{.number = -1}, {.number = 0}, {.number = 2}};
  Attr rest[MAX_ATTR] = {{.number = -1}, {.number = 2}, {.number = 0}};
  int a = apply(g, &op_slice, &x, 1, first), b = apply(g, &op_slice, &x, 1, rest);
  check(g, apply(g, &op_concat, (int[]){apply_1(g, &op_neg, b), a}, 2, NULL));
  for (int i = 0; i < g->nodes.n; i++)
    assert_ptr_not_equal(g->nodes.at[i].op, &op_pad);
}

static void test_matmul(void **state) {
  (void)state;
  struct {
    Shape a, b;
    bool a_batched, b_batched;
  } cases[] = {
      {SHAPE(3), SHAPE(3, 2), true, false},           {SHAPE(4, 3), SHAPE(3, 2), true, false},
      {SHAPE(2, 4, 3), SHAPE(3, 2), true, false},     {SHAPE(4, 3), SHAPE(3, 2), false, false},
      {SHAPE(4, 3), SHAPE(3, 2), true, true},         {SHAPE(2, 4, 3), SHAPE(2, 3, 2), true, true},
      {SHAPE(2, 4, 3), SHAPE(2, 3, 2), false, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    Graph *g = new_graph();
    int a = operand(g, "a", cases[i].a_batched, cases[i].a), b = operand(g, "b", cases[i].b_batched, cases[i].b);
    check(g, apply_2(g, &op_matmul, a, b));
  }
}

static void test_matmul_with_a_transposed_weight(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = operand(g, "x", true, SHAPE(4, 3)), w = new_param(g, "w", SHAPE(2, 3));
  check(g, apply_2(g, &op_matmul, x, apply_1(g, &op_transpose, w)));
  for (int i = g->n_forward; i < g->nodes.n; i++)
    if (g->nodes.at[i].op == &op_matmul) /* dy @ w, not dy @ w.T.T */
      assert_int_equal(g->nodes.at[i].in[1], g->params.at[1].value);
}

/* GELU's gradient is merged into the product that yields it; without such a product it has its own nodes. */
static void test_matmul_gelu(void **state) {
  (void)state;
  for (int form = 0; form < 4; form++) {
    bool multiplied = form & 1, wide = form & 2;
    Graph *g = new_graph();
    int in[3] = {operand(g, "a", true, wide ? SHAPE(2, 4, 3) : SHAPE(4, 3)), new_param(g, "b", SHAPE(3, 5)),
                 new_param(g, "bias", SHAPE(5))};
    int y = apply(g, &op_matmul_gelu, in, 3, NULL), products = 0;
    check(g, multiplied ? apply_2(g, &op_matmul, y, new_param(g, "next", SHAPE(5, 2))) : apply_1(g, &op_sin, y));
    for (int i = g->n_forward; i < g->nodes.n; i++)
      products += g->nodes.at[i].op == &op_matmul_gelu_gradient;
    assert_int_equal(products, multiplied);
  }
}

/* clang-format off */
#define PAIR(a, b) {.n = 2, .list = (int64_t[]){a, b}}
#define BOTH(x) {.number = x}
/* clang-format on */

static void test_convolution(void **state) {
  (void)state;
  struct {
    Shape x, weight;
    Attr attr[MAX_ATTR];
  } cases[] = {
      {SHAPE(4, 5, 2), SHAPE(3, 2, 3, 3), {BOTH(1), BOTH(1), BOTH(1), {.number = 1}}},
      {SHAPE(5, 6, 1), SHAPE(2, 1, 2, 3), {PAIR(2, 3), PAIR(0, 2), BOTH(1), {.number = 1}}},
      {SHAPE(6, 5, 2), SHAPE(1, 2, 3, 2), {PAIR(1, 2), BOTH(1), PAIR(2, 3), {.number = 1}}},
      {SHAPE(3, 3, 4), SHAPE(6, 2, 2, 2), {BOTH(1), BOTH(0), BOTH(1), {.number = 2}}},
      {SHAPE(4, 3, 3), SHAPE(6, 1, 3, 3), {BOTH(2), BOTH(1), BOTH(1), {.number = 3}}},
      {SHAPE(3, 2, 3), SHAPE(2, 3, 1, 1), {BOTH(1), BOTH(0), BOTH(1), {.number = 1}}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int batched = 0; batched < 2; batched++) {
      Graph *g = new_graph();
      int in[] = {operand(g, "x", batched, cases[i].x), new_param(g, "weight", cases[i].weight)};
      check(g, apply(g, &op_convolution, in, 2, cases[i].attr));
    }
}

static void test_pooling(void **state) {
  (void)state;
  struct {
    const Op *op;
    Attr attr[MAX_ATTR];
    int64_t out[2];
  } cases[] = {
      {&op_max_pool, {BOTH(2), BOTH(0), BOTH(0), {.number = 0}}, {2, 3}},
      {&op_max_pool, {PAIR(3, 2), PAIR(2, 1), PAIR(1, 0), {.number = 0}}, {3, 6}},
      {&op_max_pool, {BOTH(2), BOTH(3), BOTH(1), {.number = 1}}, {2, 3}},
      {&op_average_pool, {BOTH(2), BOTH(0), BOTH(0), {.number = 0}, {.number = 1}}, {2, 3}},
      {&op_average_pool, {BOTH(3), BOTH(2), BOTH(1), {.number = 1}, {.number = 1}}, {3, 4}},
      {&op_average_pool, {BOTH(3), BOTH(2), BOTH(1), {.number = 1}, {.number = 0}}, {3, 4}},
      {&op_average_pool, {BOTH(2), PAIR(4, 2), BOTH(1), {.number = 1}, {.number = 1}}, {2, 4}},
      {&op_adaptive_average_pool, {BOTH(1)}, {1, 1}},
      {&op_adaptive_average_pool, {PAIR(3, 9)}, {3, 9}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int batched = 0; batched < 2; batched++) {
      Graph *g = new_graph();
      int x = operand(g, "x", batched, SHAPE(5, 7, 2));
      int y = apply(g, cases[i].op, &x, 1, cases[i].attr);
      for (int axis = 0; axis < 2; axis++)
        assert_int_equal(g->values.at[y].shape.dim[axis], cases[i].out[axis]);
      check(g, y);
    }
}

static void test_gather(void **state) {
  (void)state;
  Graph *g = new_graph();
  int tokens = new_tokens(g, "tokens", 5, SHAPE(2, 3));
  check(g, apply_2(g, &op_gather, new_param(g, "table", SHAPE(5, 4)), tokens));
}

/* The k largest of rows with equal elements, which differ by less than the differences. */
static void test_top_k(void **state) {
  (void)state;
  for (int64_t k = 1; k <= 5; k += 2)
    for (int batched = 0; batched < 2; batched++) {
      Graph *g = new_graph();
      int x = operand(g, "x", batched, SHAPE(2, 5));
      check(g, apply(g, &op_top_k, &x, 1, (Attr[MAX_ATTR]){{.number = (double)k}}));
    }
}

/* Scores with a bias, in groups. The bias gets no gradient, but what its indices were chosen less often than the mean. */
static void test_biased_top_k(void **state) {
  (void)state;
  for (int groups = 1; groups <= 3; groups += 2) {
    Graph *g = new_graph();
    Attr attr[MAX_ATTR] = {{.number = 2}, {.number = groups}, {.number = groups > 1 ? 2 : 1}, {.number = 0.5}};
    int in[2] = {new_buffer(g, "bias", SHAPE(6)), operand(g, "scores", true, SHAPE(4, 6))};
    int node = graph_node(g, &op_biased_top_k, in, 2, attr, 0, NO_SPAN);
    check(g, graph_output(g, node, 0));
    double **value = run_graph(g, numbers_for(g));
    const Param *bias = &g->params.at[0];
    assert_true(bias->buffer);
    const int indices = graph_output(g, node, 1);
    for (int i = 0; i < 6; i++) {
      int chosen = 0;
      for (int k = 0; k < BATCH * 8; k++)
        chosen += value[indices][k] == i;
      expect_near(value[bias->gradients.at[0]][i], BATCH * 8 - 6 * chosen, 0, "excess", i);
    }
  }
}

/* Experts from tokens or from the largest elements; rows for all experts of a position, and for each. */
static void test_expert_linear(void **state) {
  (void)state;
  for (int form = 0; form < 8; form++) {
    bool shared = form & 1, matrix = form & 2, chosen = form & 4;
    Graph *g = new_graph();
    Shape rows = matrix ? SHAPE(4, 3) : SHAPE(3), experts = matrix ? SHAPE(4, 2) : SHAPE(2);
    Shape each = matrix ? SHAPE(4, 2, 3) : SHAPE(2, 3), scores = matrix ? SHAPE(4, 5) : SHAPE(5);
    int in[3] = {operand(g, "x", true, shared ? rows : each), new_param(g, "weight", SHAPE(5, 4, 3)), 0};
    if (chosen) {
      int of[1] = {operand(g, "scores", true, scores)};
      int node = graph_node(g, &op_top_k, of, 1, (Attr[MAX_ATTR]){{.number = 2}}, 0, NO_SPAN);
      in[2] = graph_output(g, node, 1);
    } else {
      in[2] = new_tokens(g, "experts", 5, experts);
    }
    check(g, apply(g, &op_expert_linear, in, 3, NULL));
  }
}

/* Rows that find no room are dropped: capacities that drop most, some and no rows. */
static void test_capacity(void **state) {
  (void)state;
  static const double factors[] = {0.2, 0.8, 1.1, 100};
  for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
    for (int shared = 0; shared < 2; shared++) {
      Graph *g = new_graph();
      int tokens = new_tokens(g, "experts", 3, SHAPE(4, 2));
      Attr factor[MAX_ATTR] = {{.number = factors[i]}}, drops[MAX_ATTR] = {{.number = 1}};
      int kept = apply(g, &op_within_capacity, &tokens, 1, factor);
      assert_int_equal(g->values.at[kept].classes, 4);
      int in[3] = {operand(g, "x", true, shared ? SHAPE(4, 3) : SHAPE(4, 2, 3)),
                   new_param(g, "weight", SHAPE(3, 4, 3)), kept};
      check(g, apply(g, &op_expert_linear, in, 3, drops));
    }
}

/* Each expert has room for factor * rows / experts of a sample's rows, rounded up; 1.1 * 10 rounds to 11, not to 12. */
static void test_room(void **state) {
  (void)state;
  static const struct {
    double factor;
    int room;
  } cases[] = {{1.1, 11}, {1, 10}, {1.01, 11}, {0.01, 1}, {3, 20}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    Graph *g = new_graph();
    int tokens = new_tokens(g, "experts", 2, SHAPE(10, 2));
    Attr factor[MAX_ATTR] = {{.number = cases[i].factor}};
    int node = graph_node(g, &op_within_capacity, &tokens, 1, factor, 0, NO_SPAN);
    double experts[40] = {0}, kept[40];
    experts[3] = experts[25] = 1;
    op_within_capacity.evaluate(g, node, 2, (const double *const[]){experts}, (double *const[]){kept});
    for (int sample = 0; sample < 2; sample++) {
      int count = 0;
      for (int k = 0; k < 20; k++)
        count += kept[sample * 20 + k] == 0;
      assert_int_equal(count, cases[i].room < 19 ? cases[i].room : 19);
      assert_true(kept[sample ? 25 : 3] == 1);
    }
  }
}

static void test_expert_sum(void **state) {
  (void)state;
  for (int batched = 0; batched < 2; batched++) {
    Graph *g = new_graph();
    int y = operand(g, "y", batched, SHAPE(4, 2, 3)), weights = operand(g, "weights", batched, SHAPE(4, 2));
    check(g, apply_2(g, &op_expert_sum, y, weights));
  }
}

static void test_one_hot_picks_labels(void **state) {
  (void)state;
  Graph *g = new_graph();
  int labels = new_tokens(g, "labels", 4, SHAPE(2, 1)), x = operand(g, "x", true, SHAPE(2, 4));
  int hot = apply(g, &op_one_hot, &labels, 1, NULL);
  check(g, apply_1(g, &op_sum, apply_2(g, &op_mul, hot, x)));
}

static void test_detach_stops(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = operand(g, "x", true, SHAPE(3));
  weigh(g, apply_2(g, &op_mul, x, apply_1(g, &op_detach, x)));
  autodiff(g);
  Numbers n = numbers_for(g);
  double *before = gradient_of(g, run_graph(g, n), 0);
  for (int i = 0; i < 3; i++) {
    double expected = 0;
    for (int s = 0; s < BATCH; s++)
      expected += (n.input[0][s * 3 + i] + n.param[0][i]) * n.input[1][s * 3 + i];
    expect_near(before[i], expected, 1e-12, "x * detach(x)", i);
  }
  simplify(g);
  double *after = gradient_of(g, run_graph(g, n), 0);
  for (int i = 0; i < 3; i++)
    expect_near(after[i], before[i], 1e-12, "after simplify", i);
}

/* Runs last: checks that the tests above covered all operations. */
static void test_table_is_complete(void **state) {
  (void)state;
  const Op *const no_gradient[] = {&op_greater,
                                   &op_floor,
                                   &op_round,
                                   &op_rand_like,
                                   &op_randn_like,
                                   &op_equal,
                                   &op_one_hot,
                                   &op_detach,
                                   &op_weight_gradient,
                                   &op_weight_and_bias_gradient,
                                   &op_matmul_gelu_gradient,
                                   &op_convolution_backward,
                                   &op_convolution_weights,
                                   &op_max_pool_gradient,
                                   &op_average_pool_gradient,
                                   &op_adaptive_average_pool_gradient,
                                   &op_few_rows_matmul,
                                   &op_attention_gradient,
                                   &op_cached_attention,
                                   &op_keep,
                                   &op_cached_rows,
                                   &op_cached_lstm,
                                   &op_cached_scan,
                                   &op_lstm_gradient,
                                   &op_top_k_gradient,
                                   &op_within_capacity,
                                   &op_expert_linear_weights,
                                   &op_gather_gradient,
                                   &op_gather_part,
                                   &op_gather_gradient_part,
                                   &op_one_hot_part,
                                   &op_dropout_part,
                                   &op_all_reduce_max,
                                   &op_all_reduce,
                                   &op_all_gather,
                                   &op_reduce_scatter,
                                   &op_own_part,
                                   &op_summand,
                                   &op_own_columns};
  for (int k = 0; k < n_ops; k++) {
    const Op *op = all_ops[k];
    if (op == &op_step || op == &op_state || op == &op_recurrence)
      continue; /* marks of loops, which have no derivative of their own */
    if (op == &op_attention || op == &op_lstm || op == &op_scan)
      continue; /* in ops_sequences.c */
    bool exempt = op->kind == OP_SOURCE;
    for (size_t i = 0; i < sizeof no_gradient / sizeof no_gradient[0]; i++)
      exempt |= op == no_gradient[i];
    if (exempt == (op->derivative != NULL) || (!exempt && !differentiated[k]))
      fail_msg("the derivative of '%s' is missing, needless or untested", op->name);
    unsigned operands = (1u << (op->max_in < 0 ? op->min_in : op->max_in)) - 1;
    if (op->derivative && (has_gradient[k] ^ op->no_gradient) != operands && op->max_in >= 0)
      fail_msg("'%s' passes gradients to operands %#x and says that it passes none to %#x", op->name,
               has_gradient[k], op->no_gradient);
    bool random_or_token = op == &op_dropout || op == &op_one_hot || op == &op_rand_like || op == &op_randn_like;
    if (op->kind == OP_POINTWISE && (!op->expression || (!op->fold && !random_or_token && !op->meet)))
      fail_msg("'%s' is pointwise and lacks an expression or fold", op->name);
    if (op->kind != OP_POINTWISE && op->source == SOURCE_NONE && !op->evaluate && !op->meet)
      fail_msg("'%s' lacks evaluate", op->name);
    assert_non_null(op->shape);
    assert_non_null(op->cost);
    assert_non_null(op->signature);
    assert_ptr_equal(op_find(op->name), op);
  }
}

/* ---- mismatched shapes ---------------------------------------------------------------------------------- */

static void refuse(Graph *g, const Op *op, const int *in, int n_in, const Attr *attr) {
  int before = error_count(), nodes = g->nodes.n;
  assert_int_equal(graph_node(g, op, in, n_in, attr, 0, NO_SPAN), -1);
  assert_int_equal(error_count(), before + 1);
  assert_int_equal(g->nodes.n, nodes);
}

static void test_mistakes_are_diagnosed(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = new_input(g, "x", SHAPE(2, 3)), y = new_input(g, "y", SHAPE(2, 4)), w = new_param(g, "w", SHAPE(3, 4));
  int t = new_tokens(g, "t", 9, SHAPE(2)), head = new_input(g, "head", SHAPE(4, 2, 3));
  refuse(g, &op_add, (int[]){x, y}, 2, NULL);
  refuse(g, &op_add, (int[]){x, t}, 2, NULL);
  refuse(g, &op_add, (int[]){x}, 1, NULL);
  refuse(g, &op_matmul, (int[]){x, y}, 2, NULL);
  refuse(g, &op_matmul, (int[]){w, x}, 2, NULL);
  refuse(g, &op_matmul, (int[]){y, w}, 2, NULL);
  refuse(g, &op_sum, &x, 1, (Attr[MAX_ATTR]){{.number = 0}});
  refuse(g, &op_sum, &x, 1, (Attr[MAX_ATTR]){{.number = 2}});
  refuse(g, &op_reshape, &x, 1, (Attr[MAX_ATTR]){{.n = 2, .list = (int64_t[]){4, -1}}});
  refuse(g, &op_reshape, &x, 1, (Attr[MAX_ATTR]){{.n = 2, .list = (int64_t[]){-1, -1}}});
  refuse(g, &op_reshape, &x, 1, (Attr[MAX_ATTR]){{.n = 7, .list = (int64_t[]){1, 1, 1, 1, 1, 2, 3}}});
  refuse(g, &op_slice, &x, 1, (Attr[MAX_ATTR]){{.number = 1}, {.number = 2}, {.number = 5}});
  refuse(g, &op_slice, &x, 1, (Attr[MAX_ATTR]){{.number = 1}, {.number = 2}, {.number = 1}});
  refuse(g, &op_split, &x, 1, (Attr[MAX_ATTR]){{.number = 2}});
  refuse(g, &op_split, &x, 1, (Attr[MAX_ATTR]){{.number = 0}});
  refuse(g, &op_expand, &x, 1, (Attr[MAX_ATTR]){{.n = 1, .list = (int64_t[]){3}}});
  refuse(g, &op_concat, (int[]){x, y}, 2, (Attr[MAX_ATTR]){{.number = 0}});
  refuse(g, &op_concat, (int[]){x, w}, 2, (Attr[MAX_ATTR]){{.number = 0}});
  refuse(g, &op_pad, &x, 1, (Attr[MAX_ATTR]){{.number = 0}, {.number = -1}, {.number = 0}});
  refuse(g, &op_gather, (int[]){w, t}, 2, NULL);
  refuse(g, &op_gather, (int[]){x, t}, 2, NULL);
  refuse(g, &op_gather, (int[]){w, x}, 2, NULL);
  refuse(g, &op_one_hot, &t, 1, NULL);
  refuse(g, &op_top_k, &x, 1, (Attr[MAX_ATTR]){{.number = 0}});
  refuse(g, &op_top_k, &x, 1, (Attr[MAX_ATTR]){{.number = 4}});
  refuse(g, &op_top_k, &t, 1, (Attr[MAX_ATTR]){{.number = 1}});
  int matrices = new_param(g, "matrices", SHAPE(9, 4, 3)), few = new_param(g, "few", SHAPE(8, 4, 3));
  refuse(g, &op_expert_linear, (int[]){x, matrices, x}, 3, NULL);
  refuse(g, &op_expert_linear, (int[]){t, matrices, t}, 3, NULL);
  refuse(g, &op_expert_linear, (int[]){y, matrices, t}, 3, NULL);
  refuse(g, &op_expert_linear, (int[]){x, w, t}, 3, NULL);
  refuse(g, &op_expert_linear, (int[]){x, few, t}, 3, NULL);
  refuse(g, &op_expert_linear, (int[]){head, matrices, t}, 3, NULL);
  refuse(g, &op_expert_sum, (int[]){head, x}, 2, NULL);
  int bias = new_buffer(g, "bias", SHAPE(4)), scores = operand(g, "scores", true, SHAPE(2, 4));
  refuse(g, &op_biased_top_k, (int[]){head, scores}, 2,
         (Attr[MAX_ATTR]){{.number = 1}, {.number = 1}, {.number = 1}});
  refuse(g, &op_biased_top_k, (int[]){bias, x}, 2, (Attr[MAX_ATTR]){{.number = 1}, {.number = 1}, {.number = 1}});
  static const int wrong[][3] = {{0, 1, 1}, {5, 1, 1}, {1, 3, 1}, {1, 4, 1}, {1, 2, 3}, {3, 2, 1}, {1, 0, 1}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    refuse(g, &op_biased_top_k, (int[]){bias, scores}, 2,
           (Attr[MAX_ATTR]){{.number = wrong[i][0]}, {.number = wrong[i][1]}, {.number = wrong[i][2]}});
  refuse(g, &op_within_capacity, &x, 1, (Attr[MAX_ATTR]){{.number = 1}});
  refuse(g, &op_within_capacity, &t, 1, (Attr[MAX_ATTR]){{.number = 0}});
  refuse(g, &op_attention, (int[]){x, x, x}, 3, NULL);
  refuse(g, &op_attention, (int[]){head, head, x}, 3, NULL);
  refuse(g, &op_attention, (int[]){head, head, head, x}, 4, NULL);
  int numbers = new_tokens(g, "numbers", 9, SHAPE(3)), mask = new_input(g, "mask", SHAPE(2, 2));
  int longer_keys = new_input(g, "longer_keys", SHAPE(4, 3, 3));
  refuse(g, &op_attention, (int[]){head, head, head, numbers}, 4, NULL);
  refuse(g, &op_attention, (int[]){head, head, head, t, t}, 5, NULL);
  refuse(g, &op_attention, (int[]){head, head, head, t, mask}, 5, NULL);
  refuse(g, &op_attention, (int[]){head, head, head, mask, mask}, 5, NULL);
  refuse(g, &op_attention, (int[]){head, longer_keys, longer_keys, t}, 4, NULL);
  int flat = new_input(g, "flat", SHAPE(1, 3, 3)), few_sinks = new_input(g, "few_sinks", SHAPE(2));
  refuse(g, &op_attention, (int[]){head, head, head, flat}, 4, NULL);
  refuse(g, &op_attention, (int[]){head, head, head, few_sinks}, 4, NULL);
  refuse(g, &op_attention, (int[]){head, head, head, mask}, 4,
         (Attr[MAX_ATTR]){[5] = {.number = 3}}); /* a bias by name */
  for (int bad = 0; bad < 3; bad++)
    refuse(g, &op_attention, (int[]){head, bad == 2 ? longer_keys : head, bad == 2 ? longer_keys : head}, 3,
           (Attr[MAX_ATTR]){{0}, {0}, {.number = bad == 0 ? -1 : bad == 2}, {.number = bad == 1 ? -1 : 0}});
  int gates = new_input(g, "gates", SHAPE(5, 8)), hidden = new_param(g, "hidden", SHAPE(8, 2));
  int state_2 = new_input(g, "state", SHAPE(2)), longer = new_tokens(g, "longer", 7, (Shape){0});
  refuse(g, &op_lstm, (int[]){x, hidden}, 2, NULL);
  refuse(g, &op_lstm, (int[]){gates, w}, 2, NULL);
  refuse(g, &op_lstm, (int[]){gates, hidden, state_2}, 3, NULL);
  refuse(g, &op_lstm, (int[]){gates, hidden, state_2, x}, 4, NULL);
  refuse(g, &op_lstm, (int[]){gates, hidden, state_2, longer}, 4, NULL);
  refuse(g, &op_lstm, (int[]){gates, hidden, t}, 3, NULL);
  refuse(g, &op_lstm, (int[]){gates, hidden, longer}, 3, NULL);
  int image = new_input(g, "image", SHAPE(5, 6, 4)), kernel = new_param(g, "kernel", SHAPE(6, 4, 3, 3));
  int tall = new_param(g, "tall", SHAPE(6, 4, 6, 3)), half = new_param(g, "half", SHAPE(6, 2, 3, 3));
  refuse(g, &op_convolution, (int[]){x, kernel}, 2, NULL);
  refuse(g, &op_convolution, (int[]){image, w}, 2, NULL);
  refuse(g, &op_convolution, (int[]){image, half}, 2, NULL);
  refuse(g, &op_convolution, (int[]){image, tall}, 2, NULL);
  Attr no_stride[MAX_ATTR] = {BOTH(0), BOTH(0), BOTH(1), {.number = 1}};
  Attr too_dilated[MAX_ATTR] = {BOTH(1), BOTH(0), BOTH(3), {.number = 1}};
  refuse(g, &op_convolution, (int[]){image, kernel}, 2, no_stride);
  refuse(g, &op_convolution, (int[]){image, kernel}, 2, too_dilated);
  for (int groups = 0; groups < 5; groups++)
    if (groups != 2)
      refuse(g, &op_convolution, (int[]){image, half}, 2,
             (Attr[MAX_ATTR]){BOTH(1), BOTH(0), BOTH(1), {.number = groups}});
  refuse(g, &op_max_pool, &x, 1, (Attr[MAX_ATTR]){BOTH(2), BOTH(0), BOTH(0), {.number = 0}});
  refuse(g, &op_max_pool, &image, 1, (Attr[MAX_ATTR]){BOTH(2), BOTH(0), BOTH(2), {.number = 0}});
  refuse(g, &op_max_pool, &image, 1, (Attr[MAX_ATTR]){PAIR(6, 2), BOTH(0), BOTH(0), {.number = 0}});
  refuse(g, &op_adaptive_average_pool, &image, 1, (Attr[MAX_ATTR]){BOTH(0)});
  refuse(g, &op_dropout, &x, 1, (Attr[MAX_ATTR]){{.number = 1}, {0}});
  refuse(g, &op_dropout, &w, 1, (Attr[MAX_ATTR]){{.number = 0.5}, {0}});
  refuse(g, &op_sum_to, &x, 1, (Attr[MAX_ATTR]){{.n = 1, .list = (int64_t[]){2}}});
  refuse(g, &op_sum_to, &x, 1, (Attr[MAX_ATTR]){{.n = 3, .list = (int64_t[]){2, 2, 3}}});
  refuse(g, &op_sum_to, &w, 1, (Attr[MAX_ATTR]){{.n = 2, .list = (int64_t[]){3, 4}}, {.number = true}});
  int kept = new_buffer(g, "kept", SHAPE(3, 4)), wide = new_param(g, "wide", SHAPE(4));
  refuse(g, &op_running_average, (int[]){w, w, w}, 3, (Attr[MAX_ATTR]){{.number = 0.1}});
  refuse(g, &op_running_average, (int[]){kept, wide, w}, 3, (Attr[MAX_ATTR]){{.number = 0.1}});
  refuse(g, &op_running_average, (int[]){kept, w, y}, 3, (Attr[MAX_ATTR]){{.number = 0.1}});
  refuse(g, &op_running_average, (int[]){kept, w, w}, 3, (Attr[MAX_ATTR]){{.number = 1.5}});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_functions),
      cmocka_unit_test(test_relu_and_abs),
      cmocka_unit_test(test_arithmetic_broadcasts),
      cmocka_unit_test(test_same_operand_twice),
      cmocka_unit_test(test_select),
      cmocka_unit_test(test_ties),
      cmocka_unit_test(test_views),
      cmocka_unit_test(test_expand_axes),
      cmocka_unit_test(test_sum_to),
      cmocka_unit_test(test_running_averages),
      cmocka_unit_test(test_shares_need_no_gradient),
      cmocka_unit_test(test_split_and_concat),
      cmocka_unit_test(test_slices_of_one_value),
      cmocka_unit_test(test_matmul),
      cmocka_unit_test(test_matmul_with_a_transposed_weight),
      cmocka_unit_test(test_matmul_gelu),
      cmocka_unit_test(test_convolution),
      cmocka_unit_test(test_pooling),
      cmocka_unit_test(test_gather),
      cmocka_unit_test(test_top_k),
      cmocka_unit_test(test_biased_top_k),
      cmocka_unit_test(test_expert_linear),
      cmocka_unit_test(test_capacity),
      cmocka_unit_test(test_room),
      cmocka_unit_test(test_expert_sum),
      cmocka_unit_test(test_one_hot_picks_labels),
      cmocka_unit_test(test_detach_stops),
      cmocka_unit_test(test_table_is_complete),
      cmocka_unit_test(test_mistakes_are_diagnosed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
