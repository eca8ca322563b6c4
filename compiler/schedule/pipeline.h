/* A pipeline: all that a schedule has to know of a plan. Whoever has a question about schedules makes one. */
#ifndef PDC_PIPELINE_H
#define PDC_PIPELINE_H

#include "base/base.h"

/* Arrays are by stage; every number is at least 1, but for sizes of a batch that are still open: 0. */
typedef struct Pipeline {
  Name schedule; /* "2bw", "flush", "sequential", ... */
  int n_stages;  /* that have ranks of their own */
  int chunks; /* interleaved: parts of the model a rank holds; where it spills, that rank that holds most; else 1 */
  /* Where several stages spill: by stage, and one more, its first part of the model; NULL: as part_of() says. */
  int *first_part;
  bool vertical_sync;                      /* pipedream: one version a microbatch in the whole pipeline */
  int64_t batch, microbatch, microbatches; /* batch = microbatch * microbatches */
  int *replicas;
  int *ahead;      /* h of docs/guide/schedules.md: 1, or 2 where one more microbatch in flight hides a transfer */
  bool *recompute; /* its ranks, with all their chunks */
  /* ... but, where the model spills, these of them, part p as bit p: what they save comes and goes. The last part, and a
   * stage's only one, are what `recompute` says. */
  uint64_t keeps;
  bool shard_optimizer; /* replicas of a stage keep a part of the optimizer's state each, and update that alone */
  int64_t bucket; /* bytes of gradients that replicas exchange together, at least; 0: pipeline_bucket() says it */
  int64_t memory; /* where the model spills: bytes of a rank's arena that may be in memory; 0: as few as will do */
  int *kept;      /* percent of what blocks have of it for those that stay until they are used again */
  int64_t page;   /* bytes that come and go at once, of whatever is in them */
  bool at_home;   /* groups of parameters are updated where they are at home, by the host of the rank's device */
} Pipeline;

/* Every stage with one rank, none ahead, none recomputing; the batch is open. */
Pipeline pipeline_make(Name schedule, int n_stages, int chunks);
Pipeline pipeline_copy(const Pipeline *p); /* with arrays of its own */
/* The same pipeline for microbatches of this size; shares its arrays. */
Pipeline pipeline_at(const Pipeline *p, int64_t batch, int64_t microbatch);
int pipeline_ranks(const Pipeline *p);

/* Parts of the model in its order: stage 0's first chunk, stage 1's, ..., stage 0's second chunk, ... */
static inline int part_of(int n_stages, int stage, int chunk) { return chunk * n_stages + stage; }
static inline int stage_of_part(int n_stages, int part) { return part % n_stages; }
static inline int chunk_of_part(int n_stages, int part) { return part / n_stages; }
/* The same of any pipeline: where stages spill, a rank's chunks are parts in a row. */
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
/* Pipeline.bucket, or what is enough for messages of 2 MiB among the most replicas: far longer than their latency. */
int64_t pipeline_bucket(const Pipeline *p);
/* Gives each stage of a pipeline that spills so many parts. */
void pipeline_set_parts(Pipeline *p, const int *parts);
/* Other schedules' pipelines may have more parts than `keeps` has bits. */
static inline bool pipeline_keeps(const Pipeline *p, int part) { return part < 64 && p->keeps >> part & 1; }

#endif
