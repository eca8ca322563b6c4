/* Prints an Allocation and checks it: data that is live at the same time must not overlap. */
#include "allocate/allocation.h"

#include <inttypes.h>
#include <stdlib.h>

void allocation_dump(const StageKernels *k, const Allocation *a, FILE *out) {
  fprintf(out, "allocation stage %d bytes %" PRId64 "\n", k->stage, a->bytes);
  for (int i = 0; i < SECTION_COUNT; i++)
    if (a->section[i].copies > 0)
      fprintf(out, "  section %-18s offset %12" PRId64 " bytes %12" PRId64 " copies %d\n", a->section[i].name,
              a->section[i].offset, a->section[i].bytes, a->section[i].copies);
  for (int i = 0; i < k->regions.n; i++)
    fprintf(out, "  frame %s forward %" PRId64 " backward %" PRId64 "\n", k->regions.at[i].path, a->frame[i],
            a->frame_backward[i]);
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    fprintf(out, "  %s %s region %d offset %" PRId64 " bytes %" PRId64 " stride %" PRId64 " copies %d\n", b->name,
            b->comment, b->region, a->buffer[i].offset, b->elements * element_bytes(b), a->buffer[i].stride,
            a->buffer[i].copies);
  }
}

/* A range of the arena and its time of use; first -1: always. */
typedef struct ArenaRange {
  int64_t from, end;
  int first, last;
  const char *name;
  int replica; /* 1 + the only replica with it; 0: all replicas */
} ArenaRange;
typedef Vec(ArenaRange) ArenaRanges;

static void add_buffer(const StageKernels *k, const Program *p, const Allocation *a, int i, ArenaRanges *ranges) {
  const Buffer *b = &k->buffers.at[i];
  const Location *s = &a->buffer[i];
  const char *name = b->comment ? b->comment : b->name;
  ArenaRange h = {s->offset, s->offset + b->elements * element_bytes(b), -1, -1, name, 0};
  bool temporary = b->kind == BUFFER_TEMPORARY;
  if (temporary && b->region >= 0) {
    int64_t frame = b->backward ? a->frame_backward[b->region] : a->frame[b->region];
    ensure(frame >= 0);
    h.from += frame;
    h.end += frame;
  }
  if (temporary || (b->kind == BUFFER_SAVED && allocation_saved_packed(p, b->chunk)))
    allocation_live_range(k, b, &h.first, &h.last);
  for (int copy = 0; copy < s->copies; copy++) {
    push(ranges, h);
    h.from += s->stride;
    h.end += s->stride;
  }
}

/* Values that only backward reads need a slot per microbatch in flight. With chunks the Program counts them by
 * chunk. */
static void verify_saved(const StageKernels *k, const Program *p, const Allocation *a) {
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_SAVED && !k->recompute && p->chunks == 1 && a->buffer[i].copies < p->in_flight)
      BUG("stage %d: %d copies of '%s', of which %" PRId64 " are in flight", k->stage, a->buffer[i].copies,
          b->comment, p->in_flight);
  }
}

/* Operands of the weights pass keep their slots until that pass; a draining batch holds at most all its turns.
 * Gradients are received one ahead. */
static void verify_late(const StageKernels *k, const Program *p, const Allocation *a) {
  int64_t turns = program_turns(p), held = p->in_flight + p->weights_lag;
  held = p->per_batch && held > turns ? turns : held;
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    bool gradient = b->kind == BUFFER_GRADIENT_RECEIVED || b->kind == BUFFER_GRADIENT_SENT;
    bool kept =
        b->kind == BUFFER_KEPT || b->kind == BUFFER_RECEIVED || b->kind == BUFFER_SENT || b->kind == BUFFER_INPUT;
    int64_t least = gradient ? p->weights_lag + 2 : kept ? held : p->weights_lag + 1;
    if (b->late && (gradient || kept || b->kind == BUFFER_DEFERRED) && a->buffer[i].copies < least)
      BUG("stage %d: %d copies of '%s', which the weights pass reads, instead of %" PRId64, k->stage,
          a->buffer[i].copies, b->comment, least);
  }
}

static int by_place(const void *a, const void *b) {
  const ArenaRange *x = a, *y = b;
  return (x->from > y->from) - (x->from < y->from);
}

/* In order of offset, a range can only overlap later ranges that start before it ends. */
static void verify_apart(const StageKernels *k, const Allocation *a, ArenaRanges *ranges) {
  qsort(ranges->at, (size_t)ranges->n, sizeof *ranges->at, by_place);
  for (int i = 0; i < ranges->n; i++) {
    const ArenaRange *x = &ranges->at[i];
    if (x->from < 0 || x->end > a->bytes || x->from % ALIGNMENT != 0)
      BUG("stage %d: '%s' lies at [%" PRId64 ", %" PRId64 ") of %" PRId64, k->stage, x->name, x->from, x->end,
          a->bytes);
    for (int j = i + 1; j < ranges->n && ranges->at[j].from < x->end; j++) {
      const ArenaRange *y = &ranges->at[j];
      bool together = x->first < 0 || y->first < 0 || (x->first <= y->last && y->first <= x->last);
      together &= !x->replica || !y->replica || x->replica == y->replica;
      if (together && x->from < y->end)
        BUG("stage %d: '%s' and '%s' overlap while both are alive", k->stage, x->name, y->name);
    }
  }
}

void allocation_verify(const StageKernels *k, const Program *p, const Allocation *a) {
  ArenaRanges ranges = {0};
  for (int i = 0; i < k->buffers.n; i++)
    add_buffer(k, p, a, i, &ranges);
  verify_saved(k, p, a);
  verify_late(k, p, a);
  verify_buckets(k, a);
  for (int i = 0; i < a->n_moments; i++) {
    int64_t from = a->section[SECTION_MOMENTS].offset + i * a->part_bytes;
    push(&ranges, (ArenaRange){from, from + a->part_bytes, -1, -1, "moments", 0});
  }
  for (int i = 0; i < a->own_moments.n; i++) {
    const OwnMoment *m = &a->own_moments.at[i];
    push(&ranges, (ArenaRange){m->offset, m->offset + shape_elements(&m->shape) * 4, -1, -1, "moment",
                               a->shard ? m->replica + 1 : 0});
  }
  for (SectionKind kind = SECTION_MASTERS; kind <= SECTION_AVERAGES; kind++) {
    const Section *s = &a->section[kind];
    if (s->copies > 0)
      push(&ranges, (ArenaRange){s->offset, s->offset + s->bytes, -1, -1, s->name, 0});
  }
  const Section *exchanged = &a->section[SECTION_EXCHANGED];
  for (int copy = 0; copy < exchanged->copies; copy++) {
    int64_t at = copy * exchanged->bytes;
    for (int i = 0; i < a->exchanged.n; i++) {
      const Exchanged *e = &a->exchanged.at[i];
      push(&ranges,
           (ArenaRange){at + e->offset, at + e->offset + e->elements * 4, -1, -1, "exchanged gradient", 0});
    }
    at += a->reduced_offset;
    push(&ranges, (ArenaRange){at, at + a->reduced_bytes, -1, -1, "replicas' gradients", 0});
  }
  push(&ranges, (ArenaRange){a->scratch_offset, a->scratch_offset + a->scratch_bytes, -1, -1, "scratch", 0});
  const Section *meeting = &a->section[SECTION_MEETING];
  push(&ranges, (ArenaRange){meeting->offset, meeting->offset + meeting->bytes, -1, -1, meeting->name, 0});
  verify_apart(k, a, &ranges);
}
