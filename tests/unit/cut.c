/* Cuts: legality, crossing values and names of pieces. Numbers show that the gradient that crosses back is that of
 * the later part only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/interpret.h"
#include "model.h"

enum { BATCH = 2 };

static Graph *with_skip(void) {
  return model_build((ModelOptions){.blocks = 3, .skip = true, .tied = true, .batch = 8});
}

static bool listed(const Ints *list, int x) {
  for (int i = 0; i < list->n; i++)
    if (list->at[i] == x)
      return true;
  return false;
}

/* ---- structure ------------------------------------------------------------- */

static void pieces_cover_the_model(void **unused) {
  (void)unused;
  Graph *g = with_skip();
  Pieces p = cut(g);
  pieces_verify(g, &p);
  assert_true(p.n > 8);
  for (int i = 0; i < p.n; i++)
    for (int k = 0; k < p.at[i].crossing.n; k++) {
      const Value *v = &g->values.at[p.at[i].crossing.at[k]];
      assert_true(v->shape.batched && v->type == TYPE_F32);
    }
}

/* The first block's input crosses every cut up to its last use, and none after it. */
static void a_skip_travels_through(void **unused) {
  (void)unused;
  Graph *g = with_skip();
  Pieces p = cut(g);
  int from = piece_find(&p, "h.0"), to = piece_find(&p, "skip");
  assert_true(from > 0 && to > from);
  int skipped = p.at[from].crossing.at[0];
  for (int i = 0; i < p.n; i++)
    assert_int_equal(listed(&p.at[i].crossing, skipped), i >= from && i <= to);
  assert_int_equal(p.at[piece_find(&p, "h.1")].crossing.n, 2);
  assert_int_equal(p.at[piece_find(&p, "after skip")].crossing.n, 1);
}

/* After the skip's product both operands of the sum cross, and one gradient returns for both. */
static void a_sum_returns_one_gradient(void **unused) {
  (void)unused;
  Graph *g = with_skip();
  Pieces p = cut(g);
  int found = 0;
  for (int i = 0; i < p.n; i++) {
    for (int k = 0; k < p.at[i].gradients.n; k++)
      assert_true(p.at[i].gradients.at[k] < 0 || listed(&p.at[i].returned, p.at[i].gradients.at[k]));
    for (int k = 0; k < p.at[i].returned.n; k++)
      for (int j = 0; j < k; j++)
        assert_int_not_equal(p.at[i].returned.at[j], p.at[i].returned.at[k]);
    found += p.at[i].returned.n < p.at[i].crossing.n;
  }
  assert_true(found > 0);
}

static void inputs_and_parameters_never_cross(void **unused) {
  (void)unused;
  Graph *g = with_skip();
  Pieces p = cut(g);
  for (int i = 0; i < p.n; i++)
    for (int k = 0; k < p.at[i].crossing.n; k++)
      assert_true(g->nodes.at[g->values.at[p.at[i].crossing.at[k]].node].op->kind != OP_SOURCE);
}

static void a_tied_parameter_is_in_both_pieces(void **unused) {
  (void)unused;
  Graph *g = with_skip();
  Pieces p = cut(g);
  int holders = 0;
  for (int i = 0; i < p.n; i++)
    holders += listed(&p.at[i].params, 0);
  assert_int_equal(holders, 2);
  assert_true(listed(&p.at[0].params, 0));
  assert_true(listed(&p.at[piece_find(&p, "after skip")].params, 0));
}

/* No cut exists between two uses of a value that depends only on parameters. */
static void what_no_sample_made_cannot_cross(void **unused) {
  (void)unused;
  Graph *g = graph_new(intern("shared"));
  g->train = (Train){.batch = 4, .pipeline = intern("2bw")};
  int top = graph_scope(g, -1, intern(""), intern("shared"), NO_SPAN);
  Shape row = {.batched = true, .rank = 2, .dim = {MODEL_LENGTH, MODEL_WIDTH}};
  graph_input(g, intern("x"), false, TYPE_F32, 0, row, NO_SPAN);
  int x = g->inputs.at[0].value;
  int a = graph_scope(g, top, intern("a"), intern("a"), NO_SPAN),
      b = graph_scope(g, top, intern("b"), intern("b"), NO_SPAN);
  int c = graph_scope(g, top, intern("c"), intern("c"), NO_SPAN);
  int squared = model_op(g, a, &op_square, model_weight(g, intern("a.weight"), MODEL_WIDTH, MODEL_WIDTH, a), -1);
  x = model_op(g, a, &op_matmul, x, squared);
  x = model_op(g, b, &op_matmul, x, squared);
  x = model_op(g, c, &op_sum, model_op(g, c, &op_square, x, -1), -1);
  graph_loss(g, x, NO_SPAN);
  autodiff(g);
  simplify(g);
  Pieces p = cut(g);
  pieces_verify(g, &p);
  assert_int_equal(piece_find(&p, "b"), -1);
  assert_true(piece_find(&p, "c") > 0);
  int before = error_count();
  assert_int_equal(piece_find_or_tell(g, &p, "b", NO_SPAN, "--split"), -1);
  assert_int_equal(piece_find_or_tell(g, &p, "after a", NO_SPAN, "--split"), -1);
  assert_int_equal(error_count(), before + 2);
}

