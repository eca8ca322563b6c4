#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "graph/interpret.h"
#include "ops/op.h"

enum { BATCH = 2 };

static const char *shown; /* the model's text, for failures */

_Noreturn static void wrong(const char *what, double got, double expected) {
  fprintf(stderr, "%s: %.17g, not %.17g, of\n%s", what, got, expected, shown);
  abort();
}

/* A number from -0.5 to 0.5, determined by its index. */
static double number(int64_t i) { return (double)((i * 7919 + 13) % 1009) / 1009 - 0.5; }

static double token(int64_t i, int64_t classes) { return (double)((i * 7919 + 13) % 1009 % classes); }

typedef struct Numbers {
  const double **input, **param;
} Numbers;

/* Parameters at distance `step` along a direction. */
static Numbers numbers(const Graph *g, double step) {
  Numbers n = {alloc((size_t)(g->inputs.n + 1) * sizeof(double *)),
               alloc((size_t)(g->params.n + 1) * sizeof(double *))};
  int64_t next = 0;
  for (int i = 0; i < g->inputs.n + g->params.n; i++) {
    bool input = i < g->inputs.n;
    const Value *v = &g->values.at[input ? g->inputs.at[i].value : g->params.at[i - g->inputs.n].value];
    const Shape *s = input ? &v->shape : &g->params.at[i - g->inputs.n].shape;
    int64_t elements = shape_elements(s) * (input ? BATCH : 1);
    double *x = alloc((size_t)elements * sizeof *x);
    for (int64_t k = 0; k < elements; k++, next++)
      x[k] = v->type == TYPE_TOKEN ? token(next, v->classes)
                                   : number(next) + (input ? 0 : step * number(3 * next + 1));
    *(input ? &n.input[i] : &n.param[i - g->inputs.n]) = x;
  }
  return n;
}

static double **compute(const Graph *g, double step) {
  Numbers n = numbers(g, step);
  return interpret(g, BATCH, n.input, n.param);
}

static double loss_at(const Graph *g, double step) { return interpret_loss(g, BATCH, compute(g, step)); }

/* A parameter's gradient, summed over its uses. */
static double gradient(const Graph *g, double *const *value, int param, int64_t i) {
  double sum = 0;
  const Param *p = &g->params.at[param];
  for (int k = 0; k < p->gradients.n; k++)
    if (p->gradients.at[k] >= 0) sum += value[p->gradients.at[k]][i];
  return sum;
}

/* Compares the gradients' slope along the direction with the loss's, by Ridders' method. Skips losses with too
 * much curvature for it. */
static void check_slope(const Graph *g, double slope) {
  double wide = (loss_at(g, 1e-3) - loss_at(g, -1e-3)) / 2e-3,
         narrow = (loss_at(g, 5e-4) - loss_at(g, -5e-4)) / 1e-3;
  double best = (4 * narrow - wide) / 3, doubt = fabs(best - narrow) + 1e-7 * (1 + fabs(best));
  if (isfinite(best) && doubt < 1e-3 * (1 + fabs(best)) && fabs(best - slope) > 10 * doubt)
    wrong("the slope of the loss", slope, best);
}

bool numbers_can_be_compared(const Graph *g) {
  enum { MOST = 100000 };
  double work = 0;
  for (int i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i].op == &op_dropout) return false;
  for (int i = 0; i < g->values.n && work < MOST; i++) work += (double)shape_elements(&g->values.at[i].shape);
  for (int i = 0; i < g->nodes.n && work < MOST; i++) {
    if (!g->nodes.at[i].op->cost) continue;
    OpCost c = g->nodes.at[i].op->cost(g, i);
    work += c.matmul_flops + c.other_flops;
  }
  return work < MOST;
}

void numbers_compare(const Graph *before, const Graph *after, bool smooth, const char *text) {
  shown = text;
  double **a = compute(before, 0), **b = compute(after, 0), slope = 0, largest = 0;
  double expected = interpret_loss(before, BATCH, a), got = interpret_loss(after, BATCH, b);
  if (!isfinite(expected) || fabs(expected) > 1e6) return;
  if (!(fabs(got - expected) <= 1e-9 * (1 + fabs(expected)))) wrong("the loss", got, expected);
  int64_t next = 0;
  for (int i = 0; i < before->inputs.n; i++)
    next += shape_elements(&before->values.at[before->inputs.at[i].value].shape) * BATCH;
  for (int p = 0; p < before->params.n; p++)
    for (int64_t i = 0; i < shape_elements(&before->params.at[p].shape); i++, next++) {
      double x = gradient(before, a, p, i), y = gradient(after, b, p, i);
      if (!isfinite(x)) return; /* such as of tanh(x / 0), whose loss is finite */
      if (!(fabs(x - y) <= 1e-8 * (1 + fabs(x)))) wrong(before->params.at[p].name, y, x);
      slope += y * number(3 * next + 1);
      largest = fmax(largest, fabs(y));
    }
  if (smooth && largest < 1e4) check_slope(after, slope);
}
