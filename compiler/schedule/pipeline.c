#include "schedule/pipeline.h"

Pipeline pipeline_make(Name schedule, int n_stages, int chunks) {
  ensure(n_stages > 0 && chunks > 0);
  Pipeline p = {.schedule = schedule, .n_stages = n_stages, .chunks = chunks};
  p.replicas = alloc((size_t)n_stages * sizeof *p.replicas);
  p.ahead = alloc((size_t)n_stages * sizeof *p.ahead);
  p.recompute = alloc((size_t)n_stages * sizeof *p.recompute);
  p.kept = alloc((size_t)n_stages * sizeof *p.kept);
  for (int i = 0; i < n_stages; i++)
    p.replicas[i] = p.ahead[i] = 1;
  return p;
}

Pipeline pipeline_copy(const Pipeline *p) {
  Pipeline copy = *p;
  copy.replicas = alloc_copy(p->replicas, (size_t)p->n_stages * sizeof *p->replicas);
  copy.ahead = alloc_copy(p->ahead, (size_t)p->n_stages * sizeof *p->ahead);
  copy.recompute = alloc_copy(p->recompute, (size_t)p->n_stages * sizeof *p->recompute);
  copy.kept = alloc_copy(p->kept, (size_t)p->n_stages * sizeof *p->kept);
  if (p->first_part)
    copy.first_part = alloc_copy(p->first_part, (size_t)(p->n_stages + 1) * sizeof *p->first_part);
  return copy;
}

int pipeline_stage(const Pipeline *p, int part) {
  int stage = p->first_part ? 0 : stage_of_part(p->n_stages, part);
  while (p->first_part && p->first_part[stage + 1] <= part)
    stage++;
  return stage;
}

void pipeline_set_parts(Pipeline *p, const int *parts) {
  p->first_part = alloc((size_t)(p->n_stages + 1) * sizeof *p->first_part);
  p->chunks = 1;
  for (int i = 0; i < p->n_stages; i++) {
    p->first_part[i + 1] = p->first_part[i] + parts[i];
    p->chunks = parts[i] > p->chunks ? parts[i] : p->chunks;
  }
}

Pipeline pipeline_at(const Pipeline *p, int64_t batch, int64_t microbatch) {
  Pipeline at = *p;
  at.batch = batch;
  at.microbatch = microbatch;
  at.microbatches = batch / microbatch;
  return at;
}

int pipeline_ranks(const Pipeline *p) {
  int ranks = 0;
  for (int i = 0; i < p->n_stages; i++)
    ranks += p->replicas[i];
  return ranks;
}

int64_t pipeline_bucket(const Pipeline *p) {
  const int64_t most = 1 << 30;
  int64_t bytes = 0;
  for (int i = 0; i < p->n_stages; i++)
    bytes = p->replicas[i] * ((int64_t)2 << 20) > bytes ? p->replicas[i] * ((int64_t)2 << 20) : bytes;
  bytes = p->bucket ? p->bucket : bytes;
  return bytes < most ? bytes : most;
}
