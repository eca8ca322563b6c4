/* Packing against brute force, and allocations of models under every schedule. Values alive together never
 * overlap, sections contain their parts, and structs are grouped by region. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocate/allocation.h"
#include "model.h"
#include "plan/request.h"

static uint32_t random_state = 1;

static int random_below(int n) {
  random_state = random_state * 1664525u + 1013904223u;
  return (int)((random_state >> 8) % (uint32_t)n);
}

static bool live_together(const LiveRange *a, const LiveRange *b) {
  return a->first <= b->last && b->first <= a->last;
}

static void test_packed_ranges_do_not_overlap(void **state) {
  (void)state;
  enum { ROUNDS = 400, MOST = 60 };
  for (int round = 0; round < ROUNDS; round++) {
    LiveRange ranges[MOST], again[MOST];
    int n = 1 + random_below(MOST), end = 1 + random_below(40);
    for (int i = 0; i < n; i++) {
      int first = random_below(end);
      ranges[i] = (LiveRange){64 * (1 + random_below(50)), first, first + random_below(end), -1};
    }
    memcpy(again, ranges, sizeof ranges);
    int64_t bytes = pack(ranges, n), live = 0;
    assert_int_equal(pack(again, n), bytes);
    for (int i = 0; i < n; i++) {
      assert_int_equal(ranges[i].offset, again[i].offset);
      assert_int_equal(ranges[i].offset % ALIGNMENT, 0);
      assert_true(ranges[i].offset >= 0 && ranges[i].offset + ranges[i].bytes <= bytes);
      for (int j = 0; j < i; j++)
        assert_true(!live_together(&ranges[i], &ranges[j]) ||
                    ranges[i].offset + ranges[i].bytes <= ranges[j].offset ||
                    ranges[j].offset + ranges[j].bytes <= ranges[i].offset);
    }
    for (int t = 0; t < 2 * end; t++) {
      int64_t now = 0;
      for (int i = 0; i < n; i++)
        now += ranges[i].first <= t && t <= ranges[i].last ? ranges[i].bytes : 0;
      live = now > live ? now : live;
    }
    assert_true(bytes >= live && bytes <= 2 * live);
  }
}

static void test_ranges_of_different_times_share(void **state) {
  (void)state;
  LiveRange ranges[] = {{640, 0, 1, -1}, {320, 2, 3, -1}, {640, 4, 4, -1}};
  assert_int_equal(pack(ranges, 3), 640);
  assert_int_equal(pack(ranges, 0), 0);
}

typedef struct Case {
  int stages;
  const char *schedule;
  int64_t microbatch;
  bool recompute;
  void (*change)(Program *);  /* NULL: the schedule's own */
  int chunks;                 /* 0: one */
  const Optimizer *optimizer; /* NULL: AdamW */
} Case;

/* Calls `check` for every stage of the small model, cut evenly. */
static void each_stage(Case c, void (*check)(const StageKernels *, const Program *, const Allocation *)) {
  Graph *g = model_build((ModelOptions){.blocks = 4, .skip = true, .tied = true, .batch = 8, .clip = 1});
  Pieces p = cut(g);
  if (c.optimizer)
    optimizer_set(&g->train, c.optimizer);
  StagePlan stages[8];
  int chunks = c.chunks ? c.chunks : 1, parts = c.stages * chunks;
  for (int i = 0; i < parts; i++)
    stages[i] = (StagePlan){.first_piece = p.n * i / parts, .end_piece = p.n * (i + 1) / parts};
  Pipeline pipeline = pipeline_make(intern(c.schedule), c.stages, chunks);
  for (int i = 0; i < c.stages; i++)
    pipeline.recompute[i] = c.recompute && (chunks > 1 || i + 1 < c.stages);
  pipeline.vertical_sync = true;
  Plan plan = {.model = g->name,
               .pipeline = pipeline_at(&pipeline, 8, c.microbatch),
               .target = {.threads = 1},
               .stage = stages};
  Program *programs = schedule(&plan.pipeline, plan_exchanges(g, &p, &plan), NO_SPAN);
  assert_non_null(programs);
  for (int i = 0; i < c.stages; i++) {
    if (c.change)
      c.change(&programs[i]);
    StageKernels *chunk[8];
    for (int j = 0; j < chunks; j++) {
      int part = part_of(c.stages, i, j);
      const StagePlan *s = &stages[part];
      chunk[j] = fuse(g, &p, s->first_piece, s->end_piece, part, parts, c.microbatch, pipeline.recompute[i],
                      programs[i].split_backward, plan.target);
    }
    StageKernels *k = merge_chunks(chunk, chunks);
    check(k, &programs[i], allocate(lower(k), &programs[i], &g->train));
  }
}

