/* Finds the residual stream, chooses the part that stays in f32, and makes its rounded copies for library calls.
 *
 * A block ends in the sum of its bypass and the result of its library calls. The stream consists of bypasses,
 * these sums, and the gradients of both. A sum or gradient with a single reader does not count, because one loop
 * makes and uses it without rounding. The definition depends on the graph alone, with or without dropout, so cuts
 * and recomputation change no bits.
 *
 * RESIDUAL_F32 uses the types of PyTorch's autocast. Results of calls, and loops over them, are bf16. Embedding
 * rows, norms over a sample's own values, and sums with positions or with another f32 value are f32. A gradient
 * has its value's type. */
#include "residual/residual.h"

#include "ops/op.h"
#include "ops/rules.h"
#include "ops/scan.h"
#include "simplify/rewrite.h"

/* By value; views share the entry of their root (see behind()). */
typedef struct Stream {
  const Graph *g;
  bool *narrow; /* of forward values: bf16 in autocast */
  int *calls;   /* of forward values: library calls on the longest path to it */
  bool *leads;  /* of forward values: a library call depends on it */
  int *readers; /* number of reading nodes in its own direction */
  bool *member;
  bool *wide;       /* of members: stays in f32 */
  int *gradient_of; /* of members: the value that it is the gradient of, or -1 */
} Stream;

static int behind(const Graph *g, int value) {
  while (maker(g, value)->op->kind == OP_VIEW)
    value = maker(g, value)->in[0];
  return value;
}

/* Whether the node computes products in bf16, instead of only copying. */
static bool is_narrow_call(const Node *n) {
  return n->op->kind == OP_CALL && !(n->op->stays_f32 && n->op->stays_f32(n, true, 0));
}

/* Whether the node sums a bias gradient for a call; its input is shared with the call's other gradients. */
static bool is_bias_gradient(const Graph *g, const Node *n) {
  if (n->op != &op_sum_to || n->serves < 0 || !g->nodes.at[n->serves].op->adds_bias)
    return false;
  const Node *add = &g->nodes.at[n->serves];
  return maker(g, add->in[0])->op->takes_bias || maker(g, add->in[1])->op->takes_bias;
}

static bool reads_narrow(const Graph *g, const Node *n, int k) {
  return (n->op->kind == OP_CALL && !(n->op->stays_f32 && n->op->stays_f32(n, false, k))) ||
         is_bias_gradient(g, n);
}

/* Whether x is like positions: sample-independent, not a vector, with a number for each element of a sample. */
static bool is_position(const Shape *x, const Shape *of) {
  return !x->batched && x->rank > 1 && shape_elements(x) == shape_elements(of);
}

static bool is_narrow(const Stream *s, const Node *n) {
  const Graph *g = s->g;
  bool any = false;
  if (is_narrow_call(n))
    return true;
  for (int k = 0; k < n->n_in && n->op->kind != OP_REDUCE; k++) {
    const Value *v = &g->values.at[n->in[k]];
    bool counts = v->type == TYPE_F32 && v->shape.batched;
    if (is_position(&v->shape, &g->values.at[n->out[0]].shape) || (counts && !s->narrow[n->in[k]]))
      return false;
    any |= counts;
  }
  return any && n->op->kind != OP_REDUCE;
}

static void follow_forward(Stream *s) {
  const Graph *g = s->g;
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    bool narrow = is_narrow(s, n);
    int calls = 0;
    for (int k = 0; k < n->n_in; k++)
      calls = s->calls[n->in[k]] > calls ? s->calls[n->in[k]] : calls;
    for (int k = 0; k < n->n_out; k++) {
      s->narrow[n->out[k]] = narrow;
      s->calls[n->out[k]] = calls + is_narrow_call(n);
    }
  }
  for (int i = g->n_forward - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    bool leads = is_narrow_call(n);
    for (int k = 0; k < n->n_out; k++)
      leads |= s->leads[n->out[k]];
    for (int k = 0; k < n->n_in; k++)
      s->leads[n->in[k]] |= leads;
  }
}

