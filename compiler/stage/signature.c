/* Signatures of parts of the model: nodes in order, with attributes that decide shapes and places. Values and
 * parameters are numbered on first use. Outside values contribute only what fuse reads of them. */
#include "stage/signature.h"

#include <stdlib.h>
#include <string.h>

#include "fuse/kernel.h"
#include "ops/expression.h"

/* By value of the whole graph: facts that fuse reads regardless of the part. */
typedef struct Facts {
  int *root;       /* the value behind all views */
  int *n_uses;     /* number of readers: nodes, figures, gradients of parameters */
  bool *counts;    /* it depends on element numbers, directly or by element */
  bool *varies;    /* differs between microbatches, which excludes a table */
  bool *statistic; /* computed over samples, and equal for all of them */
  bool *shown;     /* read by a figure, directly or as a view */
  bool *summed;    /* read by a parameter's gradient, directly or as a view */
} Facts;

struct Signer {
  const Graph *g;
  const Pieces *p;
  Signature *node, *value;  /* of a single node or value, without connections */
  bool ordered;             /* values are numbered in the order of their nodes; fuse uses both orders */
  Name *region;             /* by forward node: its region's path */
  Ints *backward;           /* by piece: backward nodes that serve it, in order */
  bool *bf16[N_PRECISIONS]; /* by value; NULL: not computed yet */
  const bool *rounded;      /* the entry of bf16 for the current precision */
  int first, end;           /* forward nodes of the current chunk */
  int chunk, rank;          /* current chunk and signature, from 1 */
  int *number, *in_chunk;   /* by value: its number, and its chunk */
  int *number_of, *in_rank; /* by parameter: its number, and its signature */
  int values, params;       /* counters of numbers */
};

/* ---- hashing ----------------------------------------------------------------------------------- */

static uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

/* One block of MurmurHash3 (Appleby, 2011; 128-bit variant for 64-bit machines), from one word. */
static void sign(Signature *h, uint64_t x) {
  const uint64_t A = 0x87c37b91114253d5u, B = 0x4cf5ad432745937fu;
  h->word[0] = (rotate(h->word[0] ^ rotate(x * A, 31) * B, 27) + h->word[1]) * 5 + 0x52dce729;
  h->word[1] = (rotate(h->word[1] ^ rotate(x * B, 33) * A, 31) + h->word[0]) * 5 + 0x38495ab5;
}

static uint64_t avalanche(uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

static Signature finished(Signature h) {
  h.word[0] += h.word[1];
  h.word[1] += h.word[0];
  return (Signature){{avalanche(h.word[0]), avalanche(h.word[1])}};
}

static void sign_number(Signature *h, int64_t x) { sign(h, (uint64_t)x); }
static void sign_pointer(Signature *h, const void *at) {
  sign(h, (uint64_t)(uintptr_t)at);
} /* names and ops are unique */

static void sign_real(Signature *h, double x) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  sign(h, bits);
}

static void sign_shape(Signature *h, const Shape *s) {
  sign_number(h, s->rank * 2 + s->batched);
  for (int i = 0; i < s->rank; i++)
    sign_number(h, s->dim[i]);
}

static void sign_both(Signature *h, const Signature *of) {
  sign(h, of->word[0]);
  sign(h, of->word[1]);
}

/* ---- facts about the graph --------------------------------------------------------------------- */

static void find_uses(const Graph *g, Facts *f) {
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_in; k++)
      f->n_uses[g->nodes.at[i].in[k]]++;
  for (int i = 0; i < g->params.n; i++)
    for (int u = 0; u < g->params.at[i].gradients.n; u++)
      if (g->params.at[i].gradients.at[u] >= 0) {
        f->n_uses[g->params.at[i].gradients.at[u]]++;
        f->summed[f->root[g->params.at[i].gradients.at[u]]] = true;
      }
  for (int i = 0; i < g->figures.n; i++) {
    f->n_uses[g->figures.at[i].value]++;
    f->shown[f->root[g->figures.at[i].value]] = true;
  }
}

