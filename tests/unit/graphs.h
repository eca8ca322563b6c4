/* Small graphs for unit tests, filled with numbers that depend only on their index. */
#ifndef PDC_TEST_GRAPHS_H
#define PDC_TEST_GRAPHS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "autodiff/autodiff.h"
#include "graph/graph.h"
#include "graph/interpret.h"
#include "ops/op.h"
#include "simplify/simplify.h"

enum { BATCH = 3 };

#define SHAPE(...) ((Shape){.rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = {__VA_ARGS__}})

static inline Graph *new_graph(void) {
  Graph *g = graph_new(intern("test"));
  g->file = intern("test.pdm");
  g->train.pipeline = intern("flush");
  g->train.span = g->train.pipeline_span = NO_SPAN;
  graph_scope(g, -1, intern(""), intern("test"), NO_SPAN);
  return g;
}

static inline int new_param(Graph *g, const char *name, Shape s) {
  int index = graph_param(g, intern(name), s, 0, NO_SPAN);
  return g->params.at[index].value;
}

static inline int new_buffer(Graph *g, const char *name, Shape s) {
  int value = new_param(g, name, s);
  g->params.at[g->params.n - 1].buffer = true;
  return value;
}

static inline int new_input(Graph *g, const char *name, Shape s) {
  s.batched = true;
  int index = graph_input(g, intern(name), false, TYPE_F32, 0, s, NO_SPAN);
  return g->inputs.at[index].value;
}

static inline int new_tokens(Graph *g, const char *name, int64_t classes, Shape s) {
  s.batched = true;
  int index = graph_input(g, intern(name), false, TYPE_TOKEN, classes, s, NO_SPAN);
  return g->inputs.at[index].value;
}

static inline int apply_in(Graph *g, int scope, const Op *op, const int *in, int n_in, const Attr *attr) {
  int node = graph_node(g, op, in, n_in, attr, scope, NO_SPAN);
  assert_true(node >= 0);
  return graph_output(g, node, 0);
}

static inline int apply(Graph *g, const Op *op, const int *in, int n_in, const Attr *attr) {
  return apply_in(g, 0, op, in, n_in, attr);
}

static inline int apply_1(Graph *g, const Op *op, int a) { return apply(g, op, &a, 1, NULL); }
static inline int apply_2(Graph *g, const Op *op, int a, int b) { return apply(g, op, (int[]){a, b}, 2, NULL); }

/* A parameter, or with `batched` an input plus a parameter: a per-sample value that needs a gradient. */
static inline int operand(Graph *g, const char *name, bool batched, Shape s) {
  int p = new_param(g, name, s);
  return batched ? apply_2(g, &op_add, new_input(g, internf("%s_input", name), s), p) : p;
}

static inline int count_nodes(const Graph *g, const Op *op) {
  int n = 0;
  for (int i = 0; i < g->nodes.n; i++)
    n += g->nodes.at[i].op == op;
  return n;
}

static inline void add_loss(Graph *g, int value) { graph_loss(g, value, NO_SPAN); }

/* The loss y * r with an input r of y's shape: every element of y has its own gradient. */
static inline void weigh(Graph *g, int y) {
  Shape s = g->values.at[y].shape;
  add_loss(g, apply_2(g, &op_mul, y, new_input(g, internf("weights%d", g->n_losses), s)));
}

/* ---- numbers ------------------------------------------------------------------------------------- */

typedef struct Numbers {
  double **input, **param;
} Numbers;

static inline double number_at(int64_t i) { return 0.25 + fabs(sin(1.7 * (double)i + 0.3)) * 1.5; }

static inline Numbers numbers_for(const Graph *g) {
  Numbers n = {alloc((g->inputs.n + 1) * sizeof(double *)), alloc((g->params.n + 1) * sizeof(double *))};
  int64_t next = 0;
  for (int i = 0; i < g->inputs.n; i++) {
    const Value *v = &g->values.at[g->inputs.at[i].value];
    int64_t elements = shape_elements(&v->shape) * BATCH;
    n.input[i] = alloc(elements * sizeof(double));
    for (int64_t k = 0; k < elements; k++, next++)
      n.input[i][k] = v->type == TYPE_TOKEN ? (double)(next * 7 % v->classes) : number_at(next);
  }
  for (int i = 0; i < g->params.n; i++) {
    int64_t elements = shape_elements(&g->params.at[i].shape);
    n.param[i] = alloc(elements * sizeof(double));
    for (int64_t k = 0; k < elements; k++, next++)
      n.param[i][k] = number_at(next);
  }
  return n;
}

