/* Merges the kernels of a rank's chunks (interleaved schedules). */
#include "fuse/internal.h"

/* Offsets of a chunk's items in the rank's lists. */
typedef struct Merge {
  StageKernels *to;
  const StageKernels *from;
  int chunk, first_region;
  int first[PASS_KINDS]; /* kernels */
  int *buffer;           /* by the chunk's buffer: the rank's buffer */
} Merge;

static int weight_buffer(const StageKernels *k, int param) {
  for (int i = 0; i < k->buffers.n; i++)
    if (is_parameter(k->buffers.at[i].kind) && k->buffers.at[i].param == param)
      return i;
  return -1;
}

/* A parameter has one buffer for all chunks. */
static void merge_buffers(Merge *m) {
  for (int i = 0; i < m->from->buffers.n; i++) {
    Buffer b = m->from->buffers.at[i];
    uint64_t user = (uint64_t)1 << m->chunk;
    m->buffer[i] = is_parameter(b.kind) ? weight_buffer(m->to, b.param) : -1;
    if (m->buffer[i] >= 0) {
      m->to->buffers.at[m->buffer[i]].chunks |= user;
      continue;
    }
    b.chunk = m->chunk;
    b.chunks = is_parameter(b.kind) ? user : 0;
    b.region += b.region >= 0 ? m->first_region : 0;
    if (b.kind >= BUFFER_SAVED && b.kind <= BUFFER_TEMPORARY) {
      b.first += m->first[buffer_made(&b)];
      b.last += m->first[buffer_read_last(&b)];
    }
    push(&m->to->buffers, b);
    m->buffer[i] = m->to->buffers.n - 1;
  }
}

#define COPY(v) ((v)->at = alloc_copy((v)->at, (size_t)(v)->n * sizeof *(v)->at), (v)->room = (v)->n)

static void merge_kernels(const Merge *m, const Kernels *from, Kernels *to) {
  for (int i = 0; i < from->n; i++) {
    Kernel k = from->at[i];
    k.chunk = m->chunk;
    k.region += m->first_region;
    COPY(&k.terms);
    COPY(&k.stores);
    COPY(&k.in);
    COPY(&k.out);
    for (Access a = {0}; next_access(&k, &a);)
      a.place->buffer = m->buffer[a.place->buffer];
    push(to, k);
  }
}

static void merge_regions(const Merge *m) {
  for (int i = 0; i < m->from->regions.n; i++) {
    Region r = m->from->regions.at[i];
    r.chunk = m->chunk;
    for (PassKind pass = 0; pass < PASS_KINDS; pass++) {
      r.first[pass] += m->first[pass];
      r.end[pass] += m->first[pass];
    }
    push(&m->to->regions, r);
  }
}

static void merge_crossing(const Merge *m, const Ints *from, Ints *to) {
  for (int i = 0; i < from->n; i++)
    push(to, m->buffer[from->at[i]]);
}

/* Both lists, and the result, are in order of declaration. */
static Ints merge_params(const Ints *a, const Ints *b) {
  Ints list = {0};
  for (int i = 0, j = 0; i < a->n || j < b->n;) {
    int next = j >= b->n || (i < a->n && a->at[i] <= b->at[j]) ? a->at[i] : b->at[j];
    i += i < a->n && a->at[i] == next;
    j += j < b->n && b->at[j] == next;
    push(&list, next);
  }
  return list;
}

static void merge_chunk(StageKernels *to, const StageKernels *from, int chunk) {
  Merge m = {.to = to, .from = from, .chunk = chunk, .first_region = to->regions.n};
  Chunk c = from->chunks.at[0];
  ensure(from->chunks.n == 1 && from->split == to->split && from->microbatch == to->microbatch &&
         backend_of(&from->target) == backend_of(&to->target) && from->target.threads == to->target.threads &&
         from->target.precision == to->target.precision);
  to->recompute |= from->recompute;
  for (PassKind pass = 0; pass < PASS_KINDS; pass++) {
    m.first[pass] = pass_kernels(to, pass)->n;
    c.first[pass] += m.first[pass];
    c.end[pass] += m.first[pass];
  }
  m.buffer = alloc((size_t)(from->buffers.n + 1) * sizeof *m.buffer);
  merge_buffers(&m);
  merge_regions(&m);
  merge_kernels(&m, &from->setup, &to->setup);
  merge_kernels(&m, &from->forward, &to->forward);
  merge_kernels(&m, &from->backward, &to->backward);
  merge_kernels(&m, &from->weights, &to->weights);
  merge_crossing(&m, &from->received, &to->received);
  merge_crossing(&m, &from->sent, &to->sent);
  merge_crossing(&m, &from->gradients_received, &to->gradients_received);
  merge_crossing(&m, &from->gradients_sent, &to->gradients_sent);
  to->params = merge_params(&to->params, &from->params);
  push(&to->chunks, c);
}

StageKernels *merge_chunks(StageKernels *const *chunk, int n) {
  if (n == 1)
    return chunk[0];
  const StageKernels *first = chunk[0];
  StageKernels *k = alloc(sizeof *k);
  *k = (StageKernels){.graph = first->graph,
                      .stage = first->stage,
                      .n_stages = first->n_stages / n,
                      .microbatch = first->microbatch,
                      .recompute = first->recompute,
                      .split = first->split,
                      .named = first->named,
                      .target = first->target};
  for (int i = 0; i < n; i++)
    merge_chunk(k, chunk[i], i);
  if (k->named)
    find_like_regions(k);
  return k;
}
