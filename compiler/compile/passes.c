/* The passes: each maps results of earlier ones to its own. */
#include <string.h>

#include "autodiff/autodiff.h"
#include "biases/biases.h"
#include "compile/compile.h"
#include "decode/decode.h"
#include "elaborate/elaborate.h"
#include "emit/emit.h"
#include "fuse/kernel.h"
#include "layout/epilogues.h"
#include "layout/pad_rows.h"
#include "layout/permutes.h"
#include "residual/residual.h"
#include "simplify/simplify.h"
#include "tensor/tensor.h"

bool pass_parse(Compilation *c) {
  if (!front_read(c->options.input, &c->model))
    return false;
  if (!c->options.generate || !c->model.task)
    return true;
  help(error_at(NO_SPAN, "PD0812", "--generate: '%s' is '%s'; generate is for models of a next token",
                c->options.input, c->model.task),
       "use 'pdc infer'");
  return false;
}

bool pass_elaborate(Compilation *c) {
  const Options *o = &c->options;
  ElaborateOptions options = {.include = o->include.at,
                              .n_include = o->include.n,
                              .define = o->define.at,
                              .n_define = o->define.n,
                              .lora = o->lora,
                              .inference = o->infer || o->generate,
                              .generation = o->generate,
                              .library = o->library};
  c->graph = elaborate(c->model.ast, &options);
  if (c->graph && o->library && !o->generate && !has_outputs(c->graph))
    return false;
  if (c->graph && o->infer)
    c->graph->train.batch = inference_batch(c->graph->train.batch, &c->request);
  if (c->graph)
    c->identity = graph_identity(c->graph);
  if (c->graph && (o->command == COMMAND_SHOW || o->command == COMMAND_BUILD || o->report))
    c->outline = outline_make(c->graph);
  return c->graph != NULL;
}

/* NAME_generate() takes tokens. */
static bool check_library_source(const Graph *g) {
  const Input *source = g->generation.encoder ? &g->inputs.at[g->generation.source] : NULL;
  if (!source || g->values.at[source->value].type == TYPE_TOKEN)
    return true;
  Diagnostic *d =
      error_at(source->span, "PD0812",
               "pdc library --generate: the encoder reads the numbers of '%s', and a library takes tokens",
               source->name);
  help(d, "use 'pdc generate', whose programs read numbers by --features");
  return false;
}

bool pass_decode(Compilation *c) {
  const Options *o = &c->options;
  if (!o->generate)
    return true;
  bool decoded = decode(c->graph, o->samples, o->block, !o->no_cache);
  c->request.microbatch = c->graph->train.batch;
  return decoded && (!o->library || check_library_source(c->graph));
}

bool pass_layout(Compilation *c) {
  move_permutes(c->graph);
  const Target *target = &c->options.plan.target;
  const Lowering *lowering = backend_of(target)->lowering;
  if (target->precision == PRECISION_BF16)
    round_residuals(c->graph, target->residual);
  if (c->graph->inference)
    return true;
  if (c->division.degree < 2) /* --tensor pads its uneven shards itself */
    pad_rows(c->graph, lowering->row_multiple);
  if (lowering->epilogues && target->precision == PRECISION_BF16)
    merge_gelus(c->graph);
  return true;
}

bool pass_autodiff(Compilation *c) {
  autodiff(c->graph);
  return true;
}

bool pass_simplify(Compilation *c) {
  simplify(c->graph);
  return true;
}

bool pass_tensor(Compilation *c) {
  const TensorDivision division = c->division;
  const char *sharding = c->request.sharding;
  bool builds = c->options.command != COMMAND_PLAN && c->options.command != COMMAND_SHOW;
  if ((division.degree == 0 || division.degree == 1) && !sharding)
    return true;
  if (c->options.sharp) {
    help(error_at(NO_SPAN, "PD0513", "--tensor: not with '--sharp', whose ranks hold whole layers"),
         "leave one of the two options out");
    return false;
  }
  const PlanRequest ranks = c->request;
  return tensor_suits(c->graph, &ranks, division.degree, builds) &&
         tensor(c->graph, division.degree, sharding, division.spread) && tensor_divides(c->graph) &&
         tensor_group(&ranks, division.degree, &c->request);
}

/* A library has no losses, but rounds the values that products within losses read, as infer does. */
static void drop_losses(Graph *g, Precision precision) {
  const bool *bf16 = values_in_bf16(g, precision);
  for (int v = 0; v < g->values.n; v++)
    g->values.at[v].bf16 |= bf16[v] && g->values.at[v].type == TYPE_F32;
  keep_outputs(g);
  simplify(g);
}

bool pass_residual(Compilation *c) {
  const Options *o = &c->options;
  const Target *target = &o->plan.target;
  if (target->precision == PRECISION_BF16)
    mark_residuals(c->graph, target->residual);
  if (o->library && !o->generate)
    drop_losses(c->graph, target->precision);
  return true;
}

