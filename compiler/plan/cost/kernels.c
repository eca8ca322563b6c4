/* Seconds of nodes on a GPU: the kernels of the whole model, fused as one stage, priced by their sizes. A loop takes
 * its launch and the bytes that it moves; a product the time of its shape (device/products.c). */
#include <math.h>

#include "fuse/kernel.h"
#include "plan/cost/cost.h"

/* Bytes that a kernel reads and writes. */
typedef struct Bytes {
  double once, each; /* for a microbatch; for each of its samples */
} Bytes;

typedef struct Share {
  int node;
  double part; /* of the kernel's seconds */
} Share;

typedef struct Work {
  int call;             /* its node; -1: a loop */
  Bytes bytes, factors; /* all; those of a call's first two operands */
  double element;       /* bytes of an element of the first operand */
  Vec(Share) shares;    /* of a loop */
} Work;

/* The kernels of a form of the graph, in order. */
typedef struct GraphWork {
  const Graph *g;
  Vec(Work) work;
} GraphWork;

struct KernelWork {
  Vec(GraphWork) graphs;
};

KernelWork *kernel_work_new(void) { return alloc(sizeof(KernelWork)); }

/* ---- kernels of a model ------------------------------------------------------------------------------ */

enum { SAMPLES = 2 }; /* of the microbatch that is fused: sizes are linear in the samples */

Ints kernel_nodes(const StageKernels *k, const Kernel *kernel) {
  const Graph *g = k->graph;
  Ints nodes = {0};
  if (kernel->kind == KERNEL_CALL)
    push(&nodes, (int)(kernel->node - g->nodes.at));
  for (int i = 0; i < kernel->terms.n; i++)
    if (kernel->terms.at[i].node)
      push(&nodes, (int)(kernel->terms.at[i].node - g->nodes.at));
  for (int i = 0; i < kernel->stores.n; i++) {
    int value = k->buffers.at[kernel->stores.at[i].place.buffer].value;
    if (value >= 0)
      push(&nodes, g->values.at[value].node);
  }
  return nodes;
}

/* Elements that a place reaches. */
static double reached(const Place *p) {
  double elements = 1;
  for (int i = 0; i < p->rank; i++)
    elements *= p->stride[i] ? (double)p->dim[i] : 1;
  return elements;
}

static void add_bytes(const StageKernels *k, int buffer, double elements, Bytes *bytes) {
  const Buffer *b = &k->buffers.at[buffer];
  bool batched = b->kind != BUFFER_ACCUMULATOR && b->value >= 0 && k->graph->values.at[b->value].shape.batched;
  double n = fmin(elements, (double)b->elements) * (double)element_bytes(b);
  if (batched)
    bytes->each += n / SAMPLES;
  else
    bytes->once += n;
}

/* Slices of a buffer count up to the whole; sums that continue are read, too. */
static Bytes bytes_of(const StageKernels *k, const Kernel *kernel) {
  const bool *live = live_terms(kernel);
  Bytes bytes = {0};
  Vec(Access) all = {0};
  for (Access a = {0}; next_access(kernel, &a);)
    if (a.write || kernel->kind == KERNEL_CALL || live[a.index])
      push(&all, a);
  for (int i = 0; i < all.n; i++) {
    const Access *a = &all.at[i];
    bool again = false;
    double elements = 0;
    for (int j = 0; j < all.n; j++)
      if (all.at[j].place->buffer == a->place->buffer && all.at[j].write == a->write) {
        again |= j < i;
        elements += reached(all.at[j].place);
      }
    if (again)
      continue;
    bool continues = a->write && k->buffers.at[a->place->buffer].kind == BUFFER_ACCUMULATOR;
    for (int times = 0; times <= continues; times++)
      add_bytes(k, a->place->buffer, elements, &bytes);
  }
  return bytes;
}

/* Divides a loop over the nodes of its own pass: rematerialised nodes belong to the pass before. */
static void share_loop(const StageKernels *k, const Kernel *kernel, int before, Work *w) {
  const Graph *g = k->graph;
  const Ints nodes = kernel_nodes(k, kernel);
  double sum = 0;
  for (int i = 0; i < nodes.n; i++) {
    const Node *n = &g->nodes.at[nodes.at[i]];
    if ((nodes.at[i] >= g->n_forward) != kernel->backward)
      continue;
    double elements = (double)shape_elements(&g->values.at[n->out[0]].shape);
    push(&w->shares, ((Share){nodes.at[i], elements}));
    sum += elements;
  }
  for (int i = 0; i < w->shares.n; i++)
    w->shares.at[i].part /= sum;
  if (w->shares.n == 0)
    push(&w->shares, ((Share){before, 1})); /* with the kernel before */
}

static Work work_of(const StageKernels *k, const Kernel *kernel, int before) {
  Work w = {.call = -1, .bytes = bytes_of(k, kernel)};
  if (kernel->kind == KERNEL_LOOP) {
    share_loop(k, kernel, before, &w);
    return w;
  }
  w.call = (int)(kernel->node - k->graph->nodes.at);
  for (int i = 0; i < 2 && i < kernel->in.n; i++)
    add_bytes(k, kernel->in.at[i].buffer, reached(&kernel->in.at[i]), &w.factors);
  if (kernel->in.n > 0)
    w.element = (double)element_bytes(&k->buffers.at[kernel->in.at[0].buffer]);
  return w;
}

