/* pdc compiles a model description to one C or CUDA program per pipeline stage. The compiler is the table of
 * passes below; each pass maps one structure to the next. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "autodiff/autodiff.h"
#include "biases/biases.h"
#include "build/build.h"
#include "checkpoint/checkpoint.h"
#include "cut/cut.h"
#include "decode/decode.h"
#include "elaborate/elaborate.h"
#include "emit/emit.h"
#include "export/export.h"
#include "format/format.h"
#include "front/front.h"
#include "graph/identity.h"
#include "import/import.h"
#include "layout/epilogues.h"
#include "layout/pad_rows.h"
#include "layout/permutes.h"
#include "lsp/lsp.h"
#include "measure/measure.h"
#include "merge/merge.h"
#include "pipedream/pipedream.h"
#include "device/device.h"
#include "report/report.h"
#include "residual/residual.h"
#include "show/show.h"
#include "simplify/simplify.h"
#include "stage/stages.h"
#include "tensor/tensor.h"

/* The results of the passes, in pass order. */
typedef struct Compilation {
  Options options;
  FrontModel model; /* as read by a front end */
  Graph *graph;
  Identity *identity; /* identity and outline: of the graph as elaborated */
  Outline outline;    /* of the model view */
  Pieces pieces;
  Stages *stages; /* shared by plan, fuse, lower, schedule and allocate */
  PlanWatch planned;
  Plan *plan, *runners_up[3];
  StageKernels **kernels; /* by stage, as are the next four fields */
  LoweredStage **lowered;
  Program *programs;
  Allocation **allocations;
  char **sources;
  ModelLibrary library; /* of pdc library */
  char *plan_json;
  TensorDegrees degrees; /* degrees that --tensor auto tried */
  PlanRequest asked;     /* with --tensor: a request in ranks, not in shard groups */
} Compilation;

enum { N_RUNNERS_UP = 3 };

static int n_stages(const Compilation *c) { return c->plan->pipeline.n_stages; }

/* ---- the passes: false after diagnostics ----------------------------------------------------- */

static bool run_parse(Compilation *c) { return front_read(c->options.input, &c->model); }

static bool run_elaborate(Compilation *c) {
  const Options *o = &c->options;
  ElaborateOptions options = {.include = o->include.at,
                              .n_include = o->include.n,
                              .define = o->define.at,
                              .n_define = o->define.n,
                              .lora = o->lora,
                              .inference = o->infer || o->generate,
                              .generation = o->generate};
  c->graph = elaborate(c->model.ast, &options);
  if (c->graph && o->library && !o->generate && !keep_outputs(c->graph))
    return false;
  if (c->graph && o->infer)
    c->graph->train.batch = inference_batch(c->graph->train.batch, &o->plan);
  if (c->graph)
    c->identity = graph_identity(c->graph);
  if (c->graph && (o->command == COMMAND_SHOW || o->command == COMMAND_BUILD || o->report))
    c->outline = outline_make(c->graph);
  return c->graph != NULL;
}

static bool run_decode(Compilation *c) {
  const Options *o = &c->options;
  if (!o->generate)
    return true;
  bool decoded = decode(c->graph, o->samples, o->block, !o->no_cache);
  c->options.plan.microbatch = c->graph->train.batch;
  return decoded;
}

static bool run_layout(Compilation *c) {
  move_permutes(c->graph);
  const Target *target = &c->options.plan.target;
  const Lowering *lowering = backend_of(target)->lowering;
  if (target->precision == PRECISION_BF16)
    round_residuals(c->graph, target->residual);
  if (c->graph->inference)
    return true;
  if (c->options.plan.tensor < 2) /* --tensor pads its uneven shards itself */
    pad_rows(c->graph, lowering->row_multiple);
  if (lowering->epilogues && target->precision == PRECISION_BF16)
    merge_gelus(c->graph);
  return true;
}

static bool run_autodiff(Compilation *c) {
  autodiff(c->graph);
  return true;
}

static bool run_simplify(Compilation *c) {
  simplify(c->graph);
  return true;
}