static bool counts_elements(const Graph *g, const Node *n) {
  const Shape *s = &g->values.at[n->out[0]].shape;
  return n->op->kind == OP_POINTWISE &&
         (op_reads_words(n->op, 1u << WORD_ELEMENT) ||
          (op_reads_words(n->op, 1u << WORD_COLUMN) && s->rank > 0 && s->dim[s->rank - 1] == 1));
}

static void find_flows(const Graph *g, Facts *f, const Node *n) {
  bool counts = counts_elements(g, n), from_samples = false;
  bool varies = n->op->source != SOURCE_NONE || n->op->varies || n->op->kind == OP_CALL;
  for (int k = 0; k < n->n_in; k++) {
    int in = n->in[k];
    counts |= n->op->kind == OP_POINTWISE && f->counts[f->root[in]];
    varies |= f->varies[in];
    from_samples |= g->values.at[in].shape.batched || f->statistic[in];
  }
  for (int k = 0; k < n->n_out; k++) {
    bool batched = g->values.at[n->out[k]].shape.batched;
    f->root[n->out[k]] = n->op->kind == OP_VIEW ? f->root[n->in[0]] : n->out[k];
    f->varies[n->out[k]] = varies || batched;
    f->statistic[n->out[k]] = from_samples && !batched;
  }
  f->counts[n->out[0]] = counts;
}

static Facts find_facts(const Graph *g) {
  size_t n = (size_t)g->values.n + 1;
  Facts f = {alloc(n * sizeof(int)), alloc(n * sizeof(int)), alloc(n), alloc(n), alloc(n), alloc(n), alloc(n)};
  for (int i = 0; i < g->nodes.n; i++)
    find_flows(g, &f, &g->nodes.at[i]);
  find_uses(g, &f);
  return f;
}

/* ---- single nodes and values --------------------------------------------------------------------- */

/* Identifies a parameter by its properties, not its index. The key of a random node only selects its numbers.
 * Nodes evaluated once keep the key, because equal ones are shared. */
static Signature node_alone(const Node *n, bool varies) {
  Signature h = {{0}};
  sign_pointer(&h, n->op);
  sign_number(&h, n->n_in);
  sign_number(&h, n->n_out);
  sign_number(&h, n->serves >= 0);
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name && n->op->source != SOURCE_PARAMETER; i++) {
    const Attr *a = &n->attr[i];
    sign_real(&h, a->number);
    sign_pointer(&h, varies && n->op->attr[i].name[0] == '$' ? NULL : a->text);
    sign_number(&h, a->n);
    for (int k = 0; k < a->n; k++)
      sign_number(&h, a->list[k]);
  }
  return finished(h);
}

static Signature value_alone(const Value *v, const Facts *f, int value) {
  Signature h = {{0}};
  sign_number(&h, v->type);
  sign_number(&h, v->classes);
  sign_number(&h, v->output);
  sign_shape(&h, &v->shape);
  sign_number(&h, f->n_uses[value]);
  sign_number(&h, f->counts[value] | f->varies[value] << 1 | f->statistic[value] << 2 | f->shown[value] << 3 |
                      f->summed[value] << 4);
  return finished(h);
}

static bool in_order(const Graph *g) {
  int last = -1;
  for (int i = 0; i < g->nodes.n; i++)
    for (int k = 0; k < g->nodes.at[i].n_out; k++) {
      if (g->nodes.at[i].out[k] <= last)
        return false;
      last = g->nodes.at[i].out[k];
    }
  return true;
}

static Ints *backward_by_piece(const Graph *g, const Pieces *p) {
  Ints *backward = alloc((size_t)p->n * sizeof *backward);
  int *piece = alloc((size_t)g->nodes.n * sizeof *piece);
  for (int k = 0; k < p->n; k++)
    for (int i = p->at[k].first; i < p->at[k].end; i++)
      piece[i] = k;
  for (int i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i].serves >= 0)
      push(&backward[piece[g->nodes.at[i].serves]], i);
  return backward;
}

