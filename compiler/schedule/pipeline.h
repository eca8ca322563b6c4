/* A pipeline: the part of a plan that a schedule depends on. */
#ifndef PDC_PIPELINE_H
#define PDC_PIPELINE_H

#include "base/base.h"

/* Arrays are indexed by stage. Every number is at least 1; sizes of an open batch are 0. */
typedef struct Pipeline {
  Name schedule; /* "2bw", "flush", "sequential", ... */
  int n_stages;  /* stages with ranks of their own */
  int chunks;    /* parts of the model per rank (interleaved), or most parts of a rank (offload); else 1 */
  /* Offload with several stages: first part of the model by stage, and the number of parts as last entry; NULL:
   * part_of(). */
  int *first_part;
  bool vertical_sync;                      /* pipedream: one weight version per microbatch in the whole pipeline */
  int64_t batch, microbatch, microbatches; /* batch = microbatch * microbatches */
  int *replicas;
  int *ahead;      /* h of docs/guide/schedules.md: 1, or 2 with one additional microbatch in flight */
  bool *recompute; /* all chunks of the stage's ranks recompute */
  /* Offload: bit p is set if part p offloads its saved values instead of recomputing. The last part, and a stage's
   * only part, follow `recompute`. */
  uint64_t keeps;
  bool shard_optimizer; /* ZeRO-1: each replica of a stage stores and updates a shard of the optimizer state */
  int64_t bucket;       /* smallest bytes of gradients per exchange of replicas; 0: pipeline_bucket() */
  int64_t memory;       /* offload: bytes of a rank's arena that may be resident; 0: the fewest possible */
  int *kept;            /* offload: percent of the block budget that stays resident until the next use */
  int64_t page;         /* offload: bytes of the unit of transfer */
  bool at_home;         /* offload: the host updates the offloaded parameters */
} Pipeline;

/* One rank per stage, ahead 1, no recomputation, open batch. */
Pipeline pipeline_make(Name schedule, int n_stages, int chunks);
Pipeline pipeline_copy(const Pipeline *p); /* with arrays of its own */
/* The same pipeline for microbatches of this size; shares its arrays. */
Pipeline pipeline_at(const Pipeline *p, int64_t batch, int64_t microbatch);
int pipeline_ranks(const Pipeline *p);

/* Parts of the model in its order: stage 0's first chunk, stage 1's, ..., stage 0's second chunk, ... */
static inline int part_of(int n_stages, int stage, int chunk) { return chunk * n_stages + stage; }
static inline int stage_of_part(int n_stages, int part) { return part % n_stages; }
static inline int chunk_of_part(int n_stages, int part) { return part / n_stages; }
/* The same for any pipeline: under offload a rank's chunks are consecutive parts. */
static inline int pipeline_parts(const Pipeline *p) {
  return p->first_part ? p->first_part[p->n_stages] : p->n_stages * p->chunks;
}
static inline int pipeline_chunks(const Pipeline *p, int stage) {
  return p->first_part ? p->first_part[stage + 1] - p->first_part[stage] : p->chunks;
}
static inline int pipeline_part(const Pipeline *p, int stage, int chunk) {
  return p->first_part ? p->first_part[stage] + chunk : part_of(p->n_stages, stage, chunk);
}
int pipeline_stage(const Pipeline *p, int part);
static inline int pipeline_chunk(const Pipeline *p, int part) {
  return p->first_part ? part - p->first_part[pipeline_stage(p, part)] : chunk_of_part(p->n_stages, part);
}
/* Pipeline.bucket, or bytes for messages of 2 MiB among the most replicas, much longer than their latency. */
int64_t pipeline_bucket(const Pipeline *p);
/* Sets the number of parts of each stage, under offload. */
void pipeline_set_parts(Pipeline *p, const int *parts);
/* Pipelines without offload may have more parts than `keeps` has bits. */
static inline bool pipeline_keeps(const Pipeline *p, int part) { return part < 64 && p->keeps >> part & 1; }

#endif
