/* Merges a loop's result with an operand that no later kernel reads: both become one buffer, updated element by
 * element. The gradient of a model's logits, for example, needs no memory of its own. */
#include "fuse/internal.h"

#include <string.h>

enum { NEVER = -1, WEIGHTS = INT32_MAX, SEVERAL = -2 };

/* First and last kernel that use each buffer, numbered through forward and backward; WEIGHTS: the weights pass
 * uses it. */
typedef struct Reuse {
  StageKernels *k;
  int *first, *last;
  int *region; /* the region of all uses, or SEVERAL */
  bool *block; /* a region with several instances ("h.3") uses it */
  bool *fixed; /* setup uses it */
  int *stands; /* the buffer that it shares memory with, or itself */
} Reuse;

static int stands_for(const Reuse *r, int buffer) {
  while (r->stands[buffer] != buffer)
    buffer = r->stands[buffer];
  return buffer;
}

static void note_kernel(Reuse *r, const Kernel *kernel, int time) {
  for (Access a = {0}; next_access(kernel, &a);) {
    int b = a.place->buffer;
    if (r->first[b] == NEVER)
      r->first[b] = time;
    r->region[b] = r->last[b] == NEVER || r->region[b] == kernel->region ? kernel->region : SEVERAL;
    r->last[b] = time > r->last[b] ? time : r->last[b];
    r->block[b] |= r->k->regions.at[kernel->region].index >= 0;
  }
}

static Reuse find_uses(StageKernels *k) {
  size_t n = (size_t)k->buffers.n + 1;
  Reuse r = {.k = k,
             .first = alloc(n * sizeof *r.first),
             .last = alloc(n * sizeof *r.last),
             .region = alloc(n * sizeof *r.region),
             .block = alloc(n),
             .fixed = alloc(n),
             .stands = alloc(n * sizeof *r.stands)};
  for (int i = 0; i < k->buffers.n; i++) {
    r.first[i] = r.last[i] = NEVER;
    r.stands[i] = i;
  }
  for (int i = 0; i < k->forward.n; i++)
    note_kernel(&r, &k->forward.at[i], i);
  const bool *waits = find_waiting(k);
  for (int i = 0; i < k->backward.n; i++)
    note_kernel(&r, &k->backward.at[i], k->split && waits[i] ? WEIGHTS : k->forward.n + i);
  for (int i = 0; i < k->setup.n; i++)
    for (Access a = {0}; next_access(&k->setup.at[i], &a);)
      r.fixed[a.place->buffer] = true;
  return r;
}

static bool same_place(const Place *a, const Place *b) {
  bool same = a->offset == b->offset && a->rank == b->rank;
  for (int i = 0; i < a->rank && same; i++)
    same = a->dim[i] == b->dim[i] && (a->stride[i] == b->stride[i] || a->dim[i] == 1);
  return same;
}

/* By term: it depends on a load from the buffer. */
static bool *find_dependent(const Kernel *kernel, int buffer) {
  bool *depends = alloc((size_t)kernel->terms.n + 1);
  for (int i = 0; i < kernel->terms.n; i++) {
    const Term *t = &kernel->terms.at[i];
    depends[i] = t->kind == TERM_LOAD && t->place.buffer == buffer;
    for (int j = 0; j < t->n_in; j++)
      depends[i] |= depends[t->in[j]];
  }
  return depends;
}

/* Whether the loop reads the operand only at the element that it is about to store, and before the store. Stores
 * are printed in order, after all reductions of a phase. */
static bool reads_before(const Kernel *kernel, int store, int operand) {
  const Store *s = &kernel->stores.at[store];
  for (int i = 0; i < kernel->terms.n; i++) {
    const Term *t = &kernel->terms.at[i];
    if (t->kind == TERM_LOAD && t->place.buffer == operand &&
        (!same_place(&t->place, &s->place) || t->scalar || t->phases >> s->phase > 1))
      return false;
  }
  const bool *dependent = find_dependent(kernel, operand);
  for (int i = 0; i < kernel->stores.n; i++) {
    const Store *other = &kernel->stores.at[i];
    if (i != store &&
        (other->place.buffer == operand || (i > store && other->phase >= s->phase && dependent[other->term])))
      return false;
  }
  return true;
}

/* Whether both are the stage's own buffers, with equal layout and memory of the same kind: within one region, or
 * between regions without several instances. Instances stay equal only if all use their own and their neighbours'
 * buffers alike, and the first and last of a stage have different neighbours. */