Signer *signer_new(const Graph *g, const Pieces *p) {
  Signer *s = alloc(sizeof *s);
  size_t nodes = (size_t)g->nodes.n, values = (size_t)g->values.n, params = (size_t)g->params.n + 1;
  *s = (Signer){.g = g,
                .p = p,
                .node = alloc(nodes * sizeof *s->node),
                .value = alloc(values * sizeof *s->value),
                .ordered = in_order(g),
                .region = alloc((size_t)g->n_forward * sizeof *s->region),
                .backward = backward_by_piece(g, p),
                .number = alloc(values * sizeof(int)),
                .in_chunk = alloc(values * sizeof(int)),
                .number_of = alloc(params * sizeof(int)),
                .in_rank = alloc(params * sizeof(int))};
  Facts facts = find_facts(g);
  for (int i = 0; i < g->nodes.n; i++)
    s->node[i] = node_alone(&g->nodes.at[i], facts.varies[g->nodes.at[i].out[0]]);
  for (int v = 0; v < g->values.n; v++)
    s->value[v] = value_alone(&g->values.at[v], &facts, v);
  for (int i = 0; i < g->n_forward; i++)
    s->region[i] = region_path(g->scopes.at[g->nodes.at[i].scope].path);
  return s;
}

/* ---- one part -------------------------------------------------------------------------------------- */

static bool is_here(const Signer *s, int node) {
  int serves = s->g->nodes.at[node].serves, forward = serves >= 0 ? serves : node;
  return forward >= s->first && forward < s->end;
}

static void sign_param(Signer *s, Signature *h, int param) {
  bool new = s->in_rank[param] != s->rank;
  if (new) {
    s->in_rank[param] = s->rank;
    s->number_of[param] = ++s->params;
  }
  sign_number(h, s->number_of[param]);
  if (!new)
    return;
  const Param *p = &s->g->params.at[param];
  sign_shape(h, &p->shape);
  sign_number(h, p->buffer | p->frozen << 1 | p->hidden << 2);
  sign_number(h, p->group);
}

static void sign_value(Signer *s, Signature *h, int value);

/* Adds the visible properties of a value from outside: its views and its source, and whether the forward pass
 * computes it. */
static void sign_outside(Signer *s, Signature *h, int node) {
  const Node *n = &s->g->nodes.at[node];
  if (n->op->kind == OP_VIEW || n->op->kind == OP_SOURCE)
    sign_both(h, &s->node[node]);
  sign_number(h, n->serves >= 0);
  if (n->op->kind == OP_VIEW)
    sign_value(s, h, n->in[0]);
}

/* Adds a value's number; for a new value also its properties. */
static void sign_value(Signer *s, Signature *h, int value) {
  if (value < 0) {
    sign_number(h, 0);
    return;
  }
  bool new = s->in_chunk[value] != s->chunk;
  if (new) {
    s->in_chunk[value] = s->chunk;
    s->number[value] = ++s->values;
  }
  sign_number(h, s->number[value]);
  if (!new)
    return;
  int from = s->g->values.at[value].node;
  bool here = is_here(s, from);
  sign_both(h, &s->value[value]);
  sign_number(h, here | s->rounded[value] << 1);
  if (!s->ordered)
    sign_number(h, value);
  if (s->g->nodes.at[from].op->source == SOURCE_PARAMETER)
    sign_param(s, h, (int)node_int(&s->g->nodes.at[from], "index"));
  if (!here)
    sign_outside(s, h, from);
}

static void sign_values(Signer *s, Signature *h, const int *value, int n) {
  sign_number(h, n);
  for (int i = 0; i < n; i++)
    sign_value(s, h, value[i]);
}

static void sign_node(Signer *s, Signature *h, int node) {
  const Node *n = &s->g->nodes.at[node];
  sign_both(h, &s->node[node]);
  sign_values(s, h, n->in, n->n_in);
  sign_values(s, h, n->out, n->n_out);
}