static void check_allocation(const StageKernels *k, const Program *p, const Allocation *a) {
  allocation_verify(k, p, a);
  int64_t end = 0;
  for (int i = 0; i < SECTION_COUNT; i++) {
    assert_int_equal(a->section[i].offset, end);
    assert_int_equal(a->section[i].bytes % ALIGNMENT, 0);
    end += a->section[i].bytes * a->section[i].copies;
  }
  assert_int_equal(end, a->bytes);
  assert_int_equal(a->section[SECTION_WEIGHTS].copies, p->versions);
  assert_int_equal(a->section[SECTION_MOMENTS].copies, 2);
  assert_int_equal(a->section[SECTION_MOMENTS].bytes, a->weights_bytes);
  if (a->section[SECTION_SAVED].copies)
    assert_int_equal(a->section[SECTION_SAVED].copies, p->in_flight);
  Ints weights = allocation_members(k, BUFFER_WEIGHT, -1);
  for (int i = 1; i < weights.n; i++) {
    int before = k->buffers.at[weights.at[i - 1]].region, region = k->buffers.at[weights.at[i]].region;
    assert_true(region < 0 || (before >= 0 && before <= region));
    assert_true(a->buffer[weights.at[i]].offset > a->buffer[weights.at[i - 1]].offset);
  }
}

/* Row and column sums, a number, and a moment of the parameter's shape: possible state of a whole-tensor
 * optimizer. */
static Shape one_number(const Param *of) {
  (void)of;
  return (Shape){.rank = 0};
}
static Shape rows_of(const Param *of) { return (Shape){.rank = 1, .dim = {of->shape.dim[0]}}; }

/* Larger than any kernel's workspace, for the largest parameter. */
static int64_t much(const Param *of, const Library *library) {
  (void)library;
  return (int64_t)1 << 20 | shape_elements(&of->shape);
}

static const UpdateRule factored = {.name = "factored",
                                    .whole_tensors = true,
                                    .n_moments = 3,
                                    .traffic = 4,
                                    .scratch = much,
                                    .moment_shape = {rows_of, NULL, one_number}};
static const Optimizer optimizer_factored = {.name = "factored", .rule = &factored};

