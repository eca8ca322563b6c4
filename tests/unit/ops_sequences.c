/* Operations over sequences: derivatives of attention, LSTMs and loops over time against finite differences; steps of
 * generating programs against whole sequences. */
#include "derivatives.h"
#include "ops/scan.h"

static void test_attention(void **state) {
  (void)state;
  struct {
    Shape q, k;
    double causal, scale;
  } cases[] = {
      {SHAPE(2, 4, 3), SHAPE(2, 4, 3), 1, 0},
      {SHAPE(2, 4, 3), SHAPE(2, 5, 3), 0, 0},
      {SHAPE(4, 3, 2), SHAPE(2, 3, 2), 1, 0.8},
      {SHAPE(4, 3, 2), SHAPE(1, 3, 2), 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    Graph *g = new_graph();
    int in[3] = {operand(g, "q", true, cases[i].q), operand(g, "k", true, cases[i].k),
                 operand(g, "v", true, cases[i].k)};
    check(g, apply(g, &op_attention, in, 3,
                   (Attr[MAX_ATTR]){{.number = cases[i].causal}, {.number = cases[i].scale}}));
  }
}

/* Windows, capped scores and documents, alone and together, with a mask. */
static void test_ranges_of_attention(void **state) {
  (void)state;
  for (int kind = 0; kind < 32; kind++) {
    const bool causal = kind & 1, windowed = kind & 2, capped = kind & 4, parted = kind & 8, masked = kind & 16;
    Graph *g = new_graph();
    int in[5] = {operand(g, "q", true, SHAPE(2, 5, 2)), operand(g, "k", true, SHAPE(1, 5, 2)),
                 operand(g, "v", true, SHAPE(1, 5, 2))},
        n = 3;
    if (masked)
      in[n++] = new_input(g, "m", SHAPE(5, 5));
    if (parted)
      in[n++] = new_tokens(g, "documents", 2, SHAPE(5));
    check(g, apply(g, &op_attention, in, n,
                   (Attr[MAX_ATTR]){{.number = causal},
                                    {.number = 0.8},
                                    {.number = windowed ? 3 : 0},
                                    {.number = capped ? 0.7 : 0}}));
  }
}

/* A bias of scores or by distance, of each sample or shared, and sinks, alone and together, beside a mask, documents and a
 * cap; values larger than keys. */
static void test_biased_attention(void **state) {
  (void)state;
  for (int kind = 0; kind < 48; kind++) {
    const bool by_distance = kind & 1, batched = kind & 2, general = kind & 4, causal = kind & 8;
    const bool biased = kind / 16 != 1, sunk = kind / 16 != 2;
    const int64_t keys = causal || general ? 4 : 3;
    Graph *g = new_graph();
    int n = 3, names = 0, unit = general ? OPTIONAL_NAMES * OPTIONAL_NAMES : 1;
    int in[7] = {operand(g, "q", true, SHAPE(4, 4, 2)), operand(g, "k", true, SHAPE(2, keys, 2)),
                 operand(g, "v", true, SHAPE(2, keys, 3))};
    if (general)
      in[n++] = new_input(g, "m", SHAPE(4, keys));
    if (general)
      in[n++] = new_tokens(g, "documents", 2, SHAPE(4));
    if (biased) {
      in[n++] = operand(g, "bias", batched, by_distance ? SHAPE(4, 1, keys + 3) : SHAPE(4, 4, keys));
      names += 3 * unit, unit *= OPTIONAL_NAMES;
    }
    if (sunk) {
      in[n++] = operand(g, "sinks", batched, SHAPE(4));
      names += 4 * unit;
    }
    check(g, apply(g, &op_attention, in, n,
                   (Attr[MAX_ATTR]){
                       {.number = causal}, {0}, {0}, {.number = general ? 0.7 : 0}, {0}, {.number = names}}));
  }
}

/* x where `seen` is large, else a number that masks. */
static int hide(Graph *g, int x, int seen) {
  int large = apply_2(g, &op_greater, seen, graph_constant(g, 0.8, 0, NO_SPAN));
  return apply(g, &op_select, (int[]){large, x, graph_constant(g, -1e9, 0, NO_SPAN)}, 3, NULL);
}

/* Masks per sample or shared, per row or shared; some keys are masked, and in some rows all keys. */
static void test_masked_attention(void **state) {
  (void)state;
  for (int kind = 0; kind < 8; kind++) {
    bool batched = kind & 1, rows = kind & 2, causal = kind & 4;
    Graph *g = new_graph();
    int64_t keys = causal ? 4 : 5;
    Attr count[MAX_ATTR] = {{.number = (double)keys}}, row[MAX_ATTR] = {{.n = 2, .list = (int64_t[]){1, keys}}};
    int mask =
        batched ? new_input(g, "m", SHAPE(1, keys)) : apply_1(g, &op_sin, apply(g, &op_iota, NULL, 0, count));
    mask = hide(g, apply(g, &op_reshape, &mask, 1, row), mask);
    if (rows)
      mask = hide(g, mask, new_input(g, "seen", SHAPE(4, 1)));
    int in[4] = {operand(g, "q", true, SHAPE(4, 4, 3)), operand(g, "k", true, SHAPE(2, keys, 3)),
                 operand(g, "v", true, SHAPE(2, keys, 3)), mask};
    check(g, apply(g, &op_attention, in, 4, (Attr[MAX_ATTR]){{.number = causal}, {0}}));
  }
}

/* Every form: with or without initial state, lengths and reversal, and with gradients of any set of outputs. */
static void test_lstm(void **state) {
  (void)state;
  for (int form = 0; form < 8; form++)
    for (int used = 1; used < 8; used++) {
      Graph *g = new_graph();
      int in[5] = {operand(g, "gates", true, SHAPE(3, 8)), new_param(g, "w", SHAPE(8, 2))}, n = 2;
      if (form & 1) {
        in[n++] = operand(g, "h0", true, SHAPE(2));
        in[n++] = operand(g, "c0", true, SHAPE(2));
      }
      if (form & 2)
        in[n++] = new_tokens(g, "lengths", 4, (Shape){0});
      int node = graph_node(g, &op_lstm, in, n, (Attr[MAX_ATTR]){{.number = form >> 2}}, 0, NO_SPAN), y = -1;
      assert_true(node >= 0);
      for (int i = 0; i < 3; i++)
        if (used >> i & 1) {
          int scaled = apply_1(g, &op_sin, graph_output(g, node, i));
          y = y < 0 ? scaled : apply_2(g, &op_add, y, scaled);
        }
      check(g, y);
    }
}

/* The input of a body that stands for a value of the scan's graph. */
static int captured(Graph *body, const Graph *g, int value) {
  return graph_operand(body, g->values.at[value].name, &g->values.at[value]);
}

/* A step with two states: h' = sin(x_t + h w + h c sin(b)), s' = s + h' x_t + v_t, where v has a row for each step that
 * all samples share; its result is h' + s. Weights leave the loop; b and c do not. */
static Graph *make_body(const Graph *g, const int *in, int64_t steps, bool reverse, bool zeros) {
  const int first = zeros ? 2 : 4;
  Graph *body =
      body_new(g, (ScanLoop){.steps = steps, .reverse = reverse, .scanned = 2, .states = 2, .stacked = 1});
  body->loop.zeros = zeros ? 3 : 0;
  graph_scope(body, -1, intern(""), intern("test"), NO_SPAN);
  const Value state = {.type = TYPE_F32, .shape = {.batched = true, .rank = 1, .dim = {2}}, .span = NO_SPAN};
  int x = captured(body, g, in[0]), v = captured(body, g, in[1]);
  int h = graph_operand(body, intern("h"), &state);
  int s = graph_operand(body, intern("s"), &state);
  int w = captured(body, g, in[first]), b = captured(body, g, in[first + 1]), c = captured(body, g, in[first + 2]);
  x = apply_1(body, &op_step, x);
  int product = apply_2(body, &op_matmul, h, apply_1(body, &op_transpose, w));
  int rest = apply_2(body, &op_mul, apply_2(body, &op_mul, h, c), apply_1(body, &op_sin, b));
  int next = apply_1(body, &op_sin, apply_2(body, &op_add, apply_2(body, &op_add, x, product), rest));
  int sum = apply_2(body, &op_add, s, apply_2(body, &op_mul, next, x));
  sum = apply_2(body, &op_add, sum, apply_1(body, &op_step, v));
  graph_output_figure(body, intern("y"), apply_2(body, &op_add, next, s), NO_SPAN);
  graph_output_figure(body, intern("h"), next, NO_SPAN);
  graph_output_figure(body, intern("s"), sum, NO_SPAN);
  return body;
}

/* Every form: in both directions, from zeros or initial states, one step and several, with gradients of any set of
 * results. */
static void test_scan(void **state) {
  (void)state;
  for (int form = 0; form < 8; form++)
    for (int used = 1; used < 8; used++) {
      const int64_t steps = form & 4 ? 1 : 3;
      Graph *g = new_graph();
      int in[7] = {operand(g, "x", true, SHAPE(steps, 2)), new_param(g, "v", SHAPE(steps, 2))}, n = 2, y = -1;
      if (form & 1) {
        in[n++] = operand(g, "h0", true, SHAPE(2));
        in[n++] = operand(g, "s0", true, SHAPE(2));
      }
      in[n++] = new_param(g, "w", SHAPE(2, 2));
      in[n++] = new_param(g, "b", SHAPE(2));
      in[n++] = operand(g, "c", true, SHAPE(2));
      Graph *body = make_body(g, in, steps, form & 2, !(form & 1));
      int node = graph_scan(g, body, in, n, 0, NO_SPAN, -1);
      assert_true(node >= 0);
      for (int i = 0; i < 3; i++)
        if (used >> i & 1) {
          int scaled = apply_1(g, &op_sin, graph_output(g, node, i));
          y = y < 0 ? scaled : apply_2(g, &op_add, y, scaled);
        }
      check(g, y);
    }
}

/* h' = detach(h) h + x_t: only the factor h passes a gradient. */
static void test_detach_in_a_body(void **state) {
  (void)state;
  const int64_t steps = 3;
  Graph *g = new_graph();
  const int x = operand(g, "x", true, SHAPE(steps, 1));
  Graph *body = body_new(g, (ScanLoop){.steps = steps, .scanned = 1, .states = 1, .stacked = 0, .zeros = 1});
  graph_scope(body, -1, intern(""), intern("test"), NO_SPAN);
  const Value like = {.type = TYPE_F32, .shape = {.batched = true, .rank = 1, .dim = {1}}, .span = NO_SPAN};
  const int rows = captured(body, g, x), h = graph_operand(body, intern("h"), &like);
  const int product = apply_2(body, &op_mul, apply_1(body, &op_detach, h), h);
  graph_output_figure(body, intern("h"), apply_2(body, &op_add, product, apply_1(body, &op_step, rows)), NO_SPAN);
  simplify_body(body);
  const int node = graph_scan(g, body, &x, 1, 0, NO_SPAN, -1);
  weigh(g, graph_output(g, node, 0));
  autodiff(g);
  simplify(g);
  Numbers n = numbers_for(g);
  const double *found = gradient_of(g, run_graph(g, n), 0);
  double expected[3] = {0};
  for (int s = 0; s < BATCH; s++) {
    double before = 0, each[3], d = n.input[1][s];
    for (int t = 0; t < steps; t++) {
      each[t] = before;
      before = before * before + n.input[0][s * steps + t] + n.param[0][t];
    }
    for (int t = (int)steps - 1; t >= 0; t--) {
      expected[t] += d;
      d *= each[t];
    }
  }
  for (int t = 0; t < steps; t++)
    expect_near(found[t], expected[t], 1e-12, "detach in a body", t);
}

/* Rows of two sequences, mixed, some unused: a step of each gives what the scan gives for that position. */
static void test_cached_scan(void **state) {
  (void)state;
  enum { STEPS = 4, ROWS = 9 };
  const double sequence[ROWS] = {1, 0, 0, 2, 1, 0, 1, 1, 0}, position[ROWS] = {0, 0, 1, 0, 1, 2, 2, 3, 3};
  Graph *g = new_graph();
  int in[7] = {new_input(g, "x", SHAPE(STEPS, 2)), new_param(g, "v", SHAPE(STEPS, 2)),
               new_param(g, "w", SHAPE(2, 2)), new_param(g, "b", SHAPE(2)), new_param(g, "c", SHAPE(2))};
  Graph *body = make_body(g, in, STEPS, false, true);
  const int node = graph_scan(g, body, in, 5, 0, NO_SPAN, -1), axis[] = {0, -1, -1, -1, -1};
  Decoded to = {0};
  assert_int_equal(op_scan.decode(g, node, axis, STEPS, &to), 0);
  assert_true(to.op == &op_cached_scan && to.rows == 2);
  to.attr[3].number = 2;
  Graph *one = new_graph();
  one->bodies = g->bodies;
  int from[7] = {new_input(one, "x", SHAPE(1, 2)),        new_input(one, "v", SHAPE(1, 2)),
                 new_param(one, "w", SHAPE(2, 2)),        new_param(one, "b", SHAPE(2)),
                 new_param(one, "c", SHAPE(2)),           new_tokens(one, "position", STEPS, SHAPE(1)),
                 new_tokens(one, "sequence", 3, SHAPE(1))};
  const int step = graph_node(one, &op_cached_scan, from, 7, to.attr, 0, NO_SPAN);
  assert_true(step >= 0);

  double x[2][STEPS][2], v[STEPS][2], w[4] = {0.3, -0.5, 0.7, 0.2}, b[2] = {0.4, 0.9}, c[2] = {-0.6, 0.8};
  for (int i = 0; i < 2 * STEPS * 2; i++)
    (&x[0][0][0])[i] = sin(i + 1), (&v[0][0])[i % (STEPS * 2)] = cos(i);
  double whole_y[2][STEPS][2], whole_h[2][2], whole_s[2][2];
  op_scan.evaluate(g, node, 2, (const double *[]){&x[0][0][0], &v[0][0], w, b, c},
                   (double *[]){&whole_y[0][0][0], &whole_h[0][0], &whole_s[0][0]});
  double x_rows[ROWS][2], v_rows[ROWS][2], y[ROWS][2], h[2][2] = {{9, 9}, {9, 9}}, s[2][2] = {{9, 9}, {9, 9}};
  for (int r = 0; r < ROWS; r++) {
    memcpy(x_rows[r], x[(int)sequence[r] % 2][(int)position[r]], sizeof x_rows[r]);
    memcpy(v_rows[r], v[(int)position[r]], sizeof v_rows[r]);
  }
  for (int r = 0; r < ROWS; r += 3) /* in three calls, which keep the states */
    op_cached_scan.evaluate(one, step, 3,
                            (const double *[]){x_rows[r], v_rows[r], w, b, c, &position[r], &sequence[r]},
                            (double *[]){y[r], &h[0][0], &s[0][0]});
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < 2 && sequence[r] < 2; i++)
      expect_near(y[r][i], whole_y[(int)sequence[r]][(int)position[r]][i], 1e-12, "a row", r);
  for (int i = 0; i < 4; i++) {
    expect_near((&h[0][0])[i], (&whole_h[0][0])[i], 1e-12, "the kept state h", i);
    expect_near((&s[0][0])[i], (&whole_s[0][0])[i], 1e-12, "the kept state s", i);
  }
}

/* Runs last. */
static void test_all_are_differentiated(void **state) {
  (void)state;
  const Op *const ops[] = {&op_attention, &op_lstm, &op_scan};
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
    const unsigned operands = (1u << (ops[i]->max_in < 0 ? ops[i]->min_in : ops[i]->max_in)) - 1;
    assert_true(differentiated[index_of(ops[i])]);
    if (ops[i]->max_in >= 0)
      assert_int_equal(has_gradient[index_of(ops[i])] ^ ops[i]->no_gradient, operands);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_attention),
      cmocka_unit_test(test_masked_attention),
      cmocka_unit_test(test_ranges_of_attention),
      cmocka_unit_test(test_biased_attention),
      cmocka_unit_test(test_lstm),
      cmocka_unit_test(test_scan),
      cmocka_unit_test(test_detach_in_a_body),
      cmocka_unit_test(test_cached_scan),
      cmocka_unit_test(test_all_are_differentiated),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