static bool alike(const Reuse *r, int operand, int result) {
  const Buffer *x = &r->k->buffers.at[operand], *y = &r->k->buffers.at[result];
  bool made_forward = r->first[operand] < r->k->forward.n && r->first[result] >= r->k->forward.n;
  return x->kind == BUFFER_TEMPORARY && y->kind == BUFFER_TEMPORARY && x->type == TYPE_F32 &&
         y->type == TYPE_F32 && x->bf16 == y->bf16 && x->elements == y->elements && !r->fixed[operand] &&
         !r->fixed[result] && r->region[operand] == r->region[result] &&
         !(r->region[operand] == SEVERAL && (r->block[operand] || r->block[result])) &&
         !(made_forward && r->last[result] == WEIGHTS);
}

static bool may_replace(const Reuse *r, const Kernel *kernel, int time, int store, int operand) {
  const Store *s = &kernel->stores.at[store];
  int result = s->place.buffer;
  bool only = true; /* the loop has no further use of the result */
  for (int i = 0; i < kernel->terms.n; i++)
    only &= kernel->terms.at[i].kind != TERM_LOAD || kernel->terms.at[i].place.buffer != result;
  for (int i = 0; i < kernel->stores.n; i++)
    only &= i == store || kernel->stores.at[i].place.buffer != result;
  return only && operand != result && r->first[operand] < time && r->last[operand] == time &&
         r->first[result] == time && alike(r, operand, result) && reads_before(kernel, store, operand);
}

/* The operand whose buffer the store's result can reuse; -1: none. */
static int find_operand(const Reuse *r, const Kernel *kernel, int time, int store) {
  const Store *s = &kernel->stores.at[store];
  bool scalar = kernel->terms.at[s->term].scalar;
  for (int i = 0; i < kernel->terms.n && !s->accumulate && !scalar; i++) {
    const Term *t = &kernel->terms.at[i];
    if (t->kind == TERM_LOAD && may_replace(r, kernel, time, store, t->place.buffer))
      return t->place.buffer;
  }
  return -1;
}

static void rename_places(const Reuse *r, const Kernel *kernel) {
  for (Access a = {0}; next_access(kernel, &a);)
    a.place->buffer = stands_for(r, a.place->buffer);
}

static void reuse_operands(Reuse *r, const Kernel *kernel, int time) {
  rename_places(r, kernel);
  for (int i = 0; i < kernel->stores.n && kernel->kind == KERNEL_LOOP; i++) {
    int operand = find_operand(r, kernel, time, i);
    if (operand < 0)
      continue;
    int result = kernel->stores.at[i].place.buffer;
    r->last[operand] = r->last[result];
    r->k->buffers.at[operand].then = r->k->buffers.at[result].value;
    r->stands[result] = operand;
    rename_places(r, kernel);
  }
}

/* Whether only its repetition in the backward pass is left (recompute.c). */
static bool is_unused(const Reuse *r, int buffer) {
  return r->first[buffer] == NEVER && !r->fixed[buffer] && r->k->buffers.at[buffer].kind == BUFFER_TEMPORARY;
}

/* Removes buffers that share another buffer's memory, and unused ones. */
static void drop_buffers(const Reuse *r, Placement *places) {
  StageKernels *k = r->k;
  const Kernels *lists[] = {&k->setup, &k->forward, &k->backward};
  Ints *crossing[] = {&k->received, &k->sent, &k->gradients_received, &k->gradients_sent};
  int *now = alloc((size_t)(k->buffers.n + 1) * sizeof *now), n = 0;
  for (int i = 0; i < k->buffers.n; i++) {
    now[i] = n;
    if (r->stands[i] == i && !is_unused(r, i))
      k->buffers.at[n++] = k->buffers.at[i];
  }
  k->buffers.n = n;
  for (int list = 0; list < 3; list++)
    for (int i = 0; i < lists[list]->n; i++)
      for (Access a = {0}; next_access(&lists[list]->at[i], &a);)
        a.place->buffer = now[stands_for(r, a.place->buffer)];
  for (size_t c = 0; c < sizeof crossing / sizeof *crossing; c++)
    for (int i = 0; i < crossing[c]->n; i++)
      crossing[c]->at[i] = now[crossing[c]->at[i]];
  for (int i = 0; i < places->all.n; i++)
    if (places->all.at[i].buffer >= 0)
      places->all.at[i].buffer = now[stands_for(r, places->all.at[i].buffer)];
}

void reuse_buffers(const Fuse *f) {
  StageKernels *k = f->k;
  Reuse r = find_uses(k);
  for (int i = 0; i < k->forward.n; i++)
    reuse_operands(&r, &k->forward.at[i], i);
  for (int i = 0; i < k->backward.n; i++)
    reuse_operands(&r, &k->backward.at[i], k->forward.n + i);
  drop_buffers(&r, f->places);
}