static void add_pass(const StageKernels *k, const Kernels *kernels, int first, GraphWork *to) {
  int before = first;
  for (int i = 0; i < kernels->n; i++) {
    const Kernel *kernel = &kernels->at[i];
    if (kernel_is_collective(kernel))
      continue;
    push(&to->work, work_of(k, kernel, before));
    const Work *last = &to->work.at[to->work.n - 1];
    before = last->call >= 0 ? last->call : last->shares.at[0].node;
  }
}

/* A copy in the arena in use. */
static GraphWork copied(const GraphWork *from) {
  GraphWork to = *from;
  to.work.at = alloc_copy(from->work.at, (size_t)from->work.n * sizeof *from->work.at);
  for (int i = 0; i < to.work.n; i++) {
    Work *w = &to.work.at[i];
    w->shares.at = alloc_copy(w->shares.at, (size_t)w->shares.n * sizeof *w->shares.at);
  }
  return to;
}

/* Kernels are large and needed for their sizes only. */
static const GraphWork *work_of_graph(const Planner *r) {
  KernelWork *known = r->kernel_work;
  for (int i = 0; i < known->graphs.n; i++)
    if (known->graphs.at[i].g == r->g)
      return &known->graphs.at[i];
  Arena *scratch = arena_new(), *lasting = arena_use(scratch);
  ArenaMark mark = arena_mark();
  GraphWork made = {.g = r->g};
  const StageKernels *k = fuse(r->g, r->p, 0, r->p->n, 0, 1, SAMPLES, false, false, r->target);
  add_pass(k, &k->forward, 0, &made);
  add_pass(k, &k->backward, r->g->n_forward, &made);
  arena_use(lasting);
  push(&known->graphs, copied(&made));
  arena_use(scratch);
  arena_release(mark);
  arena_use(lasting);
  return &known->graphs.at[known->graphs.n - 1];
}

/* ---- seconds ----------------------------------------------------------------------------------------- */

static double bytes_at(Bytes bytes, int64_t b) { return bytes.once + bytes.each * (double)b; }

/* Whether rows are not multiples of 16 bytes. The size that samples multiply is never a row's length. */
static bool is_odd(const OpProducts *p, double element) {
  double row = p->samples == SAMPLES_IN_K ? p->m : p->k;
  return fmod(row * element, 16) != 0 || fmod(p->n * element, 16) != 0;
}

static double matrix_seconds(const OpProducts *p, const Work *w, int64_t b, const Rates *rates) {
  double samples = (double)b, all = bytes_at(w->bytes, b), factors = bytes_at(w->factors, b);
  ProductSize size = {.times = p->times * (p->samples == SAMPLES_TIMES ? samples : 1),
                      .m = p->m * (p->samples == SAMPLES_IN_M ? samples : 1),
                      .n = p->n,
                      .k = p->k * (p->samples == SAMPLES_IN_K ? samples : 1),
                      .factor = w->element,
                      .beside = fmax(all - factors, 0),
                      .odd = is_odd(p, w->element)};
  return product_seconds(rates, &size);
}

/* 0: the rate is unknown. */
static double attention_seconds(const OpCost *c, int64_t b, const Rates *rates) {
  const OpProducts *p = &c->products;
  const AttentionRate *rate = &rates->attention[p->backward][p->causal][p->k > 64];
  return rate->rate > 0 ? c->matmul_flops * (double)b / rate->rate * (1 + rate->longer / p->n) : 0;
}

static double call_seconds(const Graph *g, const Work *w, int64_t b, const Rates *rates) {
  const Op *op = g->nodes.at[w->call].op;
  OpCost c = op->cost ? op->cost(g, w->call) : (OpCost){0};
  double bytes = bytes_at(w->bytes, b), samples = (double)b;
  if (c.products.kind == PRODUCTS_OF_MATRICES)
    return matrix_seconds(&c.products, w, b, rates);
  if (c.matmul_flops == 0) /* a lookup moves less than its table */
    return rates->call + fmin(bytes, c.bytes > 0 ? c.bytes * samples : bytes) / rates->copy;
  double seconds = c.products.kind == PRODUCTS_OF_ATTENTION ? attention_seconds(&c, b, rates) : 0;
  if (seconds == 0)
    seconds = samples * (c.matmul_flops / rates->product + c.other_flops / rates->inside);
  return rates->call + fmax(seconds, bytes / rates->stream);
}

double *kernel_seconds(const Planner *r, int64_t b, const Rates *rates) {
  double *seconds = alloc((size_t)(r->g->nodes.n + 1) * sizeof *seconds);
  const GraphWork *all = work_of_graph(r);
  for (int i = 0; i < all->work.n; i++) {
    const Work *w = &all->work.at[i];
    if (w->call >= 0) {
      seconds[w->call] += call_seconds(r->g, w, b, rates);
      continue;
    }
    double loop = rates->loop + bytes_at(w->bytes, b) / rates->stream;
    for (int k = 0; k < w->shares.n; k++)
      seconds[w->shares.at[k].node] += loop * w->shares.at[k].part;
  }
  return seconds;
}
