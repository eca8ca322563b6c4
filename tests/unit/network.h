/* A tied network of several instances, with many cases of partial sums and cuts. It has an embedding whose table
 * is also the head, a residual stream with many readers, and layer norms. It also has dropouts, splits, a constant
 * table, and an instance without effect. */
#ifndef PDC_TEST_NETWORK_H
#define PDC_TEST_NETWORK_H

#include "graphs.h"

enum { NET_LENGTH = 4, NET_WIDTH = 6, NET_CLASSES = 7 };

typedef struct Net {
  Graph *g;
  int scope, cosines, eps;
} Net;

static inline int in_scope_1(Net *n, const Op *op, int a) { return apply_in(n->g, n->scope, op, &a, 1, NULL); }
static inline int in_scope_2(Net *n, const Op *op, int a, int b) {
  return apply_in(n->g, n->scope, op, (int[]){a, b}, 2, NULL);
}
static inline int number(Net *n, double x) { return graph_constant(n->g, x, n->scope, NO_SPAN); }

static inline int scoped_param(Net *n, const char *name, Shape s) {
  Name path = n->g->scopes.at[n->scope].path;
  int index = graph_param(n->g, internf("%s%s%s", path, *path ? "." : "", name), s, n->scope, NO_SPAN);
  return n->g->params.at[index].value;
}

static inline int enter(Net *n, const char *path) {
  int outer = n->scope;
  n->scope = graph_scope(n->g, outer, intern(path), intern("layer"), NO_SPAN);
  return outer;
}

static inline int norm(Net *n, const char *path, int x) {
  int outer = enter(n, path);
  int weight = scoped_param(n, "weight", SHAPE(NET_WIDTH)), bias = scoped_param(n, "bias", SHAPE(NET_WIDTH));
  int mean = in_scope_2(n, &op_div, in_scope_1(n, &op_sum, x), number(n, NET_WIDTH));
  int centered = in_scope_2(n, &op_sub, x, mean);
  int squares = in_scope_1(n, &op_sum, in_scope_2(n, &op_mul, centered, centered));
  int variance = in_scope_2(n, &op_div, squares, number(n, NET_WIDTH));
  int scaled =
      in_scope_2(n, &op_mul, centered, in_scope_1(n, &op_rsqrt, in_scope_2(n, &op_add, variance, n->eps)));
  int y = in_scope_2(n, &op_add, in_scope_2(n, &op_mul, scaled, weight), bias);
  n->scope = outer;
  return y;
}

static inline int dense(Net *n, const char *path, int x, int64_t from, int64_t to) {
  int outer = enter(n, path);
  int weight = scoped_param(n, "weight", SHAPE(to, from));
  int y = in_scope_2(n, &op_matmul, x, in_scope_1(n, &op_transpose, weight));
  y = in_scope_2(n, &op_add, y, scoped_param(n, "bias", SHAPE(to)));
  n->scope = outer;
  return y;
}

/* A layer that multiplies by one: simplify removes it, wherever its readers are. */
static inline int idle(Net *n, const char *path, int x) {
  int outer = enter(n, path);
  int y = in_scope_2(n, &op_mul, x, number(n, 1));
  n->scope = outer;
  return y;
}

static inline int drop(Net *n, int x, double p) {
  return apply_in(n->g, n->scope, &op_dropout, &x, 1, (Attr[MAX_ATTR]){{.number = p}, {0}});
}

static inline int attend(Net *n, const char *path, int x, double p) {
  int outer = enter(n, path);
  int qkv = dense(n, format("%s.in", path), x, NET_WIDTH, 3 * NET_WIDTH), part[3];
  int split = graph_node(n->g, &op_split, &qkv, 1, (Attr[MAX_ATTR]){{.number = 3}}, n->scope, NO_SPAN);
  for (int i = 0; i < 3; i++) {
    int v = graph_output(n->g, split, i);
    Attr heads[MAX_ATTR] = {{.n = 3, .list = (int64_t[]){NET_LENGTH, 2, NET_WIDTH / 2}}};
    v = apply_in(n->g, n->scope, &op_reshape, &v, 1, heads);
    if (i < 2)
      v = in_scope_2(n, &op_mul, v, n->cosines);
    part[i] = apply_in(n->g, n->scope, &op_transpose, &v, 1, (Attr[MAX_ATTR]){{.number = 0}, {.number = 1}});
  }
  int o = apply_in(n->g, n->scope, &op_attention, part, 3, (Attr[MAX_ATTR]){{.number = 1}, {0}});
  o = apply_in(n->g, n->scope, &op_transpose, &o, 1, (Attr[MAX_ATTR]){{.number = 0}, {.number = 1}});
  Attr flat[MAX_ATTR] = {{.n = 2, .list = (int64_t[]){NET_LENGTH, NET_WIDTH}}};
  o = apply_in(n->g, n->scope, &op_reshape, &o, 1, flat);
  o = drop(n, dense(n, format("%s.out", path), o, NET_WIDTH, NET_WIDTH), p);
  n->scope = outer;
  return o;
}

