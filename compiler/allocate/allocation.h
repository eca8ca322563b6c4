/* The place of all data of a stage: static offsets in one arena, 64-byte aligned. The peak is known to the byte
 * before the run. Weights, accumulators, moments and saved values are structs whose members are grouped by region.
 * Members start at multiples of 64 bytes, and struct sizes are such multiples, so the emitted C can declare the
 * structs. Temporaries are packed by live range: within a region into the region's frame (equal regions have equal
 * frames). Frames and values between regions are packed into the rank's workspace; its chunks never run at the
 * same time. Saved structs are packed there, too, if no kernel runs between a microbatch's forward (or
 * recomputation) and its backward. Operands of the weights pass have slots for the microbatches in flight until
 * that pass. */
#ifndef PDC_ALLOCATION_H
#define PDC_ALLOCATION_H

#include "base/pack.h"
#include "lower/lower.h"
#include "schedule/program.h"
#include "shared/spilled.h"

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

/* An optimizer's moment of a parameter, in a shape of its own (optimizers/optimizer.h). Moments of different
 * replicas may have the same place. */
typedef struct OwnMoment {
  int param, moment, replica;
  int64_t offset;
  Shape shape;
} OwnMoment;

/* Each replica receives one shard of an accumulator set of `bytes` from every replica, to reduce it: bytes of a shard;
 * the last shard may be shorter. */
static inline int64_t shard_bytes(int64_t bytes, int replicas) {
  return ((bytes + replicas - 1) / replicas + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Shards of a struct of all updated weights in f32. The struct is a sequence of cells; each replica owns a shard of
 * every cell. */
typedef struct Shards {
  int replicas, cells;
  int64_t *at; /* replicas + 1 offsets of each cell's parts, cell after cell */
} Shards;

/* Gradients that replicas exchange in one message, after a kernel of the backward pass of a batch's last microbatch. */
typedef struct Bucket {
  int behind; /* no later kernel uses the gradients */
  int64_t bytes;
} Bucket;

typedef struct Allocation {
  Location *buffer;        /* by buffer index */
  int64_t *frame;          /* by region: its frame's offset in the arena in forward ... */
  int64_t *frame_backward; /* ... and in backward; -1 when the region has none */
  int64_t weights_bytes, accumulators_bytes, saved_bytes; /* one copy */
  int64_t
      moments_bytes;  /* one copy of a moment of all parameters, in their shapes; of masters and averages, too */
  Shards *shard;      /* NULL: the optimizer state is not sharded */
  int64_t part_bytes; /* bytes of the state in the arena: the largest shard, or the whole state */
  int n_moments;      /* moments in the parameters' shapes; own_moments have their own shapes */
  Vec(OwnMoment) own_moments;
  int64_t scratch_offset, scratch_bytes; /* the largest kernel's */
  int64_t meeting_bytes;                 /* largest buffer of a collective in two parts, which run in sequence */
  /* with several chunks, sections that each chunk has: all of them as one copy */
  Section section[SECTION_COUNT];
  Section chunk_section[SECTION_COUNT][MAX_CHUNKS]; /* inputs to gradients sent, saved to deferred: each chunk's */
  Vec(Exchanged) exchanged;                         /* in the first of the section's copies, here and below */
  int64_t reduced_offset, reduced_bytes;            /* shards received from the other replicas, in sequence */
  Vec(Bucket) buckets;    /* in their order; none or one: gradients are exchanged whole */
  int *bucket;            /* by buffer, of accumulators: the bucket it is in */
  int64_t bytes;          /* the arena */
  int64_t resident_bytes; /* most resident bytes of the arena; under offload less than `bytes` */
  int64_t spilled_bytes;  /* offload: bytes of all offloaded blocks; 0: none */
  int64_t room;           /* offload: resident bytes for those blocks */
  int groups;             /* offload: groups of parameters that are updated together */
} Allocation;

Allocation *allocate(const LoweredStage *stage, const Program *p, const Train *train);
void allocation_dump(const StageKernels *k, const Allocation *a, FILE *out);
/* BUG() if buffers overlap that are live at the same time. */
void allocation_verify(const StageKernels *k, const Program *p, const Allocation *a);

/* Members of a struct in order: buffers of this kind by region, then buffers without a region. chunk -1: all chunks. */
Ints allocation_members(const StageKernels *k, BufferKind kind, int chunk);
/* Slots of values that backward reads last; no slot waits for the weights pass. */
static inline int allocation_saved_slots(const Program *p, int chunk) {
  int saved = p->slots[chunk].saved;
  return saved < p->in_flight ? saved : (int)p->in_flight;
}
/* Whether a chunk's saved values are in the workspace. */
bool allocation_saved_packed(const Program *p, int chunk);
static inline int64_t buffer_bytes(const Buffer *b) {
  return (b->elements * element_bytes(b) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}
/* The times of a temporary's or saved value's first and last use: one unit per kernel, through forward, backward
 * and weights pass. */
void allocation_live_range(const StageKernels *k, const Buffer *b, int *first, int *last);

/* ---- offload (spill.c) ------------------------------------------------------------ */

/* Whether the gradients of a parameter stay resident, because they are sent to other stages that use the parameter. */
bool gradients_stay(const StageKernels *k, int param);
/* For a rank with offload: fills resident_bytes, spilled_bytes and groups. */
void allocate_spilled(const StageKernels *k, const Program *p, Allocation *a);

/* ---- buckets of gradients (buckets.c) ---------------------------------------------------------- */

/* Fills buckets and bucket. Buckets close at Program.bucket bytes; memory does not depend on them. */
void find_buckets(const StageKernels *k, const Program *p, const UpdateRule *rule, Allocation *a);
/* Least bytes of every bucket except the last. */
int64_t least_bucket(const Program *p, const Allocation *a);
/* BUG() if a gradient is in no bucket, or not complete at its bucket. */
void verify_buckets(const StageKernels *k, const Allocation *a);

/* ---- optimizer shards (shards.c) -------------------------------------------------- */

/* Elements of the runtime's tiles of parameters (PD_TILE of runtime/internal.h); shards contain whole tiles. */
enum { SHARD_TILE = 16384 };
/* Divides the struct of all updated weights in f32 into one shard per replica, as evenly as whole tiles allow; a rule over
 * whole tensors needs whole parameters. Weights of one bucket form a cell, and each cell is divided separately, so every
 * replica reduces a shard of each bucket. */
Shards *shard_state(const StageKernels *k, const Program *p, const UpdateRule *rule, const Allocation *a);
/* Bytes of a replica's shard. */
int64_t shard_part(const Shards *s, int replica);
/* The replica that owns a parameter's element; `state`: the parameter's offset in the struct. */
int shard_of(const Shards *s, int64_t state, int64_t element);
/* By buffer index: the weight's offset in that struct. */
int64_t *state_offsets(const StageKernels *k);
/* Bytes of the gradients of the largest shard: the message that a rank receives from each other replica. */
int64_t shard_gradient_bytes(const StageKernels *k, const Shards *shard);

#endif