/* A view is made at its reader: its source crosses. */
static void a_view_does_not_cross(void **unused) {
  (void)unused;
  Graph *g = graph_new(intern("views"));
  g->train = (Train){.batch = 4, .pipeline = intern("2bw")};
  int top = graph_scope(g, -1, intern(""), intern("views"), NO_SPAN);
  Shape row = {.batched = true, .rank = 2, .dim = {MODEL_LENGTH, MODEL_WIDTH}};
  graph_input(g, intern("x"), false, TYPE_F32, 0, row, NO_SPAN);
  int scope[4];
  for (int i = 0; i < 4; i++)
    scope[i] = graph_scope(g, top, internf("s%d", i), intern("layer"), NO_SPAN);
  int weight = model_weight(g, intern("s0.weight"), MODEL_WIDTH, MODEL_WIDTH, scope[0]);
  int x = model_op(g, scope[0], &op_matmul, g->inputs.at[0].value, weight);
  x = model_op(g, scope[1], &op_transpose, x, -1);
  x = model_op(g, scope[2], &op_tanh, x, -1);
  x = model_op(g, scope[3], &op_sum, model_op(g, scope[3], &op_square, x, -1), -1);
  graph_loss(g, x, NO_SPAN);
  autodiff(g);
  simplify(g);
  Pieces p = cut(g);
  pieces_verify(g, &p);
  int reader = piece_find(&p, "s2"), after = piece_find(&p, "s3");
  assert_int_equal(piece_find(&p, "s1"), -1);
  assert_true(reader > 0 && after > reader);
  for (int i = 1; i < p.n; i++)
    for (int k = 0; k < p.at[i].crossing.n; k++)
      assert_ptr_not_equal(g->nodes.at[g->values.at[p.at[i].crossing.at[k]].node].op, &op_transpose);
  assert_int_equal(p.at[reader].crossing.n, 1);
  assert_ptr_equal(g->nodes.at[g->values.at[p.at[reader].crossing.at[0]].node].op, &op_matmul);
}

/* Pointwise values of inputs are recomputed on every stage that reads them. */
static void what_inputs_give_does_not_cross(void **unused) {
  (void)unused;
  Graph *g = graph_new(intern("given"));
  g->train = (Train){.batch = 4, .pipeline = intern("2bw")};
  int top = graph_scope(g, -1, intern(""), intern("given"), NO_SPAN);
  Shape row = {.batched = true, .rank = 2, .dim = {MODEL_LENGTH, MODEL_WIDTH}};
  graph_input(g, intern("x"), false, TYPE_F32, 0, row, NO_SPAN);
  int x = model_op(g, top, &op_square, g->inputs.at[0].value, -1), y = x;
  for (int i = 0; i < 3; i++) {
    int scope = graph_scope(g, top, internf("s%d", i), intern("layer"), NO_SPAN);
    y = model_op(g, scope, &op_add, y, x);
    y = model_op(g, scope, &op_matmul, y,
                 model_weight(g, internf("s%d.weight", i), MODEL_WIDTH, MODEL_WIDTH, scope));
  }
  graph_loss(g, model_op(g, top, &op_sum, y, -1), NO_SPAN);
  autodiff(g);
  simplify(g);
  Pieces p = cut(g);
  pieces_verify(g, &p);
  for (int i = 1; i < 3; i++) {
    int at = piece_find(&p, internf("s%d", i));
    assert_true(at > 0);
    assert_int_equal(p.at[at].crossing.n, 1);
  }
}

/* ---- names ------------------------------------------------------------- */

static void both_spellings_find_a_piece(void **unused) {
  (void)unused;
  Graph *g = with_skip();
  Pieces p = cut(g);
  int fc = piece_find(&p, "h.1.fc");
  assert_true(fc > 0);
  assert_int_equal(piece_find(&p, "h[1].fc"), fc);
  assert_int_equal(piece_find(&p, " h[1].fc "), fc);
  assert_int_equal(piece_find(&p, "h.1.act"), piece_find(&p, "h.1"));
  assert_string_equal(p.at[piece_find(&p, "h.1.act")].name, "h.1");
  assert_int_equal(piece_find(&p, "after h[0]"), piece_find(&p, "h.1"));
  assert_int_equal(piece_find(&p, "h.9"), -1);
  assert_string_equal(piece_last_instance(g, &p, piece_find(&p, "h.1") - 1), "h.0");
  assert_string_equal(piece_last_instance(g, &p, p.n - 1), "mean_square");
  for (int i = 0; i < p.n; i++)
    for (int k = 0; k < p.at[i].names.n; k++)
      assert_int_equal(piece_find(&p, p.at[i].names.at[k]), i);
}

