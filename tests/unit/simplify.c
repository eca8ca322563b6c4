/* Simplify keeps every number and removes all removable nodes. Values that may not cross a cut do not cross, and
 * the gradients that cross back are complete. */
#include "network.h"

static void expect_same_numbers(const Graph *before, const Graph *after) {
  Numbers n = numbers_for(before);
  double **a = run_graph(before, n), **b = run_graph(after, n);
  expect_near(interpret_loss(after, BATCH, b), interpret_loss(before, BATCH, a), 1e-12, "loss", 0);
  for (int p = 0; p < before->params.n; p++) {
    double *x = gradient_of(before, a, p), *y = gradient_of(after, b, p);
    for (int64_t i = 0; i < shape_elements(&before->params.at[p].shape); i++)
      expect_near(y[i], x[i], 1e-12, before->params.at[p].name, i);
  }
}

static void test_network_keeps_its_numbers(void **state) {
  (void)state;
  for (int blocks = 0; blocks < 3; blocks++)
    for (int dropping = 0; dropping < 2; dropping++) {
      Graph *g = network(blocks, dropping * 0.3), *plain = network(blocks, dropping * 0.3);
      autodiff(g);
      autodiff(plain);
      simplify(g);
      graph_verify(g);
      expect_same_numbers(plain, g);
      assert_true(g->nodes.n < plain->nodes.n);
    }
}

static void test_network_has_true_gradients(void **state) {
  (void)state;
  Graph *g = network(1, 0.3);
  autodiff(g);
  simplify(g);
  expect_gradients(g);
}

static void test_what_is_removed(void **state) {
  (void)state;
  Graph *g = network(2, 0);
  autodiff(g);
  simplify(g);
  assert_int_equal(count_nodes(g, &op_dropout), 0);
  assert_int_equal(count_nodes(g, &op_pad), 0);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    if (n->op->kind != OP_POINTWISE)
      continue;
    for (int k = 0; k < n->n_in; k++) {
      const Node *from = &g->nodes.at[g->values.at[n->in[k]].node];
      assert_ptr_not_equal(from->op, &op_expand);
      assert_false(n->op == &op_mul && from->op == &op_constant && node_number(from, "value") == 1);
    }
    assert_false(n->op == &op_mul && n->in[0] == n->in[1]);
  }
}

/* x * -reshape(full(2)) is x * -2. */
static void test_views_of_equal_elements_are_numbers(void **state) {
  (void)state;
  Graph *g = new_graph();
  int two = apply(g, &op_full, NULL, 0, (Attr[MAX_ATTR]){{.number = 2}, {.n = 1, .list = (int64_t[]){6}}});
  int view = apply(g, &op_reshape, &two, 1, (Attr[MAX_ATTR]){{.n = 2, .list = (int64_t[]){2, 3}}});
  weigh(g, apply_2(g, &op_mul, new_input(g, "x", SHAPE(2, 3)), apply_1(g, &op_neg, view)));
  autodiff(g);
  simplify(g);
  graph_verify(g);
  assert_int_equal(count_nodes(g, &op_reshape), 0);
  assert_int_equal(count_nodes(g, &op_neg), 0);
}

static void test_simplify_twice_is_simplify_once(void **state) {
  (void)state;
  Graph *g = network(2, 0.3);
  autodiff(g);
  simplify(g);
  char *once = dump_of(g);
  simplify(g);
  assert_string_equal(dump_of(g), once);
}

/* ---- cuts -------------------------------------------------------------------------------------------- */

static bool in_list(const Ints *list, int x) {
  for (int i = 0; i < list->n; i++)
    if (list->at[i] == x)
      return true;
  return false;
}

static bool depends_on_input(const Graph *g, int value) {
  const Node *n = &g->nodes.at[g->values.at[value].node];
  bool depends = n->op == &op_input;
  for (int i = 0; i < n->n_in && !depends; i++)
    depends = depends_on_input(g, n->in[i]);
  return depends;
}

static int position(const Graph *g, int node) { return node < g->n_forward ? node : g->nodes.at[node].serves; }

/* Checks the cut before forward node `first`. Values that cross forward are of samples. Values that the left
 * side's backward pass reads from the right side are the recorded gradients. */
static void check_cut(const Graph *g, int first) {
  Ints back = {0};
  for (int v = 0; v < g->values.n; v++) {
    const Value *value = &g->values.at[v];
    if (value->node >= first)
      continue;
    for (int k = 0; k < value->uses.n; k++)
      if (value->uses.at[k] >= first) {
        assert_true(depends_on_input(g, v));
        if (value->gradients.at[k] >= 0)
          push(&back, value->gradients.at[k]);
        break;
      }
  }
  for (int i = g->n_forward; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in && g->nodes.at[i].serves < first; k++) {
      int in = g->nodes.at[i].in[k], from = g->values.at[in].node;
      if (position(g, from) < first || g->nodes.at[from].op == &op_param)
        continue;
      if (from < g->n_forward || !in_list(&back, in))
        fail_msg("a cut before node %d: node %d (%s) reads value %d (%s), which does not come back", first, i,
                 g->nodes.at[i].op->name, in, g->nodes.at[from].op->name);
    }
}

static void test_all_that_comes_back_at_a_cut_is_listed(void **state) {
  (void)state;
  for (int dropping = 0; dropping < 2; dropping++) {
    Graph *g = network(2, dropping * 0.3);
    autodiff(g);
    for (int round = 0; round < 2; round++) {
      int *run = graph_runs(g), cuts = 0;
      for (int i = 1; i < g->n_forward; i++)
        if (run[i] != run[i - 1]) {
          check_cut(g, i);
          cuts++;
        }
      assert_true(cuts > 20);
      simplify(g);
    }
  }
}

static void test_parameters_gradients_stand_where_their_uses_do(void **state) {
  (void)state;
  Graph *g = network(2, 0.3);
  autodiff(g);
  simplify(g);
  int *run = graph_runs(g);
  for (int p = 0; p < g->params.n; p++)
    for (int k = 0; k < g->params.at[p].uses.n; k++) {
      int made = g->values.at[g->params.at[p].gradients.at[k]].node;
      assert_int_equal(run[made], run[g->params.at[p].uses.at[k]]);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_network_keeps_its_numbers),
      cmocka_unit_test(test_network_has_true_gradients),
      cmocka_unit_test(test_what_is_removed),
      cmocka_unit_test(test_views_of_equal_elements_are_numbers),
      cmocka_unit_test(test_simplify_twice_is_simplify_once),
      cmocka_unit_test(test_all_that_comes_back_at_a_cut_is_listed),
      cmocka_unit_test(test_parameters_gradients_stand_where_their_uses_do),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
