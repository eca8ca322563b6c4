/* Dumps after any pass read back equal; other texts are refused; shapes and runs. */
#include "network.h"
#include "optimizers/lr_schedule.h"

static void expect_same_text(const Graph *g) {
  char *text = dump_of(g);
  Graph *again = graph_read("test.graph", text);
  assert_non_null(again);
  graph_verify(again);
  assert_string_equal(dump_of(again), text);
  assert_ptr_equal(again->name, g->name);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *a = &g->nodes.at[i], *b = &again->nodes.at[i];
    assert_ptr_equal(a->op, b->op);
    assert_int_equal(a->serves, b->serves);
    for (int k = 0; k < MAX_ATTR && a->op->attr[k].name; k++)
      assert_true(a->attr[k].number == b->attr[k].number && a->attr[k].text == b->attr[k].text);
  }
}

static void test_dumps_read_back(void **state) {
  (void)state;
  Graph *g = network(2, 0.3);
  g->train = (Train){.batch = 12,
                     .optimizer = &optimizer_adamw,
                     .lr = 1.0 / 3,
                     .number = {0.9, 0.1, 1e-8},
                     .decay_all = true,
                     .lr_schedule = lr_schedule_find("cosine_restarts"),
                     .lr_number = {5000, 2, 1.0 / 7, 100},
                     .clip_norm = 0.1,
                     .pipeline = intern("2bw"),
                     .span = {-1, 0, 0, 0, 0},
                     .pipeline_span = {-1, 0, 0, 0, 0}};
  g->params.at[0].init = INIT_NORMAL;
  g->params.at[0].init_value = 0.02;
  g->params.at[1].stored_in_out = true;
  int loss = g->figures.at[0].value;
  graph_metric(g, intern("perplexity"), intern("exp"), loss, NO_SPAN);
  graph_metric(g, intern("entropy"), NULL, loss, NO_SPAN);
  expect_same_text(g);
  autodiff(g);
  expect_same_text(g);
  simplify(g);
  expect_same_text(g);
}

static void test_dumps_keep_buffers(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = operand(g, "x", true, SHAPE(3));
  int mean = apply(g, &op_sum_to, &x, 1, (Attr[MAX_ATTR]){{.n = 1, .list = (int64_t[]){3}}});
  int in[3] = {new_buffer(g, "kept", SHAPE(3)), mean, mean};
  weigh(g, apply_2(g, &op_sub, x, apply(g, &op_running_average, in, 3, (Attr[MAX_ATTR]){{.number = 0.2}})));
  for (int i = 0; i < 2; i++) {
    expect_same_text(g);
    Graph *again = graph_read("test.graph", dump_of(g));
    assert_true(again->params.at[1].buffer && !again->params.at[0].buffer);
    autodiff(g);
  }
}

static void test_dumps_keep_spans_and_odd_names(void **state) {
  (void)state;
  Graph *g = graph_new(intern("a \"quoted\"\\\nname"));
  g->file = intern("dir/x.pdm");
  int file = source_add("dir/x.pdm", "model\n");
  Span span = {file, 1, 2, 1, 5};
  graph_scope(g, -1, intern(""), intern("m"), span);
  int x = graph_input(g, intern("x"), true, TYPE_TOKEN, 9, (Shape){.batched = true, .rank = 1, .dim = {4}}, span);
  assert_int_equal(x, 0);
  g->values.at[0].span = (Span){file, 1, 1, 1, 3};
  g->train.pipeline = intern("flush");
  g->train.span = span;
  char *text = dump_of(g);
  Graph *again = graph_read("x.graph", text);
  assert_non_null(again);
  assert_ptr_equal(again->name, g->name);
  assert_int_equal(again->values.at[0].span.end_column, 3);
  assert_int_equal(again->nodes.at[0].span.end_column, 5);
  assert_string_equal(source_path(again->nodes.at[0].span.file), "dir/x.pdm");
  assert_string_equal(dump_of(again), text);
}

static int add_input(Graph *g, const char *name, Type type, Shape shape, OriginKind origin, int from, int n) {
  int at = graph_input(g, intern(name), false, type, type == TYPE_TOKEN ? 9 : 0, shape, (Span){-1, 0, 0, 0, 0});
  Input *in = &g->inputs.at[at];
  in->origin = origin;
  in->from = from;
  for (int i = 0; i < n; i++)
    push(&in->numbers, i + 1.0 / 3);
  return at;
}

