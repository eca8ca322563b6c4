/* Existence of gradients, order of their sums, and served nodes. Finite differences in ops.c and simplify.c check
 * their values. */
#include "network.h"

static const Node *made(const Graph *g, int value) { return &g->nodes.at[g->values.at[value].node]; }

/* Three uses of x: the gradient is (third + second) + first, and each sum serves the use that it adds. */
static void test_gradients_add_from_last_use_to_first(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = operand(g, "x", true, SHAPE(3));
  int sine = apply_1(g, &op_sin, x), cosine = apply_1(g, &op_cos, x), root = apply_1(g, &op_sqrt, x);
  weigh(g, apply_2(g, &op_add, apply_2(g, &op_add, sine, cosine), root));
  autodiff(g);
  const Value *v = &g->values.at[x];
  assert_int_equal(v->uses.n, 3);
  const Node *whole = made(g, v->gradients.at[0]);
  assert_ptr_equal(whole->op, &op_add);
  assert_int_equal(whole->serves, g->values.at[sine].node);
  assert_int_equal(made(g, whole->in[1])->serves, g->values.at[sine].node);
  const Node *part = made(g, whole->in[0]);
  assert_ptr_equal(part->op, &op_add);
  assert_int_equal(part->serves, g->values.at[cosine].node);
  assert_int_equal(made(g, part->in[0])->serves, g->values.at[root].node);
  assert_int_equal(made(g, part->in[1])->serves, g->values.at[cosine].node);
  for (int i = 0; i < 3; i++) /* one run: no cut separates the uses, so all carry the whole sum */
    assert_int_equal(v->gradients.at[i], v->gradients.at[0]);
}

static void test_uses_in_other_runs_carry_partial_sums(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = operand(g, "x", true, SHAPE(3)), inner = graph_scope(g, 0, intern("inner"), intern("l"), NO_SPAN);
  int sine = apply_1(g, &op_sin, x), cosine = apply_in(g, inner, &op_cos, &x, 1, NULL);
  weigh(g, apply_2(g, &op_add, sine, cosine));
  autodiff(g);
  const Value *v = &g->values.at[x];
  assert_int_equal(v->uses.n, 2);
  assert_int_equal(made(g, v->gradients.at[1])->serves, g->values.at[cosine].node);
  const Node *whole = made(g, v->gradients.at[0]);
  assert_ptr_equal(whole->op, &op_add);
  assert_int_equal(whole->in[0], v->gradients.at[1]);
}

static void test_each_use_of_a_parameter_has_its_gradient(void **state) {
  (void)state;
  Graph *g = new_graph();
  int w = new_param(g, "w", SHAPE(3)), unused = new_param(g, "unused", SHAPE(2));
  int x = new_input(g, "x", SHAPE(3));
  apply_1(g, &op_neg, unused);
  int y = apply_2(g, &op_mul, apply_2(g, &op_mul, x, w), apply_2(g, &op_mul, w, w));
  weigh(g, apply_2(g, &op_add, y, apply_1(g, &op_detach, apply_2(g, &op_mul, x, w))));
  autodiff(g);
  const Param *p = &g->params.at[0];
  assert_int_equal(p->uses.n, 3);
  assert_int_equal(p->gradients.n, 3);
  for (int k = 0; k < 2; k++) {
    assert_true(p->gradients.at[k] >= 0);
    assert_true(shape_equal(&g->values.at[p->gradients.at[k]].shape, &p->shape));
  }
  assert_int_equal(p->gradients.at[2], -1); /* behind detach */
  assert_int_equal(g->params.at[1].gradients.at[0], -1);
}

/* Backward stops above subgraphs without trained parameters, and passes through frozen parameters to trained
 * ones. */
static void test_frozen_parameters_have_no_gradient(void **state) {
  (void)state;
  Graph *g = new_graph();
  int base = new_param(g, "base", SHAPE(3)), adapter = new_param(g, "adapter", SHAPE(3));
  int above = new_param(g, "above", SHAPE(3)), x = new_input(g, "x", SHAPE(3));
  int below = apply_1(g, &op_sin, apply_2(g, &op_mul, x, base)), middle = apply_2(g, &op_mul, below, adapter);
  weigh(g, apply_1(g, &op_cos, apply_2(g, &op_mul, middle, above)));
  g->params.at[0].frozen = g->params.at[2].frozen = true;
  autodiff(g);
  graph_verify(g);
  assert_int_equal(g->params.at[0].gradients.at[0], -1);
  assert_true(g->params.at[1].gradients.at[0] >= 0);
  assert_int_equal(g->params.at[2].gradients.at[0], -1);
  assert_int_equal(g->values.at[below].gradients.at[0], -1);
  assert_true(g->values.at[middle].gradients.at[0] >= 0);
  for (int i = g->n_forward; i < g->nodes.n; i++)
    assert_true(g->nodes.at[i].serves >= g->values.at[middle].node);
}