bool pass_biases(Compilation *c) {
  const Target *target = &c->options.plan.target;
  if (backend_of(target)->lowering->epilogues && target->precision == PRECISION_BF16 && !c->graph->inference)
    merge_bias_gradients(c->graph);
  return true;
}

bool pass_cut(Compilation *c) {
  c->pieces = cut(c->graph);
  c->stages = stages_new(c->graph, &c->pieces);
  return true;
}

void prepare_request(Compilation *c) {
  PlanRequest *request = &c->request;
  request->arch = c->options.arch;
  request->peak = stages_peak;
  request->peak_context = c->stages;
  request->watch = &c->planned;
  if (request->profile)
    request->compiler = cc_version_if_found(&c->options, toolchain_of(&c->options));
}

bool plan_divided(Compilation *c) {
  prepare_request(c);
  int wanted = c->options.command == COMMAND_PLAN ? N_RUNNERS_UP : 0;
  do
    c->plan = plan_make(c->graph, &c->pieces, &c->request, c->runners_up, wanted);
  while (c->plan && !stages_confirm(c->stages, c->plan));
  return c->plan != NULL;
}

bool pass_plan(Compilation *c) {
  int mark = diagnostics_mark();
  plan_divided(c);
  if (tensor_lacks_memory(c->graph, &c->request, c->plan))
    spread_if_better(c, mark);
  return c->plan != NULL;
}

bool pass_fuse(Compilation *c) {
  const Program *programs = stages_schedule(c->stages, c->plan); /* kernels depend on the programs */
  if (!programs)
    return false;
  c->kernels = alloc((size_t)n_stages(c) * sizeof *c->kernels);
  for (int i = 0; i < n_stages(c); i++)
    c->kernels[i] = stages_fuse(c->stages, c->plan, programs, i);
  return true;
}

bool pass_lower(Compilation *c) {
  c->lowered = alloc((size_t)n_stages(c) * sizeof *c->lowered);
  for (int i = 0; i < n_stages(c); i++)
    c->lowered[i] = stages_lower(c->stages, c->kernels[i]);
  return true;
}

bool pass_schedule(Compilation *c) {
  c->programs = stages_schedule(c->stages, c->plan);
  return c->programs != NULL;
}

bool exact_peaks(Compilation *c) {
  for (int i = 0; i < n_stages(c); i++) {
    int64_t bytes = stages_peak(c->stages, c->plan, i);
    for (int k = 0; k < pipeline_chunks(&c->plan->pipeline, i); k++)
      c->plan->stage[plan_part_of(c->plan, i, k)].peak_bytes = bytes;
  }
  return error_count() == 0;
}

bool pass_allocate(Compilation *c) {
  c->allocations = alloc((size_t)n_stages(c) * sizeof *c->allocations);
  for (int i = 0; i < n_stages(c); i++) {
    c->allocations[i] = stages_allocate(c->stages, c->lowered[i], &c->programs[i]);
    const int64_t peak = c->allocations[i]->resident_bytes;
    ensure(stages_peak(c->stages, c->plan, i) == peak); /* the planner relied on this peak */
    for (int k = 0; k < pipeline_chunks(&c->plan->pipeline, i); k++)
      c->plan->stage[plan_part_of(c->plan, i, k)].peak_bytes = peak;
  }
  c->plan_json = plan_json(c->graph, &c->pieces, c->plan);
  return true;
}

static void make_library(Compilation *c) {
  const Options *o = &c->options;
  c->library.name = library_name(o->name ? o->name : base_name(o->input));
  LibraryText text = emit_library(c->graph, &c->pieces, c->plan, c->lowered[0], &c->programs[0], c->allocations[0],
                                  c->library.name);
  c->library.source = text.source;
  c->library.header = text.header;
  c->sources = alloc(sizeof *c->sources);
  c->sources[0] = text.source;
}

/* All stages hold one hash of the plan and all programs, and compare it at startup. The hash replaces a mark in
 * the hashed texts. */
bool pass_emit(Compilation *c) {
  if (c->options.library) {
    make_library(c);
    return true;
  }
  static const char mark[] = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@";
  Text all = {0};
  text_add(&all, "%s", c->plan_json);
  identity_add_delays(c->identity, &c->pieces, c->plan, c->programs);
  c->sources = alloc((size_t)n_stages(c) * sizeof *c->sources);
  for (int i = 0; i < n_stages(c); i++) {
    c->sources[i] = emit_stage(c->graph, &c->pieces, c->plan, c->lowered[i], &c->programs[i], c->allocations[i],
                               c->identity, mark);
    text_add(&all, "%s", c->sources[i]);
  }
  const char *hash = sha256_hex(all.at, strlen(all.at));
  for (int i = 0; i < n_stages(c); i++)
    memcpy(strstr(c->sources[i], mark), hash, strlen(hash));
  return true;
}