static void check_own_moments(const StageKernels *k, const Program *p, const Allocation *a) {
  allocation_verify(k, p, a);
  const Section *own = &a->section[SECTION_OWN_MOMENTS];
  assert_int_equal(a->section[SECTION_MOMENTS].copies, 1);
  assert_int_equal(a->section[SECTION_MOMENTS].bytes, a->weights_bytes);
  assert_int_equal(own->copies, 1);
  assert_int_equal(own->offset, a->section[SECTION_MOMENTS].offset + a->weights_bytes);
  assert_int_equal(a->own_moments.n, 2 * k->params.n);
  int64_t at = own->offset;
  for (int i = 0; i < a->own_moments.n; i++) {
    const OwnMoment *m = &a->own_moments.at[i];
    assert_int_equal(m->param, k->params.at[i / 2]);
    assert_int_equal(m->moment, i % 2 ? 2 : 0);
    assert_int_equal(m->offset, at);
    assert_int_equal(shape_elements(&m->shape), i % 2 ? 1 : k->graph->params.at[m->param].shape.dim[0]);
    at += (shape_elements(&m->shape) * 4 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
  assert_int_equal(own->bytes, at - own->offset);
  for (int i = 0; i < k->params.n; i++)
    assert_true(a->scratch_bytes >= much(&k->graph->params.at[k->params.at[i]], NULL));
}

static void test_moments_of_shapes_of_their_own(void **state) {
  (void)state;
  for (int stages = 1; stages <= 3; stages++)
    each_stage((Case){stages, "2bw", 2, false, NULL, 0, &optimizer_factored}, check_own_moments);
}

static void test_allocations_of_every_schedule(void **state) {
  (void)state;
  static const char *const schedules[] = {"sequential", "gpipe", "flush", "2bw", "pipedream", "zb_h1"};
  for (int stages = 1; stages <= 4; stages++)
    for (int s = 0; s < 6; s++)
      for (int recompute = 0; recompute < (s == 5 ? 1 : 2); recompute++)
        each_stage((Case){stages, schedules[s], 2, recompute, NULL, 0, NULL}, check_allocation);
}

/* ---- exchange between replicas --------------------------------------------------------------------------- */

static int early_buckets;
static int64_t whole_bytes; /* of the arena without buckets; 0: unknown yet */

static int last_touch(const StageKernels *k, int buffer) {
  int last = -1;
  for (int i = 0; i < k->backward.n; i++)
    last = kernel_touches(&k->backward.at[i], buffer) ? i : last;
  return last;
}

/* A gradient's bucket completes after its last kernel, and not within a block printed as one call. It closes at
 * the first such place at which it is large enough. */
static void check_bucket(const StageKernels *k, const Program *p, const Allocation *a, int bucket) {
  const int behind = a->buckets.at[bucket].behind, before = bucket ? a->buckets.at[bucket - 1].behind : -1;
  int64_t bytes = 0, earlier = 0; /* all bytes; bytes complete before its last place */
  int place = -1;
  for (int r = 0; r < k->regions.n; r++)
    assert_true(k->regions.at[r].index < 0 || behind < k->regions.at[r].first[PASS_BACKWARD] ||
                behind >= k->regions.at[r].end[PASS_BACKWARD] - 1);
  for (int i = 0; i < k->buffers.n; i++) {
    if (k->buffers.at[i].kind != BUFFER_ACCUMULATOR || a->bucket[i] != bucket)
      continue;
    const int last = last_touch(k, i), region = k->backward.at[last].region;
    const bool called = region >= 0 && k->regions.at[region].index >= 0;
    const int complete = called ? k->regions.at[region].end[PASS_BACKWARD] - 1 : last;
    assert_true(complete > before && complete <= behind);
    bytes += buffer_bytes(&k->buffers.at[i]);
    earlier += complete < behind ? buffer_bytes(&k->buffers.at[i]) : 0;
    place = complete > place ? complete : place;
  }
  assert_int_equal(place, behind);
  assert_int_equal(bytes, a->buckets.at[bucket].bytes);
  assert_true(bucket + 1 == a->buckets.n || bytes >= p->bucket);
  assert_true(earlier < p->bucket || a->buckets.n == MOST_BUCKETS);
  early_buckets += behind + 1 < k->backward.n;
}

static void check_buckets(const StageKernels *k, const Program *p, const Allocation *a) {
  allocation_verify(k, p, a);
  assert_true(a->buckets.n > 0 && a->buckets.n <= MOST_BUCKETS);
  for (int b = 0; b < a->buckets.n; b++)
    check_bucket(k, p, a, b);
  assert_int_equal(a->bytes, whole_bytes);
}

static void test_buckets_close_as_gradients_are_complete(void **state) {
  (void)state;
  for (int round = 0; round < 120; round++) {
    Graph *g = model_build((ModelOptions){
        .blocks = 1 + random_below(12), .skip = random_below(2), .tied = random_below(2), .batch = 12, .clip = 1});
    Pieces pieces = cut(g);
    const int stages = 1 + random_below(pieces.n < 3 ? pieces.n : 3), replicas = 2 + random_below(2);
    Pipeline pipeline = pipeline_make(intern("flush"), stages, 1);
    StagePlan stage[3];
    for (int i = 0; i < stages; i++) {
      stage[i] = (StagePlan){.first_piece = pieces.n * i / stages, .end_piece = pieces.n * (i + 1) / stages};
      pipeline.replicas[i] = replicas;
    }
    Plan plan = {
        .model = g->name, .pipeline = pipeline_at(&pipeline, 12, 2), .target = {.threads = 1}, .stage = stage};
    for (int i = 0; i < stages; i++) {
      StageKernels *k =
          fuse(g, &pieces, stage[i].first_piece, stage[i].end_piece, i, stages, 2, false, false, plan.target);
      LoweredStage *l = lower(k);
      for (int whole = 1; whole >= 0; whole--) {
        plan.pipeline.bucket = whole ? (int64_t)1 << 30 : 1 + random_below(9000);
        const Program *programs = schedule(&plan.pipeline, plan_exchanges(g, &pieces, &plan), NO_SPAN);
        assert_int_equal(programs[i].bucket, plan.pipeline.bucket);
        const Allocation *a = allocate(l, &programs[i], &g->train);
        whole_bytes = whole ? a->bytes : whole_bytes;
        check_buckets(k, &programs[i], a);
      }
    }
  }
  assert_true(early_buckets > 100);
}

/* Computes weight gradients three microbatches later. */
static void split(Program *p) {
  p->split_backward = true;
  p->weights_lag = 3;
  p->slots[0] = (Slots){.saved = (int)p->in_flight + 3,
                        .received = (int)p->in_flight + 4,
                        .sent = (int)p->in_flight + 3,
                        .gradients = 5,
                        .returned = 5,
                        .inputs = (int)p->in_flight + 3,
                        .deferred = 4};
}

static int deferred_kernels;

static void check_deferred(const StageKernels *k, const Program *p, const Allocation *a) {
  kernels_verify(k);
  allocation_verify(k, p, a);
  deferred_kernels += k->weights.n;
  assert_int_equal(a->section[SECTION_DEFERRED].copies, allocation_members(k, BUFFER_DEFERRED, -1).n ? 4 : 0);
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_DEFERRED)
      assert_int_equal(a->buffer[i].stride, a->section[SECTION_DEFERRED].bytes);
    if (b->kind == BUFFER_KEPT)
      assert_int_equal(a->buffer[i].copies, p->in_flight + p->weights_lag);
    if (b->kind == BUFFER_SAVED)
      assert_int_equal(a->buffer[i].copies, p->in_flight);
  }
}