static void sign_cut(Signer *s, Signature *h, int before) {
  bool real = before > 0 && before < s->p->n;
  sign_number(h, real);
  if (!real)
    return;
  const Piece *p = &s->p->at[before];
  sign_values(s, h, p->crossing.at, p->crossing.n);
  sign_values(s, h, p->gradients.at, p->gradients.n);
  sign_values(s, h, p->returned.at, p->returned.n);
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* The parameters of the pieces, in order of declaration, with repetitions. */
static Ints held(const Signer *s, PieceRange part) {
  Ints params = {0};
  for (int k = part.first; k < part.end; k++)
    for (int i = 0; i < s->p->at[k].params.n; i++)
      push(&params, s->p->at[k].params.at[i]);
  if (params.n)
    qsort(params.at, (size_t)params.n, sizeof *params.at, by_number);
  return params;
}

/* Adds the uses within the part, and uses with a gradient: those of other stages take memory too. */
static void sign_held(Signer *s, Signature *h, PieceRange part) {
  Ints params = held(s, part);
  for (int i = 0; i < params.n; i++) {
    const Param *p = &s->g->params.at[params.at[i]];
    if (i > 0 && params.at[i] == params.at[i - 1])
      continue;
    sign_param(s, h, params.at[i]);
    sign_value(s, h, p->value);
    sign_number(h, p->uses.n);
    for (int u = 0; u < p->uses.n; u++) {
      bool here = is_here(s, p->uses.at[u]), summed = u < p->gradients.n && p->gradients.at[u] >= 0;
      sign_number(h, here | summed << 1);
      if (here && summed)
        sign_value(s, h, p->gradients.at[u]);
    }
  }
  sign_number(h, -1);
}

static void sign_figures(Signer *s, Signature *h) {
  for (int i = 0; i < s->g->figures.n; i++) {
    const Figure *f = &s->g->figures.at[i];
    if (!is_here(s, s->g->values.at[f->value].node))
      continue;
    sign_number(h, f->output != NULL);
    sign_value(s, h, f->value);
  }
  sign_number(h, -1);
}

/* In order; pieces are visited backward because that is mostly sorted. */
static Ints backward_nodes(const Signer *s, PieceRange part) {
  Ints nodes = {0};
  bool sorted = true;
  for (int k = part.end - 1; k >= part.first; k--)
    for (int i = 0; i < s->backward[k].n; i++) {
      int node = s->backward[k].at[i];
      sorted &= nodes.n == 0 || nodes.at[nodes.n - 1] < node;
      push(&nodes, node);
    }
  if (!sorted)
    qsort(nodes.at, (size_t)nodes.n, sizeof *nodes.at, by_number);
  return nodes;
}

static void sign_part(Signer *s, Signature *h, PieceRange part) {
  s->chunk++;
  s->values = 0;
  s->first = s->p->at[part.first].first;
  s->end = s->p->at[part.end - 1].end;
  sign_cut(s, h, part.first);
  sign_cut(s, h, part.end);
  for (int i = s->first; i < s->end; i++) {
    sign_number(h, i > s->first && s->region[i] == s->region[i - 1]);
    sign_node(s, h, i);
  }
  Ints backward = backward_nodes(s, part);
  for (int i = 0; i < backward.n; i++) {
    sign_number(h, s->g->nodes.at[backward.at[i]].serves - s->first);
    sign_node(s, h, backward.at[i]);
  }
  sign_number(h, -1);
  sign_held(s, h, part);
  sign_figures(s, h);
}

Signature sign_parts(Signer *s, const PieceRange *part, int n, Precision precision) {
  Signature h = {{0}};
  if (!s->bf16[precision])
    s->bf16[precision] = values_in_bf16(s->g, precision);
  s->rounded = s->bf16[precision];
  s->rank++;
  s->params = 0;
  for (int i = 0; i < n; i++)
    sign_part(s, &h, part[i]);
  return finished(h);
}

bool signer_same_region(const Signer *s, int a, int b) { return s->region[a] == s->region[b]; }