static bool reads(const Graph *g, const Node *n, int root, int inputs) {
  for (int k = 0; k < inputs; k++)
    if (behind(g, n->in[k]) == root)
      return true;
  return false;
}

static void count_readers(Stream *s) {
  const Graph *g = s->g;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    for (int k = 0; k < n->n_in && n->op->kind != OP_VIEW; k++) {
      int root = behind(g, n->in[k]);
      if (is_forward(g, g->values.at[root].node) == is_forward(g, i) && !reads(g, n, root, k))
        s->readers[root]++;
    }
  }
}

/* The operand that bypasses the block at whose end this node adds; -1: not the end of a block. */
static int passing(const Stream *s, const Node *n) {
  if (n->op != &op_add || !s->leads[n->out[0]])
    return -1;
  const Shape *sum = &s->g->values.at[n->out[0]].shape;
  for (int k = 0; k < 2; k++)
    if (!sum->batched || !shape_equal(&s->g->values.at[n->in[k]].shape, sum))
      return -1;
  int more = s->calls[n->in[1]] - s->calls[n->in[0]];
  return more > 0 ? 0 : more < 0 ? 1 : -1;
}

/* `of`: the value that it is the gradient of, or -1. */
static void add_member(Stream *s, int value, bool wide, int of) {
  int root = behind(s->g, value);
  const Value *v = &s->g->values.at[root];
  if (v->type != TYPE_F32 || !v->shape.batched || is_narrow_call(maker(s->g, root)))
    return;
  s->member[root] = true;
  s->wide[root] |= wide;
  s->gradient_of[root] = of;
}

/* The sum over all uses of the value; -1: none. */
static int whole_gradient(const Value *v) {
  for (int u = 0; u < v->gradients.n; u++)
    if (v->gradients.at[u] >= 0)
      return v->gradients.at[u];
  return -1;
}

/* Adds a value of the stream and its gradient; `always`: even with a single reader. */
static void add_with_gradient(Stream *s, int value, Residual kept, bool always) {
  bool wide = kept == RESIDUAL_F32 && !s->narrow[value];
  int gradient = whole_gradient(&s->g->values.at[value]);
  if (always || s->readers[behind(s->g, value)] > 1)
    add_member(s, value, wide, -1);
  if (gradient >= 0 && (always || s->readers[behind(s->g, gradient)] > 1))
    add_member(s, gradient, wide, value);
}

/* States of loops over time stay in f32, with rounded copies for other calls. */
static void add_states(Stream *s) {
  for (int i = 0; i < s->g->nodes.n; i++) {
    const Node *n = &s->g->nodes.at[i];
    for (int k = 0; k < n->n_out && n->op->loops; k++)
      s->wide[n->out[k]] |= k >= scan_body(s->g, n)->loop.stacked;
  }
}

static Stream find_stream(const Graph *g, Residual kept) {
  size_t values = (size_t)g->values.n + 1;
  Stream s = {.g = g,
              .narrow = alloc(values),
              .calls = alloc(values * sizeof *s.calls),
              .leads = alloc(values),
              .readers = alloc(values * sizeof *s.readers),
              .member = alloc(values),
              .wide = alloc(values),
              .gradient_of = alloc(values * sizeof *s.gradient_of)};
  follow_forward(&s);
  count_readers(&s);
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    int past = passing(&s, n);
    if (past >= 0) {
      add_with_gradient(&s, n->in[past], kept, s.readers[behind(g, n->in[past])] > 1);
      add_with_gradient(&s, n->out[0], kept, false);
    }
  }
  add_states(&s);
  return s;
}

/* ---- rounded copies ----------------------------------------------------------------------------- */