static void test_what_the_weights_pass_reads_lasts(void **state) {
  (void)state;
  for (int stages = 1; stages <= 3; stages++) {
    deferred_kernels = 0;
    each_stage((Case){stages, "flush", 2, false, split, 0, NULL}, check_deferred);
    assert_int_equal(deferred_kernels, 6); /* four blocks' weights, the table's two uses */
  }
}

/* A batch with fewer microbatches than stages drains before the weights pass reaches its full lag. */
static void test_short_batches_hold_their_turns_at_most(void **state) {
  (void)state;
  for (int64_t microbatch = 4; microbatch <= 8; microbatch += 4)
    for (int stages = 2; stages <= 4; stages++)
      each_stage((Case){stages, "zb_h1", microbatch, false, NULL, 0, NULL}, check_allocation);
}

static void too_few_slots(Program *p) {
  split(p);
  p->slots[0].deferred = p->slots[0].saved = p->slots[0].inputs = 3;
}

static void expect_bug(const StageKernels *k, const Program *p, const Allocation *a) {
  pid_t pid = fork();
  if (pid == 0) {
    fclose(stderr);
    allocation_verify(k, p, a);
    _exit(0);
  }
  int status;
  waitpid(pid, &status, 0);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 70);
}

static void test_verify_finds_too_few_slots(void **state) {
  (void)state;
  each_stage((Case){2, "flush", 2, false, too_few_slots, 0, NULL}, expect_bug);
}

/* Every chunk has its slots. Values of different chunks are separate, or share only the workspace. */
static void check_chunks(const StageKernels *k, const Program *p, const Allocation *a) {
  kernels_verify(k);
  allocation_verify(k, p, a);
  for (int c = 0; c < p->chunks; c++) {
    const Section *received = &a->chunk_section[SECTION_RECEIVED][c], *saved = &a->chunk_section[SECTION_SAVED][c];
    assert_int_equal(received->copies, c || p->stage ? p->slots[c].received : 0);
    assert_int_equal(saved->copies, allocation_saved_packed(p, c) ? 0 : p->slots[c].saved);
    for (int i = 0; i < k->buffers.n; i++) {
      const Buffer *b = &k->buffers.at[i];
      if (b->kind == BUFFER_SAVED && b->chunk == c && saved->copies)
        assert_true(a->buffer[i].offset >= saved->offset && a->buffer[i].offset < saved->offset + saved->bytes);
    }
  }
  int64_t end = 0;
  for (int i = 0; i < SECTION_COUNT; i++) {
    assert_int_equal(a->section[i].offset, end);
    end += a->section[i].bytes * a->section[i].copies;
  }
  assert_int_equal(end, a->bytes);
}