/* Rotates two halves into each other: two slices of one value, as in rotary embeddings. */
static inline int turn(Net *n, const char *path, int x) {
  int outer = enter(n, path);
  Attr low[MAX_ATTR] = {{.number = -1}, {.number = 0}, {.number = NET_WIDTH / 2}};
  Attr high[MAX_ATTR] = {{.number = -1}, {.number = NET_WIDTH / 2}, {.number = 0}};
  int a = apply_in(n->g, n->scope, &op_slice, &x, 1, low), b = apply_in(n->g, n->scope, &op_slice, &x, 1, high);
  int y = apply_in(n->g, n->scope, &op_concat, (int[]){in_scope_1(n, &op_neg, b), a}, 2, NULL);
  n->scope = outer;
  return in_scope_2(n, &op_add, y, x);
}

static inline int block(Net *n, int i, int x, double p) {
  Name path = internf("h.%d", i);
  int outer = enter(n, path);
  int y = idle(n, format("%s.idle", path), norm(n, format("%s.ln_1", path), x));
  x = in_scope_2(n, &op_add, x, attend(n, format("%s.attn", path), y, p));
  y = dense(n, format("%s.up", path), norm(n, format("%s.ln_2", path), x), NET_WIDTH, 8);
  y = dense(n, format("%s.down", path), in_scope_1(n, &op_tanh, y), 8, NET_WIDTH);
  x = in_scope_2(n, &op_add, x, drop(n, y, p));
  n->scope = outer;
  return x;
}

static inline Graph *network(int blocks, double p) {
  Net n = {.g = new_graph()};
  int tokens = new_tokens(n.g, "tokens", NET_CLASSES, SHAPE(NET_LENGTH));
  int labels = new_tokens(n.g, "labels", NET_CLASSES, SHAPE(NET_LENGTH));
  int counts = apply_in(n.g, 0, &op_iota, NULL, 0, (Attr[MAX_ATTR]){{.number = NET_WIDTH / 2}});
  n.cosines = in_scope_1(&n, &op_cos, counts);
  n.eps = in_scope_2(&n, &op_mul, number(&n, 0.25), number(&n, 0.25));
  int outer = enter(&n, "wte");
  int table = scoped_param(&n, "weight", SHAPE(NET_CLASSES, NET_WIDTH));
  int x = in_scope_2(&n, &op_gather, table, tokens);
  n.scope = outer;
  x = in_scope_2(&n, &op_add, x, scoped_param(&n, "wpe", SHAPE(NET_LENGTH, NET_WIDTH)));
  x = drop(&n, x, p);
  int transposed = in_scope_1(&n, &op_transpose, table); /* read by two distant instances */
  int early = in_scope_1(&n, &op_sum, in_scope_2(&n, &op_matmul, turn(&n, "turn", x), transposed));
  for (int i = 0; i < blocks; i++)
    x = block(&n, i, x, p);
  x = norm(&n, "ln_f", x);
  int logits = in_scope_2(&n, &op_matmul, x, transposed);
  int top = in_scope_1(&n, &op_max, logits);
  int sum = in_scope_1(&n, &op_sum, in_scope_1(&n, &op_exp, in_scope_2(&n, &op_sub, logits, top)));
  Attr column[MAX_ATTR] = {{.n = 2, .list = (int64_t[]){NET_LENGTH, 1}}};
  int hot = in_scope_1(&n, &op_one_hot, apply_in(n.g, 0, &op_reshape, &labels, 1, column));
  int picked = in_scope_1(&n, &op_sum, in_scope_2(&n, &op_mul, hot, in_scope_2(&n, &op_sub, logits, top)));
  add_loss(n.g, in_scope_2(&n, &op_sub, in_scope_1(&n, &op_log, sum), picked));
  add_loss(n.g, in_scope_1(&n, &op_square, in_scope_2(&n, &op_mul, early, number(&n, 0.01))));
  return n.g;
}

#endif