/* Positive and negative numbers, for graphs without tokens. */
static inline Numbers signed_numbers_for(const Graph *g) {
  Numbers n = numbers_for(g);
  for (int i = 0; i < g->inputs.n + g->params.n; i++) {
    const bool input = i < g->inputs.n;
    const int at = input ? i : i - g->inputs.n, value = input ? g->inputs.at[at].value : g->params.at[at].value;
    for (int64_t k = 0; k < shape_elements(&g->values.at[value].shape) * (input ? BATCH : 1); k += 3)
      (input ? n.input : n.param)[at][k] *= -1;
  }
  return n;
}

static inline double **run_graph(const Graph *g, Numbers n) {
  return interpret(g, BATCH, (const double *const *)n.input, (const double *const *)n.param);
}

/* Runs the forward nodes alone. */
static inline double loss_of(const Graph *g, Numbers n) {
  Graph forward = *g;
  forward.nodes.n = g->n_forward;
  return interpret_loss(g, BATCH, run_graph(&forward, n));
}

/* The whole gradient of a parameter: the sum over its uses. */
static inline double *gradient_of(const Graph *g, double *const *value, int param) {
  const Param *p = &g->params.at[param];
  int64_t elements = shape_elements(&p->shape);
  double *sum = alloc(elements * sizeof *sum);
  for (int k = 0; k < p->gradients.n; k++)
    for (int64_t i = 0; i < elements && p->gradients.at[k] >= 0; i++)
      sum[i] += value[p->gradients.at[k]][i];
  return sum;
}

/* Checks that passes keep the gradient of each use of a parameter. */
static inline void expect_same_gradients(const Graph *a, double *const *of_a, const Graph *b, double *const *of_b,
                                         double within) {
  for (int i = 0; i < a->params.n; i++) {
    const Param *p = &a->params.at[i], *q = &b->params.at[i];
    assert_int_equal(p->gradients.n, q->gradients.n);
    for (int u = 0; u < p->gradients.n; u++) {
      const int x = p->gradients.at[u], y = q->gradients.at[u];
      assert_true((x < 0) == (y < 0));
      for (int64_t k = 0; x >= 0 && k < shape_elements(&p->shape); k++)
        assert_true(fabs(of_a[x][k] - of_b[y][k]) <= within);
    }
  }
}

static inline void expect_near(double got, double expected, double relative, const char *what, int64_t i) {
  if (fabs(got - expected) <= relative * fmax(1, fabs(expected)))
    return;
  fail_msg("%s[%lld]: got %.12g, expected %.12g", what, (long long)i, got, expected);
}

/* Checks every parameter's gradient against central differences of the loss; buffers have none. */
static inline void expect_gradients(const Graph *g) {
  const double h = 1e-4;
  Numbers n = numbers_for(g);
  double **value = run_graph(g, n);
  for (int p = 0; p < g->params.n; p++) {
    double *gradient = gradient_of(g, value, p);
    for (int64_t i = 0; i < shape_elements(&g->params.at[p].shape) && !g->params.at[p].buffer; i++) {
      double *x = &n.param[p][i], at = *x, side[4];
      for (int k = 0; k < 4; k++) {
        *x = at + h * (double[]){-2, -1, 1, 2}[k];
        side[k] = loss_of(g, n);
      }
      *x = at;
      double slope = (8 * (side[2] - side[1]) - (side[3] - side[0])) / (12 * h);
      expect_near(gradient[i], slope, 1e-6, g->params.at[p].name, i);
    }
  }
}

static inline char *dump_of(const Graph *g) {
  char *text = NULL;
  size_t length = 0;
  FILE *f = open_memstream(&text, &length);
  graph_dump(g, f);
  fclose(f);
  return text;
}

#endif
