/* Attention that is written as products, softmax(q k^T + ..) v: a value's axis of keys has all positions, those behind
 * the query's too. They must not count: a mask hides them before the softmax. */
#include "decode/internal.h"
#include "graph/interpret.h"
#include "ops/rules.h"
#include "pd_kernels.h"

/* ---- masks ------------------------------------------------------------------------------------------- */

/* A pointwise result [.., query, .., key, ..], and an operand. */
typedef struct Causal {
  const Graph *g;
  int operand;
  int64_t context, query, key; /* strides in the operand; 0: all are alike */
} Causal;

/* False: the operand is a sample's, or has further axes. */
static bool causal_new(const Graph *g, int node, int operand, int found, int keys, Causal *c) {
  const Shape *s = in_shape(g, node, operand), *to = out_shape(g, node, 0);
  int64_t stride = 1;
  *c = (Causal){.g = g, .operand = g->nodes.at[node].in[operand], .context = to->dim[keys]};
  for (int right = 1; right <= s->rank; right++) {
    const int64_t size = s->dim[s->rank - right];
    const int axis = to->rank - right;
    if (size > 1 && axis == found)
      c->query = stride;
    else if (size > 1 && axis == keys)
      c->key = stride;
    else if (size > 1)
      return false;
    stride *= size;
  }
  return !s->batched;
}

static bool at(const Causal *c, int64_t query, int64_t key, double *x) {
  return interpret_element(c->g, c->operand, query * c->query + key * c->key, x);
}

/* Whether f holds for every key behind its query. Of each query the keys at distances 1, 2, 4, .. and the last are looked
 * at, and of the first query all. */
static bool behind_all(const Causal *c, bool (*f)(double x)) {
  const int64_t last = c->context - 1;
  double x;
  for (int64_t query = 0; query < last; query++) {
    for (int64_t far = 1; query + far < last; far = query ? 2 * far : far + 1)
      if (!at(c, query, query + far, &x) || !f(x))
        return false;
    if (!at(c, query, last, &x) || !f(x))
      return false;
  }
  return true;
}

static bool is_true(double x) { return x != 0; }
static bool is_false(double x) { return x == 0; }
static bool is_hidden(double x) { return x <= (double)PD_ATTENTION_HIDDEN; }

/* The state of select(condition, a, b) where the condition chooses a constant for keys behind the query. */
static KeysState select_state(const Graph *g, int node, int found, int keys) {
  const Node *n = &g->nodes.at[node];
  Causal c;
  double x;
  for (int side = 1; side <= 2; side++)
    if (causal_new(g, node, 0, found, keys, &c) && interpret_element(g, n->in[side], 0, &x) &&
        shape_elements(in_shape(g, node, side)) == 1 && (x == 0 || is_hidden(x)) &&
        behind_all(&c, side == 1 ? is_true : is_false))
      return x == 0 ? KEYS_ZERO : KEYS_HIDDEN;
  return KEYS_SEEN;
}

/* ---- pointwise operations ---------------------------------------------------------------------------- */

static KeysState pointwise_state(const Graph *g, int node, const Keys *of, int found, int keys) {
  const Node *n = &g->nodes.at[node];
  const KeysState first = n->n_in && of[0].axis >= 0 ? of[0].state : KEYS_SEEN;
  Causal c;
  if (n->op == &op_select)
    return select_state(g, node, found, keys);
  if (n->op == &op_exp)
    return first == KEYS_HIDDEN ? KEYS_ZERO : KEYS_SEEN;
  if (n->op == &op_sub || n->op == &op_div || n->op == &op_dropout)
    return n->op == &op_sub ? (first == KEYS_HIDDEN ? first : KEYS_SEEN) : first == KEYS_ZERO ? first : KEYS_SEEN;
  for (int i = 0; i < n->n_in; i++) {
    const bool has = of[i].axis >= 0;
    if (n->op == &op_mul && has && of[i].state == KEYS_ZERO)
      return KEYS_ZERO;
    if (n->op == &op_add && ((has && of[i].state == KEYS_HIDDEN) ||
                             (!has && causal_new(g, node, i, found, keys, &c) && behind_all(&c, is_hidden))))
      return KEYS_HIDDEN;
  }
  return KEYS_SEEN;
}

static bool pointwise_keys(const Graph *g, int node, const Keys *of, int found, Keys *to) {
  const Node *n = &g->nodes.at[node];
  const int rank = out_shape(g, node, 0)->rank;
  for (int i = 0; i < n->n_in; i++) {
    const int here = of[i].axis < 0 ? -1 : rank - (in_shape(g, node, i)->rank - of[i].axis);
    if (here < 0)
      continue;
    if (here == found || (to->axis >= 0 && here != to->axis))
      return false;
    to->axis = here;
  }
  to->state = pointwise_state(g, node, of, found, to->axis);
  return true;
}

/* ---- products, reductions, views ------------------------------------------------------------------------ */

/* Scores of a query's row with all keys, or a sum of all values by their probabilities. */
static int product_keys(const Graph *g, int node, const int *axis, const Keys *of, Keys *to, int *whole) {
  const int a = in_shape(g, node, 0)->rank, b = in_shape(g, node, 1)->rank, rank = out_shape(g, node, 0)->rank;
  if (axis[0] != a - 2 || axis[1] < 0 || of[1].axis >= 0)
    return -1;
  *whole = 1;
  if (of[0].axis < 0 && axis[1] == b - 1) {
    *to = (Keys){rank - 1, KEYS_SEEN};
    return rank - 2;
  }
  return of[0].axis == a - 1 && of[0].state == KEYS_ZERO && axis[1] == b - 2 ? rank - 2 : -1;
}

/* Over keys, hidden ones do not change a maximum of which one is seen, and zeros no sum. */
static bool reduce_keys(const Graph *g, int node, const Keys *of, Keys *to) {
  const Op *op = g->nodes.at[node].op;
  if (of->axis < in_shape(g, node, 0)->rank - 1) {
    *to = (Keys){of->axis, KEYS_SEEN};
    return true;
  }
  return op == &op_max ? of->state == KEYS_HIDDEN : op == &op_sum && of->state == KEYS_ZERO;
}

int decode_keys(const Graph *g, int node, const int *axis, const Keys *of, int found, Keys *to, int *whole) {
  const Node *n = &g->nodes.at[node];
  *to = (Keys){-1, KEYS_SEEN};
  *whole = -1;
  bool any = false;
  for (int i = 0; i < n->n_in; i++)
    any |= of[i].axis >= 0;
  if (n->op == &op_matmul && (any || axis[1] >= 0))
    return product_keys(g, node, axis, of, to, whole);
  if (!any || found < 0)
    return found;
  switch (n->op->kind) {
  case OP_POINTWISE: return pointwise_keys(g, node, of, found, to) ? found : -1;
  case OP_REDUCE: return reduce_keys(g, node, of, to) ? found : -1;
  case OP_VIEW:
    *to = (Keys){n->n_out == 1 ? view_axis(g, node, 0, of->axis) : -1, of->state};
    return to->axis >= 0 ? found : -1;
  default: return -1;
  }
}
