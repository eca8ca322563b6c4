/* The kernels of a rank that holds several parts of the model (interleaved schedules), from those of each. */
#include "fuse/internal.h"

/* Where a chunk's parts come to stand among the rank's. */
typedef struct Join {
  StageKernels *to;
  const StageKernels *from;
  int chunk, first_region;
  int first[PASS_KINDS]; /* kernels */
  int *buffer;           /* by the chunk's buffer: the rank's */
} Join;

static int weight_buffer(const StageKernels *k, int param) {
  for (int i = 0; i < k->buffers.n; i++)
    if (k->buffers.at[i].kind == BUFFER_WEIGHT && k->buffers.at[i].param == param)
      return i;
  return -1;
}

/* A parameter has one buffer however many chunks read it. */
static void join_buffers(Join *j) {
  for (int i = 0; i < j->from->buffers.n; i++) {
    Buffer b = j->from->buffers.at[i];
    j->buffer[i] = b.kind == BUFFER_WEIGHT ? weight_buffer(j->to, b.param) : -1;
    if (j->buffer[i] >= 0)
      continue;
    b.chunk = j->chunk;
    b.region += b.region >= 0 ? j->first_region : 0;
    bool made_backward = b.kind == BUFFER_DEFERRED || (b.kind == BUFFER_TEMPORARY && b.backward);
    bool read_backward = b.kind == BUFFER_SAVED || b.kind == BUFFER_KEPT || made_backward;
    if (read_backward || b.kind == BUFFER_TEMPORARY) {
      b.first += j->first[made_backward ? PASS_BACKWARD : PASS_FORWARD];
      b.last += j->first[b.late ? PASS_WEIGHTS : read_backward ? PASS_BACKWARD : PASS_FORWARD];
    }
    push(&j->to->buffers, b);
    j->buffer[i] = j->to->buffers.n - 1;
  }
}

#define COPY(v) ((v)->at = alloc_copy((v)->at, (size_t)(v)->n * sizeof *(v)->at), (v)->room = (v)->n)

static void join_kernels(const Join *j, const Kernels *from, Kernels *to) {
  for (int i = 0; i < from->n; i++) {
    Kernel k = from->at[i];
    k.chunk = j->chunk;
    k.region += j->first_region;
    COPY(&k.terms);
    COPY(&k.stores);
    COPY(&k.in);
    COPY(&k.out);
    for (Access a = {0}; next_access(&k, &a);)
      a.place->buffer = j->buffer[a.place->buffer];
    push(to, k);
  }
}

static void join_regions(const Join *j) {
  for (int i = 0; i < j->from->regions.n; i++) {
    Region r = j->from->regions.at[i];
    r.chunk = j->chunk;
    for (PassKind pass = 0; pass < PASS_KINDS; pass++) {
      r.first[pass] += j->first[pass];
      r.end[pass] += j->first[pass];
    }
    push(&j->to->regions, r);
  }
}

static void join_crossing(const Join *j, const Ints *from, Ints *to) {
  for (int i = 0; i < from->n; i++)
    push(to, j->buffer[from->at[i]]);
}

/* Both in order of declaration. */
static Ints join_params(const Ints *a, const Ints *b) {
  Ints list = {0};
  for (int i = 0, j = 0; i < a->n || j < b->n;) {
    int next = j >= b->n || (i < a->n && a->at[i] <= b->at[j]) ? a->at[i] : b->at[j];
    i += i < a->n && a->at[i] == next;
    j += j < b->n && b->at[j] == next;
    push(&list, next);
  }
  return list;
}

static void join_chunk(StageKernels *to, const StageKernels *from, int chunk) {
  Join j = {.to = to, .from = from, .chunk = chunk, .first_region = to->regions.n};
  Chunk c = from->chunks.at[0];
  ensure(from->chunks.n == 1 && from->split == to->split && from->microbatch == to->microbatch &&
         from->target.kind == to->target.kind && from->target.threads == to->target.threads &&
         from->target.precision == to->target.precision);
  to->recompute |= from->recompute;
  for (PassKind pass = 0; pass < PASS_KINDS; pass++) {
    j.first[pass] = pass_kernels(to, pass)->n;
    c.first[pass] += j.first[pass];
    c.end[pass] += j.first[pass];
  }
  j.buffer = alloc((size_t)(from->buffers.n + 1) * sizeof *j.buffer);
  join_buffers(&j);
  join_regions(&j);
  join_kernels(&j, &from->setup, &to->setup);
  join_kernels(&j, &from->forward, &to->forward);
  join_kernels(&j, &from->backward, &to->backward);
  join_kernels(&j, &from->weights, &to->weights);
  join_crossing(&j, &from->received, &to->received);
  join_crossing(&j, &from->sent, &to->sent);
  join_crossing(&j, &from->gradients_received, &to->gradients_received);
  join_crossing(&j, &from->gradients_sent, &to->gradients_sent);
  to->params = join_params(&to->params, &from->params);
  push(&to->chunks, c);
}

StageKernels *join_chunks(StageKernels *const *chunk, int n) {
  if (n == 1)
    return chunk[0];
  const StageKernels *first = chunk[0];
  StageKernels *k = alloc(sizeof *k);
  *k = (StageKernels){.graph = first->graph, .stage = first->stage, .n_stages = first->n_stages / n,
                      .microbatch = first->microbatch, .recompute = first->recompute, .split = first->split,
                      .target = first->target};
  for (int i = 0; i < n; i++)
    join_chunk(k, chunk[i], i);
  find_like_regions(k);
  return k;
}