/* Whether the operand is the initial value of a loop's state: the loop reads a copy in f32. */
static bool is_initial(const Graph *g, const Node *n, int k) {
  const ScanLoop *l = n->op->loops ? &scan_body(g, n)->loop : NULL;
  int initial = l ? l->states - __builtin_popcountll(l->zeros) : 0;
  return l && k >= l->scanned && k < l->scanned + initial;
}

/* Rounded copy for calls. Forward calls share one; backward calls share one unless a cut may separate them. */
typedef struct RoundedCopy {
  int of, part, made;
} RoundedCopy;

typedef struct Rounding {
  Rewrite *w;
  const Stream *s;
  int *part; /* by run: the first run that no cut separates from it (Op.stays) */
  Vec(RoundedCopy) copies;
} Rounding;

static void join_runs(Rounding *r) {
  const Graph *g = r->w->from;
  const int *run = r->w->run;
  int runs = g->n_forward ? run[g->n_forward - 1] + 1 : 0;
  r->part = alloc((size_t)(runs + 1) * sizeof *r->part);
  for (int i = 0; i < runs; i++)
    r->part[i] = i;
  for (int i = 0; i < g->n_forward; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++) {
      const Node *from = maker(g, g->nodes.at[i].in[k]);
      for (int at = run[g->values.at[from->out[0]].node]; from->op->stays && at <= run[i]; at++)
        r->part[at] = r->part[run[g->values.at[from->out[0]].node]];
    }
}

static Name copy_name(const Rounding *r, int value) {
  const Graph *g = r->w->from;
  int of = r->s->gradient_of[behind(g, value)];
  return of < 0 ? internf("%s_bf16", g->values.at[value].name) : internf("d_%s_bf16", g->values.at[of].name);
}

static int rounded_copy(Rounding *r, int node, int value) {
  Rewrite *w = r->w;
  int part = is_forward(w->from, node) ? -1 : r->part[w->run[node]];
  for (int i = 0; i < r->copies.n; i++)
    if (r->copies.at[i].of == value && r->copies.at[i].part == part)
      return r->copies.at[i].made;
  int made = graph_output(w->to, rewrite_insert(w, node, &op_rounded, &w->value[value], 1, NULL), 0);
  w->to->values.at[made].name = copy_name(r, value);
  push(&r->copies, (RoundedCopy){value, part, made});
  return made;
}

static void copy_node(Rounding *r, int node) {
  Rewrite *w = r->w;
  const Node *n = &w->from->nodes.at[node];
  int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
  for (int k = 0; k < n->n_in; k++)
    in[k] = is_initial(w->from, n, k)
                ? graph_output(w->to, rewrite_insert(w, node, &op_rounded, &w->value[n->in[k]], 1, NULL), 0)
            : reads_narrow(w->from, n, k) && r->s->wide[behind(w->from, n->in[k])]
                ? rounded_copy(r, node, n->in[k])
                : w->value[n->in[k]];
  rewrite_copy(w, node, in, node);
}

static bool any_copy(const Stream *s) {
  for (int i = 0; i < s->g->nodes.n; i++)
    for (int k = 0; k < s->g->nodes.at[i].n_in; k++)
      if ((reads_narrow(s->g, &s->g->nodes.at[i], k) && s->wide[behind(s->g, s->g->nodes.at[i].in[k])]) ||
          is_initial(s->g, &s->g->nodes.at[i], k))
        return true;
  return false;
}

static void write_copies(Graph *g, const Stream *s) {
  if (!any_copy(s))
    return;
  Rounding r = {.w = rewrite_begin(g), .s = s};
  join_runs(&r);
  for (int i = 0; i < g->nodes.n; i++)
    copy_node(&r, i);
  rewrite_finish(r.w);
}

void round_residuals(Graph *g, Residual kept) {
  const Stream s = find_stream(g, kept);
  write_copies(g, &s);
}

void mark_residuals(Graph *g, Residual kept) {
  const Stream s = find_stream(g, kept);
  for (int v = 0; v < g->values.n; v++)
    g->values.at[v].bf16 = s.member[v] && !s.wide[v];
  write_copies(g, &s);
}