static void unknown_names_are_diagnosed(void **unused) {
  (void)unused;
  Graph *g = with_skip();
  Pieces p = cut(g);
  int before = error_count();
  assert_int_equal(piece_find_or_tell(g, &p, "h.7", NO_SPAN, "--split"), -1);
  assert_int_equal(error_count(), before + 1);
  assert_int_equal(piece_find_or_tell(g, &p, "", NO_SPAN, "--split"), -1);
  assert_int_equal(error_count(), before + 2);
  assert_int_equal(piece_find_or_tell(g, &p, "h[2]", NO_SPAN, "--split"), piece_find(&p, "h.2"));
  assert_int_equal(error_count(), before + 2);
}

/* ---- numbers ------------------------------------------------------------- */

static double *random_elements(int64_t n, unsigned *seed) {
  double *x = alloc((size_t)n * sizeof *x);
  for (int64_t i = 0; i < n; i++)
    x[i] = (double)(rand_r(seed) % 2000) / 1000 - 1;
  return x;
}

/* All operands of the model's pointwise operations have the result's shape. */
static void run_node(const Graph *g, int node, double **value) {
  const Node *n = &g->nodes.at[node];
  const double *in[8];
  double *out[8];
  assert_true(n->n_in <= 8 && n->n_out <= 8);
  for (int k = 0; k < n->n_in; k++)
    in[k] = value[n->in[k]];
  for (int k = 0; k < n->n_out; k++)
    out[k] = value[n->out[k]];
  if (n->op->evaluate) {
    n->op->evaluate(g, node, BATCH, in, out);
    return;
  }
  for (int64_t i = 0; i < BATCH * shape_elements(&g->values.at[n->out[0]].shape); i++) {
    double operand[8];
    for (int k = 0; k < n->n_in; k++)
      operand[k] = in[k][i];
    out[0][i] = n->op->fold(operand, n->attr);
  }
}

/* The loss if nodes from `first` on see value v moved along `direction`, and earlier nodes do not. */
static double loss_beyond(const Graph *g, int first, double **given, int v, const double *direction, double step) {
  double **value = alloc((size_t)g->values.n * sizeof *value);
  for (int i = 0; i < g->values.n; i++) {
    int64_t n = shape_elements(&g->values.at[i].shape) * (g->values.at[i].shape.batched ? BATCH : 1);
    value[i] = alloc_copy(given[i], (size_t)n * sizeof(double));
    for (int64_t k = 0; i == v && k < n; k++)
      value[i][k] += step * direction[k];
  }
  for (int i = first; i < g->n_forward; i++)
    if (g->nodes.at[i].op->kind != OP_SOURCE)
      run_node(g, i, value);
  return interpret_loss(g, BATCH, value);
}

static void gradients_are_those_of_the_later_part(void **unused) {
  (void)unused;
  Graph *g = with_skip();
  Pieces p = cut(g);
  unsigned seed = 7;
  const double **param = alloc((size_t)g->params.n * sizeof *param), *input[1];
  for (int i = 0; i < g->params.n; i++)
    param[i] = random_elements(shape_elements(&g->params.at[i].shape), &seed);
  double tokens[BATCH * MODEL_LENGTH];
  for (int i = 0; i < BATCH * MODEL_LENGTH; i++)
    tokens[i] = rand_r(&seed) % MODEL_CLASSES;
  input[0] = tokens;
  double **value = interpret(g, BATCH, input, param);
  int checked = 0;
  for (int i = 1; i < p.n; i++)
    for (int k = 0; k < p.at[i].crossing.n; k++) {
      int v = p.at[i].crossing.at[k], gradient = p.at[i].gradients.at[k];
      assert_true(gradient >= 0);
      int64_t n = BATCH * shape_elements(&g->values.at[v].shape);
      double *direction = random_elements(n, &seed), expected = 0, h = 1e-5;
      for (int64_t e = 0; e < n; e++)
        expected += value[gradient][e] * direction[e];
      double slope = (loss_beyond(g, p.at[i].first, value, v, direction, h) -
                      loss_beyond(g, p.at[i].first, value, v, direction, -h)) /
                     (2 * h);
      assert_true(fabs(slope - expected) <= 1e-6 * (1 + fabs(expected)));
      checked++;
    }
  assert_true(checked > 12);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pieces_cover_the_model),
      cmocka_unit_test(a_skip_travels_through),
      cmocka_unit_test(a_sum_returns_one_gradient),
      cmocka_unit_test(inputs_and_parameters_never_cross),
      cmocka_unit_test(a_tied_parameter_is_in_both_pieces),
      cmocka_unit_test(what_no_sample_made_cannot_cross),
      cmocka_unit_test(a_view_does_not_cross),
      cmocka_unit_test(what_inputs_give_does_not_cross),
      cmocka_unit_test(both_spellings_find_a_piece),
      cmocka_unit_test(unknown_names_are_diagnosed),
      cmocka_unit_test(gradients_are_those_of_the_later_part),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
