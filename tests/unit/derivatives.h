/* Derivatives of a small graph against finite differences, before and after simplify. */
#ifndef PDC_TEST_DERIVATIVES_H
#define PDC_TEST_DERIVATIVES_H

#include "graphs.h"

static bool differentiated[256];   /* by index into all_ops: a case used its derivative */
static unsigned has_gradient[256]; /* by index into all_ops, bits: operands that received a gradient, or that are
                                      tokens */

static inline int index_of(const Op *op) {
  for (int k = 0; k < n_ops; k++)
    if (all_ops[k] == op)
      return k;
  fail_msg("no such op: %s", op->name);
  return -1;
}

/* Whether a gradient reaches this forward value from `node` or, unless it is a parameter, from a later node. */
static inline bool is_reached(const Graph *g, int value, int node) {
  const Ints *uses = &g->values.at[value].uses, *gradients = &g->values.at[value].gradients;
  for (int p = 0; p < g->params.n; p++)
    if (g->params.at[p].value == value && !g->params.at[p].buffer)
      uses = &g->params.at[p].uses, gradients = &g->params.at[p].gradients;
  for (int k = 0; k < uses->n; k++)
    if (uses->at[k] == node && gradients->at[k] >= 0)
      return true;
  return g->values.at[value].type == TYPE_TOKEN;
}

static inline void note_derivatives(const Graph *g) {
  for (int i = g->n_forward; i < g->nodes.n; i++)
    differentiated[index_of(g->nodes.at[g->nodes.at[i].serves].op)] = true;
  for (int i = 0; i < g->n_forward; i++)
    for (int k = 0; k < g->nodes.at[i].n_in && k < 8; k++) {
      bool again = false; /* a later operand is the same value and takes the gradient */
      for (int j = k + 1; j < g->nodes.at[i].n_in; j++)
        again |= g->nodes.at[i].in[j] == g->nodes.at[i].in[k];
      /* tokens in the place of an optional operand without a gradient */
      const int operand = node_operand(&g->nodes.at[i], k);
      again |=
          g->nodes.at[i].op->no_gradient >> operand & 1 && g->values.at[g->nodes.at[i].in[k]].type == TYPE_TOKEN;
      if (again || !is_reached(g, g->nodes.at[i].in[k], i))
        continue;
      has_gradient[index_of(g->nodes.at[i].op)] |= 1u << operand;
      differentiated[index_of(g->nodes.at[i].op)] |= g->nodes.at[i].op == &op_rounded; /* makes no node */
    }
}

static inline void check(Graph *g, int y) {
  weigh(g, y);
  graph_verify(g);
  autodiff(g);
  graph_verify(g);
  note_derivatives(g);
  bool any = false;
  for (int p = 0; p < g->params.n; p++)
    for (int k = 0; k < g->params.at[p].gradients.n; k++)
      any |= g->params.at[p].gradients.at[k] >= 0;
  assert_true(any);
  expect_gradients(g);
  simplify(g);
  graph_verify(g);
  expect_gradients(g);
}

#endif
