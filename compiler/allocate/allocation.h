/* Where everything of a stage lives: static offsets in one arena, 64-byte aligned; the peak is known
 * to the byte before the run.
 * Weights, accumulators, moments and saved values are structs whose members are grouped by region, so
 * that the emitted C can declare them as structs: a member starts at the next multiple of 64 bytes and
 * a struct's size is a multiple of 64. Temporaries are packed by liveness: within a region into the
 * region's frame (equal regions have equal frames), frames and values that pass between regions into
 * the rank's workspace; its chunks never run at the same time. Saved structs take part in that packing, too,
 * where nothing else runs between a microbatch's forward (or recomputation) and its backward; not so what the
 * weights pass reads, which has slots for the microbatches in flight until there. */
#ifndef PDC_ALLOCATION_H
#define PDC_ALLOCATION_H

#include "lower/lower.h"
#include "schedule/program.h"
#include "shared/spilled.h"

enum { ALIGNMENT = 64 };

/* Bytes from the arena's start of copy 0 (of a region's temporary: from its frame), and between copies. */
typedef struct Location {
  int64_t offset;
  int64_t stride;
  int copies;
} Location;

/* The arena's parts, in order and without gaps. An empty part has copies 0. */
typedef enum {
  SECTION_WEIGHTS,
  SECTION_FROZEN,
  SECTION_GRADIENTS,
  SECTION_MOMENTS,
  SECTION_OWN_MOMENTS,
  SECTION_MASTERS,
  SECTION_AVERAGES,
  SECTION_EXCHANGED,
  SECTION_INPUTS,
  SECTION_RECEIVED,
  SECTION_SENT,
  SECTION_GRADIENTS_RECEIVED,
  SECTION_GRADIENTS_SENT,
  SECTION_TABLES,
  SECTION_CACHES,
  SECTION_FIGURES,
  SECTION_SAVED,
  SECTION_KEPT,
  SECTION_DEFERRED,
  SECTION_WORKSPACE,
  SECTION_SCRATCH,
  SECTION_MEETING,
  SECTION_COUNT
} SectionKind;

typedef struct Section {
  const char *name; /* "gradients received" */
  int64_t offset;
  int64_t bytes; /* one copy */
  int copies;
} Section;

/* The gradient of one use of a tied parameter that another stage computes and this one receives. */
typedef struct Exchanged {
  int param, use;
  int64_t offset, elements;
} Exchanged;

/* An optimizer's moment of a parameter, in a shape of its own (optimizers/optimizer.h). Of different replicas' parts
 * of a sharded state, some have the same place. */
typedef struct OwnMoment {
  int param, moment, replica;
  int64_t offset;
  Shape shape;
} OwnMoment;

/* With replicas a rank receives the other replicas' copies of one shard of an accumulator set of `bytes`, to add
 * them up: bytes of a shard, the last of which may be shorter. */