static void test_dumps_keep_where_inputs_come_from(void **state) {
  (void)state;
  Graph *g = new_graph();
  Shape sequence = {.batched = true, .rank = 1, .dim = {4}},
        image = {.batched = true, .rank = 3, .dim = {2, 4, 4}};
  int tokens = add_input(g, "tokens", TYPE_TOKEN, sequence, ORIGIN_FILE, -1, 0);
  int masked = add_input(g, "masked", TYPE_TOKEN, sequence, ORIGIN_MASKED, tokens, 4);
  add_input(g, "chosen", TYPE_F32, sequence, ORIGIN_CHOSEN, masked, 0);
  add_input(g, "image", TYPE_F32, image, ORIGIN_IMAGE, -1, 4);
  Graph *again = graph_read("x.graph", dump_of(g));
  assert_non_null(again);
  graph_verify(again);
  assert_string_equal(dump_of(again), dump_of(g));
  for (int i = 0; i < g->inputs.n; i++) {
    const Input *a = &g->inputs.at[i], *b = &again->inputs.at[i];
    assert_true(a->origin == b->origin && a->from == b->from && a->numbers.n == b->numbers.n);
    for (int k = 0; k < a->numbers.n; k++)
      assert_true(a->numbers.at[k] == b->numbers.at[k]);
  }
}

/* Every prefix, and every omission of a line, gives a diagnostic or a graph, never a crash. */
static void test_damaged_dumps_are_told(void **state) {
  (void)state;
  Graph *g = new_graph();
  weigh(g, apply_2(g, &op_mul, operand(g, "x", true, SHAPE(2, 3)), new_param(g, "w", SHAPE(3))));
  graph_metric(g, intern("size"), intern("sqrt"), g->figures.at[0].value, NO_SPAN);
  char *text = dump_of(g);
  size_t length = strlen(text);
  for (size_t n = 0; n + 1 < length; n++) {
    char *part = alloc_copy(text, length + 1);
    part[n] = 0;
    int before = error_count();
    assert_null(graph_read("part", part));
    assert_int_equal(error_count(), before + 1);
  }
  for (size_t n = 0; n < length; n++) {
    char *part = alloc_copy(text, length + 1);
    part[n] = '?';
    int before = error_count();
    if (!graph_read("part", part))
      assert_int_equal(error_count(), before + 1);
  }
}

static void test_shapes(void **state) {
  (void)state;
  Shape s = SHAPE(2, 3, 4), scalar = {0};
  assert_string_equal(shape_text(&s), "[2, 3, 4]");
  assert_string_equal(shape_text(&scalar), "[]");
  assert_int_equal(shape_elements(&s), 24);
  assert_int_equal(shape_elements(&scalar), 1);
  Shape t = s;
  assert_true(shape_equal(&s, &t));
  t.batched = true;
  assert_false(shape_equal(&s, &t));
}

static void test_runs_change_with_the_scope(void **state) {
  (void)state;
  Graph *g = network(2, 0);
  autodiff(g);
  int *run = graph_runs(g);
  for (int i = 1; i < g->n_forward; i++)
    assert_int_equal(run[i] - run[i - 1], g->nodes.at[i].scope != g->nodes.at[i - 1].scope);
  for (int i = g->n_forward; i < g->nodes.n; i++)
    assert_int_equal(run[i], run[g->nodes.at[i].serves]);
}

static void test_a_node_that_reads_a_parameter_twice_is_one_use(void **state) {
  (void)state;
  Graph *g = new_graph();
  int w = new_param(g, "w", SHAPE(3));
  apply_2(g, &op_mul, w, w);
  apply_1(g, &op_neg, w);
  assert_int_equal(g->params.at[0].uses.n, 2);
}

static void test_random_nodes_have_keys_of_their_own(void **state) {
  (void)state;
  Graph *g = network(2, 0.5);
  autodiff(g);
  int forward = 0, backward = 0;
  for (int i = 0; i < g->nodes.n; i++) {
    if (g->nodes.at[i].op != &op_dropout)
      continue;
    if (g->nodes.at[i].serves >= 0) {
      assert_true(node_key(&g->nodes.at[i]) == node_key(&g->nodes.at[g->nodes.at[i].serves]));
      backward++;
      continue;
    }
    for (int k = 0; k < i; k++)
      if (g->nodes.at[k].op == &op_dropout)
        assert_true(node_key(&g->nodes.at[i]) != node_key(&g->nodes.at[k]));
    forward++;
  }
  assert_int_equal(forward, 5);
  assert_int_equal(backward, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dumps_read_back),
      cmocka_unit_test(test_dumps_keep_buffers),
      cmocka_unit_test(test_dumps_keep_spans_and_odd_names),
      cmocka_unit_test(test_dumps_keep_where_inputs_come_from),
      cmocka_unit_test(test_damaged_dumps_are_told),
      cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_runs_change_with_the_scope),
      cmocka_unit_test(test_a_node_that_reads_a_parameter_twice_is_one_use),
      cmocka_unit_test(test_random_nodes_have_keys_of_their_own),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
