/* Printing a Layout, and checking it: every pair of places that are alive together. */
#include "allocate/layout.h"

#include <inttypes.h>
#include <stdlib.h>

void layout_dump(const StageKernels *k, const Layout *l, FILE *out) {
  fprintf(out, "layout stage %d bytes %" PRId64 "\n", k->stage, l->bytes);
  for (int i = 0; i < SECTION_COUNT; i++)
    if (l->section[i].copies > 0)
      fprintf(out, "  section %-18s offset %12" PRId64 " bytes %12" PRId64 " copies %d\n", l->section[i].name,
              l->section[i].offset, l->section[i].bytes, l->section[i].copies);
  for (int i = 0; i < k->regions.n; i++)
    fprintf(out, "  frame %s forward %" PRId64 " backward %" PRId64 "\n", k->regions.at[i].path, l->frame[i],
            l->frame_backward[i]);
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    fprintf(out, "  %s %s region %d offset %" PRId64 " bytes %" PRId64 " stride %" PRId64 " copies %d\n",
            b->name, b->comment, b->region, l->buffer[i].offset, b->elements * element_bytes(b),
            l->buffer[i].stride, l->buffer[i].copies);
  }
}

/* A range of the arena and when it is in use; first -1: always. */
typedef struct Held { int64_t from, end; int first, last; const char *name; } Held;
typedef Vec(Held) Helds;

static void hold_buffer(const StageKernels *k, const Program *p, const Layout *l, int i, Helds *held) {
  const Buffer *b = &k->buffers.at[i];
  const Spot *s = &l->buffer[i];
  Held h = {s->offset, s->offset + b->elements * element_bytes(b), -1, -1, b->comment ? b->comment : b->name};
  bool temporary = b->kind == BUFFER_TEMPORARY;
  if (temporary && b->region >= 0) {
    int64_t frame = b->backward ? l->frame_backward[b->region] : l->frame[b->region];
    ensure(frame >= 0);
    h.from += frame;
    h.end += frame;
  }
  if (temporary || (b->kind == BUFFER_SAVED && layout_saved_packed(p, b->chunk)))
    layout_life(k, b, &h.first, &h.last);
  for (int copy = 0; copy < s->copies; copy++) {
    push(held, h);
    h.from += s->stride;
    h.end += s->stride;
  }
}

/* Slots of what only backward reads: as many as are in flight. With chunks the Program has them by chunk. */
static void verify_saved(const StageKernels *k, const Program *p, const Layout *l) {
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_SAVED && !k->recompute && p->chunks == 1 && l->buffer[i].copies < p->in_flight)
      BUG("stage %d: %d copies of '%s', of which %" PRId64 " are in flight", k->stage, l->buffer[i].copies,
          b->comment, p->in_flight);
  }
}

/* Slots of what the weights pass reads last until it comes; a batch that drains holds no more than all its turns.
 * Gradients are received one ahead. */
static void verify_late(const StageKernels *k, const Program *p, const Layout *l) {
  int64_t turns = program_turns(p), held = p->in_flight + p->weights_lag;
  held = p->per_batch && held > turns ? turns : held;
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    bool gradient = b->kind == BUFFER_GRADIENT_RECEIVED || b->kind == BUFFER_GRADIENT_SENT;
    bool kept = b->kind == BUFFER_KEPT || b->kind == BUFFER_RECEIVED || b->kind == BUFFER_SENT ||
                b->kind == BUFFER_INPUT;
    int64_t least = gradient ? p->weights_lag + 2 : kept ? held : p->weights_lag + 1;
    if (b->late && (gradient || kept || b->kind == BUFFER_DEFERRED) && l->buffer[i].copies < least)
      BUG("stage %d: %d copies of '%s', which the weights pass reads, instead of %" PRId64, k->stage,
          l->buffer[i].copies, b->comment, least);
  }
}

static int by_place(const void *a, const void *b) {
  const Held *x = a, *y = b;
  return (x->from > y->from) - (x->from < y->from);
}

/* In order of place a range can overlap only those behind it that start before it ends. */
static void verify_apart(const StageKernels *k, const Layout *l, Helds *held) {
  qsort(held->at, (size_t)held->n, sizeof *held->at, by_place);
  for (int i = 0; i < held->n; i++) {
    const Held *a = &held->at[i];
    if (a->from < 0 || a->end > l->bytes || a->from % ALIGNMENT != 0)
      BUG("stage %d: '%s' lies at [%" PRId64 ", %" PRId64 ") of %" PRId64, k->stage, a->name, a->from, a->end,
          l->bytes);
    for (int j = i + 1; j < held->n && held->at[j].from < a->end; j++) {
      const Held *b = &held->at[j];
      bool together = a->first < 0 || b->first < 0 || (a->first <= b->last && b->first <= a->last);
      if (together && a->from < b->end)
        BUG("stage %d: '%s' and '%s' overlap while both are alive", k->stage, a->name, b->name);
    }
  }
}

void layout_verify(const StageKernels *k, const Program *p, const Layout *l) {
  Helds held = {0};
  for (int i = 0; i < k->buffers.n; i++)
    hold_buffer(k, p, l, i, &held);
  verify_saved(k, p, l);
  verify_late(k, p, l);
  for (int i = 0; i < l->n_moments; i++) {
    int64_t from = l->section[SECTION_MOMENTS].offset + i * l->moments_bytes;
    push(&held, (Held){from, from + l->moments_bytes, -1, -1, "moments"});
  }
  for (int i = 0; i < l->own_moments.n; i++) {
    const OwnMoment *m = &l->own_moments.at[i];
    push(&held, (Held){m->offset, m->offset + shape_elements(&m->shape) * 4, -1, -1, "moment"});
  }
  const Section *masters = &l->section[SECTION_MASTERS];
  if (masters->copies > 0)
    push(&held, (Held){masters->offset, masters->offset + masters->bytes, -1, -1, "masters"});
  const Section *exchanged = &l->section[SECTION_EXCHANGED];
  for (int copy = 0; copy < exchanged->copies; copy++) {
    int64_t at = copy * exchanged->bytes;
    for (int i = 0; i < l->exchanged.n; i++) {
      const Exchanged *e = &l->exchanged.at[i];
      push(&held, (Held){at + e->offset, at + e->offset + e->elements * 4, -1, -1, "exchanged gradient"});
    }
    at += l->reduced_offset;
    push(&held, (Held){at, at + l->reduced_bytes, -1, -1, "replicas' gradients"});
  }
  push(&held, (Held){l->scratch_offset, l->scratch_offset + l->scratch_bytes, -1, -1, "scratch"});
  verify_apart(k, l, &held);
}