/* Losses with 6 and 2 elements per sample have equal weight: each counts by its mean. */
static void test_losses_weigh_by_their_means(void **state) {
  (void)state;
  Graph *g = new_graph();
  int x = operand(g, "x", true, SHAPE(2, 3));
  add_loss(g, apply_1(g, &op_sin, x));
  add_loss(g, apply_1(g, &op_sum, apply_1(g, &op_cos, x)));
  autodiff(g);
  Numbers n = numbers_for(g);
  double *gradient = gradient_of(g, run_graph(g, n), 0);
  for (int i = 0; i < 6; i++) {
    double expected = 0;
    for (int s = 0; s < BATCH; s++) {
      double at = n.input[0][s * 6 + i] + n.param[0][i];
      expected += cos(at) - 3 * sin(at);
    }
    expect_near(gradient[i], expected, 1e-12, "x", i);
  }
  simplify(g);
  expect_gradients(g);
}

/* Only losses have derivatives, in any order of statements; simplify keeps the nodes of a metric. */
static void test_metrics_have_no_gradient(void **state) {
  (void)state;
  Graph *with = new_graph(), *without = new_graph();
  for (int k = 0; k < 2; k++) {
    Graph *g = k ? without : with;
    int x = operand(g, "x", true, SHAPE(2, 3)), y = apply_1(g, &op_exp, x);
    int size = apply_1(g, &op_sum, apply_1(g, &op_square, y));
    if (!k)
      graph_metric(g, intern("size"), intern("sqrt"), size, NO_SPAN);
    add_loss(g, apply_1(g, &op_sin, x));
    add_loss(g, y);
    if (!k)
      graph_metric(g, intern("y"), NULL, y, NO_SPAN);
    autodiff(g);
  }
  assert_int_equal(with->n_losses, 2);
  assert_int_equal(with->figures.n, 4);
  assert_null(with->figures.at[1].metric);
  assert_string_equal(with->figures.at[2].metric, "size");
  assert_int_equal(with->nodes.n, without->nodes.n);
  simplify(with);
  simplify(without);
  assert_int_equal(with->n_forward, without->n_forward + 2);
  assert_int_equal(with->nodes.n - with->n_forward, without->nodes.n - without->n_forward);
  expect_gradients(with);
  const Value *size = &with->values.at[with->figures.at[2].value];
  assert_ptr_equal(with->nodes.at[size->node].op, &op_sum);
}

/* A parameter's view read by two instances becomes one view each, so no gradient of it crosses a cut. */
static void test_shared_views_become_uses_of_their_own(void **state) {
  (void)state;
  Graph *g = network(2, 0);
  int uses = g->params.at[0].uses.n;
  autodiff(g);
  const Param *table = &g->params.at[0];
  assert_int_equal(uses, 2); /* gather, transpose */
  assert_int_equal(table->uses.n, 3);
  int *run = graph_runs(g);
  for (int k = 0; k < 3; k++) {
    assert_true(table->gradients.at[k] >= 0);
    assert_int_equal(run[g->values.at[table->gradients.at[k]].node], run[table->uses.at[k]]);
  }
}

static void test_backward_nodes_serve_in_reverse_order(void **state) {
  (void)state;
  Graph *g = network(2, 0.2);
  autodiff(g);
  for (int round = 0; round < 2; round++) {
    for (int i = g->n_forward; i < g->nodes.n; i++) {
      assert_true(g->nodes.at[i].serves >= 0);
      if (i > g->n_forward)
        assert_true(g->nodes.at[i].serves <= g->nodes.at[i - 1].serves);
      assert_int_equal(g->nodes.at[i].scope, g->nodes.at[g->nodes.at[i].serves].scope);
    }
    simplify(g);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients_add_from_last_use_to_first),
      cmocka_unit_test(test_uses_in_other_runs_carry_partial_sums),
      cmocka_unit_test(test_each_use_of_a_parameter_has_its_gradient),
      cmocka_unit_test(test_frozen_parameters_have_no_gradient),
      cmocka_unit_test(test_losses_weigh_by_their_means),
      cmocka_unit_test(test_metrics_have_no_gradient),
      cmocka_unit_test(test_shared_views_become_uses_of_their_own),
      cmocka_unit_test(test_backward_nodes_serve_in_reverse_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