static bool run_tensor(Compilation *c) {
  PlanRequest *request = &c->options.plan;
  bool builds = c->options.command != COMMAND_PLAN && c->options.command != COMMAND_SHOW;
  if ((request->tensor == 0 || request->tensor == 1) && !request->sharding)
    return true;
  if (c->options.sharp) {
    help(error_at(NO_SPAN, "PD0513", "--tensor: not with '--sharp', whose ranks hold whole layers"),
         "leave one of the two options out");
    return false;
  }
  c->asked = *request;
  return tensor_suits(c->graph, request, builds) &&
         tensor(c->graph, request->tensor, request->sharding, request->spread) && tensor_divides(c->graph) &&
         tensor_group(request);
}

static bool run_residual(Compilation *c) {
  const Target *target = &c->options.plan.target;
  if (target->precision == PRECISION_BF16)
    mark_residuals(c->graph, target->residual);
  return true;
}

static bool run_biases(Compilation *c) {
  const Target *target = &c->options.plan.target;
  if (backend_of(target)->lowering->epilogues && target->precision == PRECISION_BF16 && !c->graph->inference)
    merge_bias_gradients(c->graph);
  return true;
}

static bool run_cut(Compilation *c) {
  c->pieces = cut(c->graph);
  c->stages = stages_new(c->graph, &c->pieces);
  return true;
}

static void prepare_request(Compilation *c) {
  PlanRequest *request = &c->options.plan;
  request->arch = c->options.arch;
  request->peak = stages_peak;
  request->peak_context = c->stages;
  request->watch = &c->planned;
  if (request->profile)
    request->compiler = cc_version_if_found(&c->options, toolchain_of(&c->options));
}

static bool plan_pieces(Compilation *c) {
  PlanRequest *request = &c->options.plan;
  prepare_request(c);
  int wanted = c->options.command == COMMAND_PLAN ? N_RUNNERS_UP : 0;
  do
    c->plan = plan_make(c->graph, &c->pieces, request, c->runners_up, wanted);
  while (c->plan && !stages_confirm(c->stages, c->plan));
  return c->plan != NULL;
}

static bool run_passes(Compilation *c, const char *last);

/* Compiles up to the plan, without output. */
static Compilation *quiet(const Options *o, const PlanRequest *request) {
  Compilation *c = alloc(sizeof *c);
  c->options = *o;
  c->options.plan = *request;
  c->options.emit = EMIT_NOTHING;
  c->options.dump = c->options.stop_after = NULL;
  c->options.time_passes = c->options.verify_each = c->options.report = false;
  return c;
}

/* Recompiles with split activations if ranks of a shard group lack memory. The new compilation replaces `c` if its
 * plan is better, or if its memory diagnostics are needed. */
static void spread_if_better(Compilation *c) {
  Compilation *other = quiet(&c->options, &c->asked);
  other->options.plan.spread = true;
  Profiled profiled = {c->graph, alloc_copy(&c->pieces, sizeof c->pieces)};
  other->options.plan.profiled = alloc_copy(&profiled, sizeof profiled);
  int mark = diagnostics_mark();
  bool planned = run_passes(other, "plan"), better = planned && tensor_is_better(other->plan, c->plan);
  bool says = !planned && !c->plan && !other->options.plan.plan && other->stages;
  diagnostics_forget(mark);
  if (!better && !says)
    return;
  const PlanRequest request = other->options.plan;
  const TensorDegrees degrees = c->degrees;
  other->options = c->options;
  *c = *other;
  c->options.plan = request;
  c->degrees = degrees;
}

/* Replans without memory warnings, then reports only the final diagnostics. */
static bool run_plan(Compilation *c) {
  int mark = diagnostics_mark();
  bool good = plan_pieces(c);
  if (!tensor_lacks_memory(c->graph, &c->options.plan, c->plan))
    return good;
  diagnostics_forget(mark);
  spread_if_better(c);
  return plan_pieces(c);
}

static bool make_kernels(Compilation *c) {
  const Program *programs = stages_schedule(c->stages, c->plan); /* kernels depend on the programs */
  if (!programs)
    return false;
  c->kernels = alloc((size_t)n_stages(c) * sizeof *c->kernels);
  for (int i = 0; i < n_stages(c); i++)
    c->kernels[i] = stages_fuse(c->stages, c->plan, programs, i);
  return true;
}

