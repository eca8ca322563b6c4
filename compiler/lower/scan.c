/* Lowers loops over time. The body of a scan is fused and lowered like a stage with one pass. Its buffers are places in
 * operands and results of the scan, or in the scan's scratch memory. */
#include <string.h>

#include "base/pack.h"
#include "base/table.h"
#include "lower/internal.h"
#include "ops/scan.h"
#include "simplify/rewrite.h"

static int64_t bytes_of(const Buffer *b) { return aligned(b->elements * element_bytes(b)); }

/* Samples of a step: one, where each row has a state of its own. */
static int64_t samples_of(const StageKernels *stage, const Graph *body) {
  return body->loop.cached ? 1 : stage->microbatch;
}

static StageKernels *fuse_body(const StageKernels *stage, const Graph *body) {
  Piece whole = {.end = body->nodes.n, .name = intern("")};
  Pieces one = {&whole, 1};
  return fuse(body, &one, 0, 1, 0, 1, samples_of(stage, body), false, false, stage->target);
}

/* ---- types ------------------------------------------------------------------------------------------- */

/* Library calls of the body read rounded copies of states, which stay in f32. */
static Graph *with_rounded_states(const Graph *body) {
  Graph *copy = alloc_copy(body, sizeof *body);
  Rewrite *w = rewrite_begin(copy);
  for (int i = 0; i < body->nodes.n; i++) {
    const Node *n = &body->nodes.at[i];
    int *in = alloc((size_t)(n->n_in + 1) * sizeof *in);
    for (int k = 0; k < n->n_in; k++) {
      int root = n->in[k];
      while (body->nodes.at[body->values.at[root].node].op->kind == OP_VIEW)
        root = body->nodes.at[body->values.at[root].node].in[0];
      bool narrow = n->op->kind == OP_CALL && !(n->op->stays_f32 && n->op->stays_f32(n, false, k));
      in[k] = w->value[n->in[k]];
      for (int s = 0; s < body->loop.states && narrow; s++)
        if (body->inputs.at[body->loop.scanned + s].value == root)
          in[k] = graph_output(w->to, rewrite_insert(w, i, &op_rounded, &w->value[n->in[k]], 1, NULL), 0);
    }
    rewrite_copy(w, i, in, i);
  }
  rewrite_finish(w);
  return copy;
}

/* By input and result of the body: the scan has it in bf16. */
static const bool *find_types(const StageKernels *stage, const Kernel *k, const Graph *body) {
  const int *operand = scan_operands(body);
  bool *bf16 = alloc((size_t)(body->inputs.n + body->figures.n + 1));
  for (int i = 0; i < body->inputs.n; i++)
    bf16[i] = operand[i] >= 0 && stage->buffers.at[k->in.at[operand[i]].buffer].bf16;
  for (int i = 0; i < body->figures.n; i++)
    bf16[body->inputs.n + i] = stage->buffers.at[k->out.at[i].buffer].bf16;
  return bf16;
}

static Name text_of_types(const Graph *body, const bool *bf16) {
  Text t = {0};
  for (int i = 0; i < body->inputs.n + body->figures.n; i++)
    text_add(&t, "%c", bf16[i] ? 'h' : 'f');
  return intern(t.n ? t.at : "");
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static int input_of(const Graph *body, const Buffer *b) {
  for (int i = 0; i < body->inputs.n && b->kind == BUFFER_INPUT; i++)
    if (body->inputs.at[i].value == b->value)
      return i;
  return -1;
}

/* Packs the buffers that are neither inputs nor results; returns their bytes. */
static int64_t pack_buffers(const StageKernels *k, LoweredScan *s) {
  Vec(LiveRange) ranges = {0};
  Ints of = {0};
  int64_t tables = 0;
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_TABLE) {
      s->offset[i] = tables;
      tables += bytes_of(b);
    }
    if (b->kind != BUFFER_TEMPORARY)
      continue;
    push(&ranges, (LiveRange){bytes_of(b), b->first, b->last, 0});
    push(&of, i);
  }
  int64_t bytes = pack(ranges.at, ranges.n);
  for (int i = 0; i < of.n; i++)
    s->offset[of.at[i]] = tables + ranges.at[i].offset;
  return tables + bytes;
}

static int64_t place_states(const StageKernels *k, LoweredScan *s, int64_t bytes) {
  const ScanLoop *l = &s->body->loop;
  s->first = alloc((size_t)(l->states + 1) * sizeof *s->first);
  s->second = alloc((size_t)(l->states + 1) * sizeof *s->second);
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind != BUFFER_FIGURE || b->figure < l->stacked)
      continue;
    s->second[b->figure - l->stacked] = bytes;
    bytes += bytes_of(b);
    s->first[b->figure - l->stacked] = bytes;
    bytes += l->cached ? bytes_of(b) : 0;
  }
  return bytes;
}

static int64_t largest_scratch(const LoweredStage *step) {
  int64_t bytes = 0;
  for (int list = 0; list < N_LISTS; list++)
    for (int i = 0; i < step->list[list].n; i++)
      if (step->list[list].at[i].scratch_bytes > bytes)
        bytes = step->list[list].at[i].scratch_bytes;
  return bytes;
}

/* A lowered scan and its bytes of scratch memory. */
typedef struct Known {
  LoweredScan scan;
  int64_t bytes;
} Known;

static Known *lower_body(const StageKernels *stage, const Graph *body) {
  Known *known = alloc(sizeof *known);
  LoweredScan *s = &known->scan;
  const StageKernels *k = fuse_body(stage, body);
  *s = (LoweredScan){.body = body, .step = lower(k), .operand = scan_operands(body), .scratch = -1};
  s->offset = alloc((size_t)(k->buffers.n + 1) * sizeof *s->offset);
  s->input = alloc((size_t)(k->buffers.n + 1) * sizeof *s->input);
  for (int i = 0; i < k->buffers.n; i++)
    s->input[i] = input_of(body, &k->buffers.at[i]);
  int64_t bytes = place_states(k, s, pack_buffers(k, s)), scratch = largest_scratch(s->step);
  if (scratch > 0)
    s->scratch = bytes;
  known->bytes = bytes + aligned(scratch);
  return known;
}

/* Equal scans share their body's kernels, because the planner lowers a part many times. */
typedef struct BodyKey {
  const Graph *body;
  Name types;
  const Backend *backend;
  const Workspaces *workspaces;
  int64_t microbatch, threads, precision;
} BodyKey;

void lower_scan(const StageKernels *stage, Lowered *l) {
  static Table lowered = {.key_bytes = sizeof(BodyKey)};
  const Graph *body = scan_body(stage->graph, l->kernel->node);
  const bool *bf16 = find_types(stage, l->kernel, body);
  const BodyKey key = {.body = body,
                       .types = text_of_types(body, bf16),
                       .backend = backend_of(&stage->target),
                       .workspaces = stage->target.workspaces,
                       .microbatch = samples_of(stage, body),
                       .threads = stage->target.threads,
                       .precision = stage->target.precision};
  Known *known = table_find(&lowered, &key);
  if (!known) {
    Arena *arena = arena_use(NULL); /* the table's own arena */
    Graph *typed =
        stage->target.precision == PRECISION_BF16 ? with_rounded_states(body) : alloc_copy(body, sizeof *body);
    typed->loop.bf16 = alloc_copy(bf16, (size_t)(body->inputs.n + body->figures.n + 1));
    known = lower_body(stage, typed);
    table_add(&lowered, &key, known);
    arena_use(arena);
  }
  l->scan = &known->scan;
  l->scratch_bytes = known->bytes;
  l->arguments.scratch = known->bytes > 0;
}