static void test_chunks_have_slots_of_their_own(void **state) {
  (void)state;
  for (int recompute = 0; recompute < 2; recompute++)
    each_stage((Case){2, "interleaved", 1, recompute, NULL, 2, NULL}, check_chunks);
}

static void replicate(Program *p) {
  p->replicas = 3;
  p->exchanges = 2;
}

static void check_replicas(const StageKernels *k, const Program *p, const Allocation *a) {
  allocation_verify(k, p, a);
  assert_int_equal(a->section[SECTION_EXCHANGED].copies, 2);
  assert_int_equal(a->reduced_bytes % (2 * ALIGNMENT), 0);
  assert_true(3 * a->reduced_bytes >= 2 * a->accumulators_bytes);
  assert_true(3 * (a->reduced_bytes - 2 * ALIGNMENT) < 2 * a->accumulators_bytes);
  int64_t start = a->section[SECTION_EXCHANGED].offset;
  assert_int_equal(a->reduced_offset + a->reduced_bytes, start + a->section[SECTION_EXCHANGED].bytes);
}

static void test_other_replicas_gradients_have_room(void **state) {
  (void)state;
  each_stage((Case){2, "2bw", 1, false, replicate, 0, NULL}, check_replicas);
}

/* ---- replicas with sharded optimizer state ---- */

static void share(Program *p) {
  replicate(p);
  p->sharded = true;
}

/* Every tile, or for a whole-tensor rule every weight, belongs to exactly the part with its middle. */
static void check_parts(const StageKernels *k, const Allocation *a, int replicas, bool whole) {
  const int64_t *offset = state_offsets(k), all = offset[k->buffers.n];
  const Shards *s = a->shard;
  int64_t most = 0, gradients[3] = {0};
  assert_int_equal(s->replicas, replicas);
  assert_int_equal(a->moments_bytes, all);
  for (int c = 0; c < s->cells; c++)
    assert_int_equal(s->at[c * (replicas + 1)], c ? s->at[c * (replicas + 1) - 1] : 0);
  assert_int_equal(s->at[s->cells * (replicas + 1) - 1], all);
  for (int r = 0; r < replicas; r++)
    most = shard_part(s, r) > most ? shard_part(s, r) : most;
  assert_int_equal(a->part_bytes, most);
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    int64_t unit = whole ? b->elements : SHARD_TILE;
    int c = 0;
    while (b->kind == BUFFER_WEIGHT && s->at[c * (replicas + 1) + replicas] <= offset[i])
      c++;
    const int64_t *cell = s->at + (ptrdiff_t)c * (replicas + 1), cell_bytes = cell[replicas] - cell[0];
    for (int64_t first = 0; first < b->elements && b->kind == BUFFER_WEIGHT; first += unit) {
      int64_t n = b->elements - first < unit ? b->elements - first : unit, bytes = (4 * n + 63) / 64 * 64;
      int64_t middle = offset[i] + 4 * first + bytes / 2 - cell[0], replica = middle * replicas / cell_bytes;
      assert_int_equal(shard_of(s, offset[i], first), replica);
      assert_int_equal(shard_of(s, offset[i], first + n - 1), replica);
      for (int j = 0; j < k->buffers.n; j++) /* each use has a gradient of this size */
        gradients[replica] +=
            k->buffers.at[j].kind == BUFFER_ACCUMULATOR && k->buffers.at[j].param == b->param ? bytes : 0;
    }
  }
  most = 0;
  for (int r = 0; r < replicas; r++)
    most = gradients[r] > most ? gradients[r] : most;
  assert_int_equal(a->reduced_bytes, (replicas - 1) * most);
}