static bool run_lower(Compilation *c) {
  c->lowered = alloc((size_t)n_stages(c) * sizeof *c->lowered);
  for (int i = 0; i < n_stages(c); i++)
    c->lowered[i] = stages_lower(c->stages, c->kernels[i]);
  return true;
}

static bool make_schedule(Compilation *c) {
  c->programs = stages_schedule(c->stages, c->plan);
  return c->programs != NULL;
}

static bool run_allocate(Compilation *c) {
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
static bool run_emit(Compilation *c) {
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

enum { TABLE_DEPTH = 2, PICTURE_DEPTH = 1 };

static Show what_to_show(Compilation *c, int depth) {
  Target target = c->options.plan.target;
  StageKernels *whole = fuse(c->graph, &c->pieces, 0, c->pieces.n, 0, 1, 1, false, false, target);
  return (Show){c->graph, &c->pieces, &c->outline, whole, c->plan, depth};
}

/* The launcher's arguments, for messages. */
static const char *arguments(const Options *o, const FrontModel *m) {
  const char *adapters = o->lora && (o->infer || o->generate) ? " ADAPTER_DIR" : "";
  const char *init = m->init ? format("--init %s%s", shell_quoted(m->init), adapters) : "";
  if (o->generate && m->init && m->tokenizer)
    return format("%s --tokenizer %s --prompt TEXT", init, shell_quoted(m->tokenizer));
  if (o->generate)
    return format("%s --prompt TEXT", m->init ? init : "--init FILE");
  if (o->infer)
    return format("--data PATH %s", m->init ? init : "--init FILE");
  return format("--data PATH --steps N%s%s", m->init ? " " : "", init);
}

static bool run_build(Compilation *c) {
  const Options *o = &c->options;
  int n = n_stages(c), *replicas = alloc((size_t)n * sizeof *replicas);
  for (int i = 0; i < n; i++)
    replicas[i] = c->programs[i].replicas * (c->graph->shards ? c->graph->shards : 1);
  Show picture = what_to_show(c, PICTURE_DEPTH);
  Output out = {.directory = output_directory(o),
                .model = base_name(o->input),
                .launcher = o->generate ? "generate"
                            : o->infer  ? "infer"
                                        : "train",
                .arguments = arguments(o, &c->model),
                .toolchain = backend_of(&c->plan->target)->toolchain,
                .n_stages = n,
                .replicas = replicas,
                .placement = c->plan->placement,
                .source = c->sources,
                .plan_json = c->plan_json,
                .picture = show_svg(&picture)};
  if (o->library) {
    out.launcher = NULL;
    out.n_stages = 0;
    return library_deliver(o, &c->library, &out);
  }
  if (o->dry_run)
    return o->sources_only || cc_stages(o, &out);
  if (!output_write(o, &out))
    return false;
  if (!o->sources_only && !cc_stages(o, &out)) {
    output_abandon(&out);
    return false;
  }
  if (!output_install(o, &out))
    return false;
  if (!o->quiet)
    plan_delay_hint(c->graph, c->plan, stderr);
  return true;
}

/* ---- dumps and checks ------------------------------------------------------------------------ */

static void dump_ast(Compilation *c, FILE *out) { ast_print(c->model.ast, out); }
static void dump_graph(Compilation *c, FILE *out) { graph_dump(c->graph, out); }
static void dump_pieces(Compilation *c, FILE *out) { pieces_dump(c->graph, &c->pieces, out); }
static void dump_plan(Compilation *c, FILE *out) { fputs(plan_json(c->graph, &c->pieces, c->plan), out); }

static void dump_kernels(Compilation *c, FILE *out) {
  for (int i = 0; i < n_stages(c); i++)
    kernels_dump(c->kernels[i], out);
}

static void dump_lowered(Compilation *c, FILE *out) {
  for (int i = 0; i < n_stages(c); i++)
    lowered_dump(c->lowered[i], out);
}

static void dump_programs(Compilation *c, FILE *out) {
  for (int i = 0; i < n_stages(c); i++)
    program_dump(&c->programs[i], out);
}

static void dump_allocations(Compilation *c, FILE *out) {
  for (int i = 0; i < n_stages(c); i++)
    allocation_dump(c->kernels[i], c->allocations[i], out);
}

static void dump_sources(Compilation *c, FILE *out) {
  for (int i = 0; i < n_stages(c); i++)
    fputs(c->sources[i], out);
}

static void verify_graph(Compilation *c) { graph_verify(c->graph); }
static void verify_pieces(Compilation *c) { pieces_verify(c->graph, &c->pieces); }
static void verify_plan(Compilation *c) { plan_verify(c->graph, &c->pieces, c->plan); }

static void verify_kernels(Compilation *c) {
  for (int i = 0; i < n_stages(c); i++)
    kernels_verify(c->kernels[i]);
}

static void verify_lowered(Compilation *c) {
  for (int i = 0; i < n_stages(c); i++)
    lowered_verify(c->lowered[i]);
}

/* Enough batches for every stage to reach its steady state and for every weight version to be replaced. */
static int64_t batches_to_verify(const Compilation *c) {
  enum { BATCHES = 4 };
  int64_t more = 0;
  for (int i = 0; i < n_stages(c); i++) {
    const Program *p = &c->programs[i];
    int64_t held = p->delay + ((p->in_flight + p->lag) * p->replicas - 1) / p->period;
    more = held > more ? held : more;
  }
  return BATCHES + more;
}

static void verify_programs(Compilation *c) {
  char *why;
  if (!verify_schedule(c->programs, n_stages(c), batches_to_verify(c), &why))
    BUG("schedule '%s': %s", c->plan->pipeline.schedule, why);
}

static void verify_allocations(Compilation *c) {
  for (int i = 0; i < n_stages(c); i++)
    allocation_verify(c->kernels[i], &c->programs[i], c->allocations[i]);
}

/* ---- the table of passes --------------------------------------------------------------------- */

static const struct Pass {
  char letter; /* of -d */
  const char *name;
  bool (*run)(Compilation *c);
  void (*dump)(Compilation *c, FILE *out);
  void (*verify)(Compilation *c);
  bool always;    /* verified on every compilation, not only with --verify-each */
  EmitWhat emits; /* output that --emit prints after the pass */
} passes[] = {
    {.letter = 'p', .name = "parse", .run = run_parse, .dump = dump_ast, .emits = EMIT_AST},
    {.letter = 'e', .name = "elaborate", .run = run_elaborate, .dump = dump_graph, .verify = verify_graph},
    {.letter = 'g', .name = "decode", .run = run_decode, .dump = dump_graph, .verify = verify_graph},
    {.letter = 'y', .name = "layout", .run = run_layout, .dump = dump_graph, .verify = verify_graph},
    {.letter = 'a', .name = "autodiff", .run = run_autodiff, .dump = dump_graph, .verify = verify_graph},
    {.letter = 's',
     .name = "simplify",
     .run = run_simplify,
     .dump = dump_graph,
     .verify = verify_graph,
     .emits = EMIT_GRAPH},
    {.letter = 'x', .name = "tensor", .run = run_tensor, .dump = dump_graph, .verify = verify_graph},
    {.letter = 'r', .name = "residual", .run = run_residual, .dump = dump_graph, .verify = verify_graph},
    {.letter = 'i', .name = "biases", .run = run_biases, .dump = dump_graph, .verify = verify_graph},
    {.letter = 'c', .name = "cut", .run = run_cut, .dump = dump_pieces, .verify = verify_pieces},
    {.letter = 'l',
     .name = "plan",
     .run = run_plan,
     .dump = dump_plan,
     .verify = verify_plan,
     .always = true,
     .emits = EMIT_PLAN},
    {.letter = 'f',
     .name = "fuse",
     .run = make_kernels,
     .dump = dump_kernels,
     .verify = verify_kernels,
     .always = true,
     .emits = EMIT_KERNELS},
    {.letter = 'w', .name = "lower", .run = run_lower, .dump = dump_lowered, .verify = verify_lowered},
    {.letter = 't',
     .name = "schedule",
     .run = make_schedule,
     .dump = dump_programs,
     .verify = verify_programs,
     .always = true,
     .emits = EMIT_SCHEDULE},
    {.letter = 'm',
     .name = "allocate",
     .run = run_allocate,
     .dump = dump_allocations,
     .verify = verify_allocations,
     .always = true},
    {.letter = 'o', .name = "emit", .run = run_emit, .dump = dump_sources, .emits = EMIT_SOURCE},
    {.letter = 'b', .name = "build", .run = run_build},
};
enum { N_PASSES = sizeof passes / sizeof *passes };

static const struct Pass *find_pass(const char *name) {
  for (int i = 0; i < N_PASSES; i++)
    if (!strcmp(passes[i].name, name))
      return &passes[i];
  return NULL;
}

/* Prints a pass's line of --time-passes and the planner's time by phase. `before`: stage timings before the
 * pass. */
static void print_times(const Compilation *c, const struct Pass *p, double seconds, const StagesWatch *before) {
  fprintf(stderr, "%-10s %8.3f ms", p->name, 1e3 * seconds);
  StagesWatch now = c->stages ? stages_watch(c->stages) : (StagesWatch){0};
  if (p->run == make_kernels)
    watch_print_runs(stderr, now.fuse.runs - before->fuse.runs, "part", now.fuse.cached - before->fuse.cached);
  fprintf(stderr, "\n");
  if (p->run != run_plan)
    return;
  Watch schedule = {.runs = now.schedule.runs + c->planned.schedule.runs,
                    .seconds = now.schedule.seconds + c->planned.schedule.seconds};
  watch_print(stderr, "sign", now.sign, "rank");
  watch_print(stderr, "fuse", now.fuse, "part");
  watch_print(stderr, "lower", now.lower, "stage");
  watch_print(stderr, "schedule", schedule, "plan");
  watch_print(stderr, "simulate", c->planned.simulate, "plan");
  watch_print(stderr, "allocate", now.allocate, "stage");
}

static bool run_pass(Compilation *c, const struct Pass *p) {
  const Options *o = &c->options;
  double start = seconds_now();
  StagesWatch before = c->stages ? stages_watch(c->stages) : (StagesWatch){0};
  bool good = p->run(c);
  if (good && p->verify && (p->always || o->verify_each))
    p->verify(c);
  if (o->time_passes)
    print_times(c, p, seconds_now() - start, &before);
  if (good && p->dump && o->dump && strchr(o->dump, p->letter))
    p->dump(c, stderr);
  return good && error_count() == 0;
}

/* --emit: prints the pass's dump; a schedule is drawn. */
static void print_emitted(Compilation *c, const struct Pass *p) {
  int n = c->plan ? n_stages(c) : 0;
  switch (c->options.emit) {
  case EMIT_SHARDING: sharding_print(c->graph, stdout); break;
  case EMIT_SCHEDULE: schedule_text(c->programs, n, stdout); break;
  case EMIT_SCHEDULE_SVG:
    schedule_svg(format("%s on %d stages", c->plan->pipeline.schedule, n), c->programs, n, stdout);
    break;
  default: p->dump(c, stdout);
  }
}

/* Whether --emit prints the result of this pass. The ranks' common settings come with the plan, even if it lacks
 * memory. */
static bool is_emitted(const Compilation *c, const struct Pass *p) {
  switch (c->options.emit) {
  case EMIT_NOTHING: return false;
  case EMIT_SHARDING: return p->run == (c->graph && c->graph->shards ? run_plan : run_tensor);
  case EMIT_SCHEDULE_SVG: return p->emits == EMIT_SCHEDULE;
  default: return p->emits == c->options.emit;
  }
}

/* Runs the passes up to and including `last`; false after diagnostics. */
static bool run_passes(Compilation *c, const char *last) {
  const Options *o = &c->options;
  for (int i = 0; i < N_PASSES; i++) {
    const struct Pass *p = &passes[i];
    if (!run_pass(c, p))
      return false;
    bool emits = is_emitted(c, p);
    if (emits)
      print_emitted(c, p);
    if (emits || !strcmp(p->name, last) || (o->stop_after && !strcmp(p->name, o->stop_after)))
      return true;
  }
  return true;
}

/* ---- --tensor auto ----------------------------------------------------------------------------- */

/* Sets the peaks of the chosen plan, equal to those of run_allocate. */
static bool find_peaks(Compilation *c) {
  for (int i = 0; i < n_stages(c); i++) {
    int64_t bytes = stages_peak(c->stages, c->plan, i);
    for (int k = 0; k < pipeline_chunks(&c->plan->pipeline, i); k++)
      c->plan->stage[plan_part_of(c->plan, i, k)].peak_bytes = bytes;
  }
  return error_count() == 0;
}

/* The plan of a tensor-parallel degree; its diagnostics go to `why`. */
static void plan_degree(const Options *o, TensorDegree *degree) {
  Compilation *c = quiet(o, &o->plan);
  c->options.plan.tensor = degree->shards > 1 ? degree->shards : 0;
  c->options.plan.refusal = SAY_LEAST;
  int mark = diagnostics_mark();
  bool good = run_passes(c, "plan") && find_peaks(c);
  const char *error = diagnostics_forget(mark);
  degree->plan = good ? c->plan : NULL;
  degree->why = error ? error : "no plan";
}

/* If no degree has a plan, reports the diagnostics of degree 1. */
static bool choose_degree(Compilation *c) {
  PlanRequest *request = &c->options.plan;
  if (request->tensor != TENSOR_AUTO)
    return true;
  if (!tensor_degrees(request, &c->degrees))
    return false;
  for (int i = 0; i < c->degrees.n; i++)
    plan_degree(&c->options, &c->degrees.at[i]);
  int chosen = tensor_choose(&c->degrees);
  request->tensor = chosen < 0 ? 0 : c->degrees.at[chosen].shards;
  return true;
}

/* ---- commands -------------------------------------------------------------------------------- */

static char *run_profile_program(void *context, const char *text) {
  const Compilation *c = context;
  return cc_run(&c->options, text);
}

/* -S: writes the measuring program without running it. */
static bool write_profile_program(Compilation *c) {
  const Options *o = &c->options;
  const char *suffix = toolchain_of(o)->suffix;
  const char *path = o->output ? o->output : format("%s.profile.%s", base_name(o->input), suffix);
  char *text = profile_program(c->graph, &c->pieces, &o->plan);
  if (!text)
    return false;
  if (write_file(path, text, strlen(text)))
    return true;
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  return false;
}

static bool profile(Compilation *c) {
  const Options *o = &c->options;
  PlanRequest *request = &c->options.plan;
  request->arch = o->arch;
  if (!choose_degree(c) || !run_passes(c, "cut"))
    return false;
  if (o->sources_only)
    return write_profile_program(c);
  request->compiler = cc_version_if_found(o, toolchain_of(o));
  const char *path = o->output ? o->output : format("%s.profile.json", base_name(o->input));
  return profile_make(c->graph, &c->pieces, request, path, run_profile_program, c, o->table ? stdout : NULL);
}

static bool write_plan_page(Compilation *c) {
  const Options *o = &c->options;
  const char *path = o->output ? o->output : format("%s.plan.html", base_name(o->input));
  double start = seconds_now();
  Show picture = what_to_show(c, PICTURE_DEPTH);
  const PlanPage page = {c->graph, &c->pieces, &o->plan, c->plan, c->runners_up, N_RUNNERS_UP, show_svg(&picture)};
  if (!plan_page(&page, path))
    return false;
  printf("page: %s\n", path);
  if (o->time_passes)
    fprintf(stderr, "%-10s %8.3f ms\n", "page", 1e3 * (seconds_now() - start));
  return true;
}

/* Whether `pdc plan` must run passes after `plan`, to print, dump or verify their results. */
static bool wants_more_than_plans(const Options *o) {
  bool more = o->emit != EMIT_NOTHING || o->stop_after || o->verify_each;
  for (const struct Pass *p = find_pass("plan") + 1; p < passes + N_PASSES && !more; p++)
    more = o->dump && strchr(o->dump, p->letter);
  return more;
}

static bool print_plans(Compilation *c) {
  const Options *o = &c->options;
  if (!o->input)
    return plan_layers(&o->layers, &o->plan, o->emit == EMIT_PLAN, stdout);
  if (!choose_degree(c))
    return false;
  if (o->compare) {
    if (!run_passes(c, "cut"))
      return false;
    prepare_request(c);
    return plan_compare(c->graph, &c->pieces, &c->options.plan, stdout);
  }
  if (!(wants_more_than_plans(o) ? run_passes(c, "allocate") : run_passes(c, "plan") && find_peaks(c)))
    return false;
  if (o->emit != EMIT_NOTHING || o->stop_after)
    return true;
  plan_table(c->graph, &c->pieces, c->plan, stdout);
  for (int i = 0; i < N_RUNNERS_UP; i++)
    if (c->runners_up[i])
      plan_runner_up(&c->pieces, c->plan, c->runners_up[i], stdout);
  if (c->degrees.n)
    tensor_compare(&c->degrees, stdout);
  plan_hint(c->graph, &c->pieces, &o->plan, c->plan, stdout);
  plan_delay_hint(c->graph, c->plan, stdout);
  return !o->report || write_plan_page(c);
}

static bool write_picture(const char *path, const char *text) {
  if (write_file(path, text, strlen(text)))
    return true;
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  return false;
}

static bool show(Compilation *c) {
  const Options *o = &c->options;
  if (!choose_degree(c) || !run_passes(c, o->planned ? "plan" : "cut"))
    return false;
  Show table = what_to_show(c, o->depth ? o->depth : TABLE_DEPTH), picture = table;
  picture.depth = o->depth ? o->depth : PICTURE_DEPTH;
  show_table(&table, stdout);
  return (!o->svg || write_picture(o->svg, show_svg(&picture))) &&
         (!o->dot || write_picture(o->dot, show_dot(&picture)));
}

/* Builds one model of several. */
static bool build_model(const Options *o, ModelBuilt *built) {
  Compilation *c = alloc(sizeof *c);
  c->options = *o;
  if (!run_passes(c, "build"))
    return false;
  *built = (ModelBuilt){c->plan->batch_seconds,
                        c->plan->stage[0].peak_bytes + backend_of(&c->plan->target)->device->process,
                        plan_parts(c->plan)};
  return true;
}

static bool tokenize_files(const Options *o) {
  TokenizeRequest request = o->tokens;
  request.files = o->files.at, request.n_files = o->files.n;
  request.output = o->output, request.threads = o->plan.target.threads, request.quiet = o->quiet;
  return tokenize(&request);
}

static bool run_command(Compilation *c) {
  const Options *o = &c->options;
  switch (o->command) {
  case COMMAND_EXPLAIN: return explain_name(o->input, stdout);
  case COMMAND_REPORT: return report(o->input, o->output);
  case COMMAND_CHECKPOINT: return checkpoint_list(o->input, stdout);
  case COMMAND_DOCTOR: return doctor(o);
  case COMMAND_COMPLETION: return print_completion(o->files.at[0], o->files.n > 1 ? o->files.at[1] : NULL);
  case COMMAND_HELP: print_help(o->files.n ? o->files.at[0] : NULL); return true;
  case COMMAND_PROFILE: return profile(c);
  case COMMAND_TOKENIZE: return tokenize_files(o);
  case COMMAND_DATA: return data_show(o->shown_data, o->tokens.tokenizer, stdout);
  case COMMAND_PLAN: return print_plans(c);
  case COMMAND_SHOW: return show(c);
  case COMMAND_LSP: return lsp_serve(STDIN_FILENO, stdout);
  case COMMAND_FORMAT: return format_files(o->files.at, o->files.n, o->check, stdout);
  case COMMAND_EXPORT: return export_gguf(o->input, o->output, (ExportType)o->export_type);
  case COMMAND_MERGE: return merge_folders(o->files.at[0], o->files.at[1], o->output);
  case COMMAND_IMPORT: return import_folder(o->input, o->output);
  case COMMAND_BUILD: break;
  }
  if (o->sharp)
    return sharp_build(o, build_model);
  return (o->syntax_only || choose_degree(c)) && run_passes(c, !o->syntax_only ? "build"
                                                               : o->generate   ? "decode"
                                                                               : "elaborate");
}

int main(int argc, char **argv) {
  setvbuf(stderr, NULL, _IOLBF, BUFSIZ);
  static Compilation c;
  options_read(&c.options, argc, argv);
  const Options *o = &c.options;
  if (o->stop_after && !find_pass(o->stop_after)) {
    fprintf(stderr, "pdc: error: --stop-after: there is no pass '%s'\n", o->stop_after);
    return 2;
  }
  bool good = error_count() == 0 && march_prepare(o) && run_command(&c);
  diagnostics_flush();
  return output_status(good && error_count() == 0 ? 0 : 1);
}