static inline int64_t shard_bytes(int64_t bytes, int replicas) {
  return ((bytes + replicas - 1) / replicas + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* How replicas divide a struct of all updated weights in f32. The struct is a sequence of cells; each replica owns a part of
 * every cell. */
typedef struct Shards {
  int replicas, cells;
  int64_t *at; /* replicas + 1 offsets of each cell's parts, cell after cell */
} Shards;

/* Gradients that replicas exchange together, behind a kernel of the backward pass of a batch's last microbatch. */
typedef struct Bucket {
  int behind; /* nothing behind this kernel touches them */
  int64_t bytes;
} Bucket;

typedef struct Allocation {
  Location *buffer;        /* by buffer index */
  int64_t *frame;          /* by region: its frame's offset in the arena in forward ... */
  int64_t *frame_backward; /* ... and in backward; -1 when the region has none */
  int64_t weights_bytes, accumulators_bytes, saved_bytes; /* one copy */
  int64_t
      moments_bytes;  /* one copy of a moment of all parameters, in their shapes; of masters and averages, too */
  Shards *shard;      /* where replicas share that; else NULL */
  int64_t part_bytes; /* of it in the arena: the largest part, or all of it */
  int n_moments;      /* of such moments; the others: */
  Vec(OwnMoment) own_moments;
  int64_t scratch_offset, scratch_bytes; /* the largest kernel's */
  int64_t meeting_bytes;                 /* the largest of a collective in two; one follows the other */
  Section section[SECTION_COUNT];        /* with several chunks, where each has its own: all of them as one copy */
  Section chunk_section[SECTION_COUNT][MAX_CHUNKS]; /* inputs to gradients sent, saved to deferred: each chunk's */
  Vec(Exchanged) exchanged;                         /* in the first of the section's copies, here and below */
  int64_t reduced_offset, reduced_bytes;            /* the shards of the other replicas, one behind the other */
  Vec(Bucket) buckets;    /* in their order; none or one: gradients are exchanged whole */
  int *bucket;            /* by buffer, of accumulators: the bucket it is in */
  int64_t bytes;          /* the arena */
  int64_t resident_bytes; /* of it in memory at once, at most: all of it, unless the model spills */
  int64_t spilled_bytes;  /* of its blocks that come and go, all together; 0: none do */
  int64_t room;           /* bytes of memory that they have */
  int groups;             /* of parameters that are updated together, where it spills */
} Allocation;

Allocation *allocate(const LoweredStage *stage, const Program *p, const Train *train);
void allocation_dump(const StageKernels *k, const Allocation *a, FILE *out);
/* Nothing overlaps what is live at the same time; else a bug. */
void allocation_verify(const StageKernels *k, const Program *p, const Allocation *a);

/* The member order of the structs: buffers of this kind by region, those of no region last. chunk -1: of all. */
Ints allocation_members(const StageKernels *k, BufferKind kind, int chunk);
/* Slots of what backward reads last, and of nothing later: none waits for the weights pass. */
static inline int allocation_saved_slots(const Program *p, int chunk) {
  int saved = p->slots[chunk].saved;
  return saved < p->in_flight ? saved : (int)p->in_flight;
}
/* Whether these values of a chunk stand in the workspace. */
bool allocation_saved_packed(const Program *p, int chunk);
static inline int64_t buffer_bytes(const Buffer *b) {
  return (b->elements * element_bytes(b) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}
/* The times of a temporary's or saved value's first and last use: one unit a kernel, forward, backward and weights
 * pass one after the other. */
void allocation_live_range(const StageKernels *k, const Buffer *b, int *first, int *last);

/* ---- what comes and goes (spill.c) ------------------------------------------------------------ */

/* Whether gradients of a parameter's uses never leave memory: other stages use it, too, and are sent them. */
bool gradients_stay(const StageKernels *k, int param);
/* Of a rank whose model spills: fills resident_bytes, spilled_bytes and groups. */
void allocate_spilled(const StageKernels *k, const Program *p, Allocation *a);

/* ---- buckets of gradients (buckets.c) ---------------------------------------------------------- */

/* Fills buckets and bucket. Buckets close at Program.bucket bytes; memory does not depend on them. */
void find_buckets(const StageKernels *k, const Program *p, const UpdateRule *rule, Allocation *a);
/* Least bytes of every bucket but the last. */
int64_t least_bucket(const Program *p, const Allocation *a);
/* Each gradient is in a bucket, and complete where that is; else a bug. */
void verify_buckets(const StageKernels *k, const Allocation *a);

/* ---- an optimizer's state in parts (shards.c) -------------------------------------------------- */

/* The runtime works on parameters in tiles of so many elements (PD_TILE of runtime/internal.h); no tile is divided. */
enum { SHARD_TILE = 16384 };
/* Cuts the struct of all updated weights in f32 into one part for each replica, as even as whole tiles allow; a rule over
 * whole tensors needs whole parameters. Weights whose gradients are exchanged together form a cell, and each cell is cut by
 * itself, so every replica adds up a part of each bucket. */
Shards *shard_state(const StageKernels *k, const Program *p, const UpdateRule *rule, const Allocation *a);
/* A replica's bytes of the struct. */
int64_t shard_part(const Shards *s, int replica);
/* The replica that a parameter's element belongs to; `state`: where the parameter stands in the struct. */
int shard_of(const Shards *s, int64_t state, int64_t element);
/* By buffer index: where a weight stands in that struct. */
int64_t *state_offsets(const StageKernels *k);
/* Bytes of the gradients that belong to the part which has most of them: what a rank receives from each other. */
int64_t shard_gradient_bytes(const StageKernels *k, const Shards *shard);

/* ---- packing (pack.c) ------------------------------------------------------------------------ */

/* Bytes that are needed from one time to another. */
typedef struct LiveRange {
  int64_t bytes;   /* a multiple of ALIGNMENT */
  int first, last; /* live in [first, last], in any unit of time */
  int64_t offset;  /* to fill */
} LiveRange;

/* Gives every range an offset such that no two live at the same time overlap; returns the bytes needed.
 * Largest first, each into the smallest gap that holds it (best fit). Deterministic. */
int64_t pack(LiveRange *ranges, int n);

#endif