static void check_shared(const StageKernels *k, const Program *p, const Allocation *a) {
  allocation_verify(k, p, a);
  check_parts(k, a, p->replicas, false);
  assert_int_equal(a->section[SECTION_MOMENTS].copies, 2);
  assert_int_equal(a->section[SECTION_MOMENTS].bytes, a->part_bytes);
  assert_true(a->part_bytes < a->moments_bytes);
}

/* Moments of different replicas may share places; those of one replica are consecutive. */
static void check_shared_tensors(const StageKernels *k, const Program *p, const Allocation *a) {
  allocation_verify(k, p, a);
  check_parts(k, a, p->replicas, true);
  const Section *own = &a->section[SECTION_OWN_MOMENTS];
  int64_t at[3] = {own->offset, own->offset, own->offset}, most = 0;
  for (int i = 0; i < a->own_moments.n; i++) {
    const OwnMoment *m = &a->own_moments.at[i];
    assert_int_equal(m->offset, at[m->replica]);
    at[m->replica] += (shape_elements(&m->shape) * 4 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    most = at[m->replica] > most ? at[m->replica] : most;
  }
  assert_true(at[0] > own->offset && at[1] > own->offset && at[2] > own->offset);
  assert_int_equal(own->bytes, most - own->offset);
}

static void test_replicas_share_the_optimizers_state(void **state) {
  (void)state;
  each_stage((Case){1, "2bw", 1, false, share, 0, NULL}, check_shared);
  each_stage((Case){2, "2bw", 1, false, share, 0, NULL}, check_shared);
  each_stage((Case){2, "2bw", 1, false, share, 0, &optimizer_factored}, check_shared_tensors);
}

static int seen_exchanged;

static void count_exchanged(const StageKernels *k, const Program *p, const Allocation *a) {
  (void)k, (void)p;
  seen_exchanged += a->exchanged.n;
}

static void test_tied_gradients_of_other_stages_have_room(void **state) {
  (void)state;
  seen_exchanged = 0;
  each_stage((Case){1, "flush", 2, false, NULL, 0, NULL}, count_exchanged);
  assert_int_equal(seen_exchanged, 0);
  each_stage((Case){3, "flush", 2, false, NULL, 0, NULL}, count_exchanged);
  assert_int_equal(seen_exchanged, 2); /* the first stage receives from the last, and the last from the first */
}

static void break_allocation(const StageKernels *k, const Program *p, const Allocation *a) {
  for (int i = 0; i < k->buffers.n; i++)
    for (int j = 0; j < i; j++)
      if (k->buffers.at[i].kind == BUFFER_WEIGHT && k->buffers.at[j].kind == BUFFER_WEIGHT) {
        Allocation broken = *a;
        broken.buffer = alloc_copy(a->buffer, (size_t)k->buffers.n * sizeof *a->buffer);
        broken.buffer[i] = broken.buffer[j];
        expect_bug(k, p, &broken);
        return;
      }
}

static void test_verify_finds_an_overlap(void **state) {
  (void)state;
  each_stage((Case){1, "2bw", 4, false, NULL, 0, NULL}, break_allocation);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_packed_ranges_do_not_overlap),
      cmocka_unit_test(test_ranges_of_different_times_share),
      cmocka_unit_test(test_buckets_close_as_gradients_are_complete),
      cmocka_unit_test(test_allocations_of_every_schedule),
      cmocka_unit_test(test_moments_of_shapes_of_their_own),
      cmocka_unit_test(test_what_the_weights_pass_reads_lasts),
      cmocka_unit_test(test_short_batches_hold_their_turns_at_most),
      cmocka_unit_test(test_verify_finds_too_few_slots),
      cmocka_unit_test(test_chunks_have_slots_of_their_own),
      cmocka_unit_test(test_other_replicas_gradients_have_room),
      cmocka_unit_test(test_replicas_share_the_optimizers_state),
      cmocka_unit_test(test_tied_gradients_of_other_stages_have_room),
      cmocka_unit_test(test_verify_finds_an_overlap),
  };
  return cmocka_run_group_tests_name("allocate", tests, NULL, NULL);
}
