/* `pdc profile`: times the kernels of the whole model as one stage, and divides their seconds over pieces. Timing
 * the whole model includes fusion across cuts; a stage's own kernels differ only at its ends. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emit/emit.h"
#include "measure/internal.h"

enum { MOST_SIZES = 4 };
static const double LONGEST_SECONDS = 10; /* per microbatch, counted; larger ones are not measured */

/* ---- from kernels to pieces ------------------------------------------------------------------------- */

typedef struct Shares {
  const Graph *g;
  const int *piece; /* by node */
  double *weight;   /* by piece */
  double total;
  int64_t b;
  const Rates *rates;
} Shares;

static void add_node(Shares *s, int node) {
  double w = counted_seconds(s->g, node, s->b, s->rates);
  s->weight[s->piece[node]] += w;
  s->total += w;
}

static void weigh_kernel(Shares *s, const StageKernels *k, const Kernel *kernel) {
  const Ints nodes = kernel_nodes(k, kernel);
  for (int i = 0; i < nodes.n; i++)
    add_node(s, nodes.at[i]);
}

/* Divides kernels' seconds over the pieces of their nodes, in proportion to counted costs. seconds: by kernel of
 * k->forward, then of k->backward. */
static void attribute(const Planner *r, const StageKernels *k, const double *seconds, MeasuredSize *out) {
  const Graph *g = r->g;
  const Pieces *p = r->p;
  Shares s = {.g = g, .piece = piece_of_nodes(g, p), .b = k->microbatch, .rates = r->rates};
  s.weight = alloc((size_t)p->n * sizeof *s.weight);
  out->forward = alloc((size_t)p->n * sizeof *out->forward);
  out->backward = alloc((size_t)p->n * sizeof *out->backward);
  out->products = alloc((size_t)p->n * sizeof *out->products);
  const bool *product = weight_products(g);
  int last = 0; /* copies without nodes count with the previous kernel */
  for (int i = 0; i < k->forward.n + k->backward.n; i++) {
    bool backward = i >= k->forward.n;
    memset(s.weight, 0, (size_t)p->n * sizeof *s.weight);
    s.total = 0;
    const Kernel *kernel = backward ? &k->backward.at[i - k->forward.n] : &k->forward.at[i];
    bool makes_weights = kernel->kind == KERNEL_CALL && product[kernel->node - g->nodes.at];
    weigh_kernel(&s, k, kernel);
    if (s.total == 0)
      s.weight[last] = s.total = 1;
    for (int j = 0; j < p->n; j++) {
      (backward ? out->backward : out->forward)[j] += seconds[i] * s.weight[j] / s.total;
      out->products[j] += makes_weights ? seconds[i] * s.weight[j] / s.total : 0;
      last = s.weight[j] > 0 ? j : last;
    }
  }
}

/* ---- measuring ---------------------------------------------------------------------------------------- */

/* "SIGNATURE SECONDS" */
static bool read_timing(const char *line, size_t n, Timings *out) {
  size_t split = n;
  while (split > 0 && line[split - 1] != ' ')
    split--;
  char *end;
  double seconds = strtod(line + split, &end);
  if (split < 2 || split == n || end != line + n || !(seconds >= 0) || !isfinite(seconds))
    return false;
  push(out, (Timing){intern_n(line, split - 1), seconds});
  return true;
}

static bool read_attention(const char *line, size_t n, Measurements *out) {
  TimedAttention of_kernel = {0};
  if (!attention_parse(line, n, &of_kernel.attention) || !out->timings.n)
    return false;
  of_kernel.signature = out->timings.at[out->timings.n - 1].signature;
  push(&out->attentions, of_kernel);
  return true;
}

/* Lines of products or attention follow their kernel's line. */
static bool read_line(const char *line, size_t n, Measurements *out) {
  TimedAlgorithm of_kernel = {0};
  if (!strncmp(line, "library ", strlen("library ")))
    return product_library_parse(line, n, "library", &out->cublaslt);
  if (!strncmp(line, "cudnn ", strlen("cudnn ")))
    return product_library_parse(line, n, "cudnn", &out->cudnn);
  if (!strncmp(line, "attention ", strlen("attention ")))
    return read_attention(line, n, out);
  if (strncmp(line, "algorithm ", strlen("algorithm ")) != 0)
    return read_timing(line, n, &out->timings);
  if (!algorithm_parse(line, n, &of_kernel.algorithm) || !out->timings.n)
    return false;
  of_kernel.signature = out->timings.at[out->timings.n - 1].signature;
  push(&out->algorithms, of_kernel);
  return true;
}

/* Checks the last line, which marks the output as complete and names its target and precision. Returns the text
 * before that line; NULL after a diagnostic. */
static const char *without_end(const char *printed, const char *target) {
  const char *end = format("end %s\n", target);
  size_t n = strlen(printed), length = strlen(end);
  bool whole =
      n >= length && !strcmp(printed + n - length, end) && (n == length || printed[n - length - 1] == '\n');
  if (whole)
    return format("%.*s", (int)(n - length), printed);
  Diagnostic *d =
      error_at(NO_SPAN, "PD0604", "the profiling program's output does not end with the line 'end %s'", target);
  help(d, "the output is incomplete, or the program is for another target or precision");
  return NULL;
}

static bool read_measurements(const char *printed, const char *target, Measurements *out) {
  printed = without_end(printed, target);
  for (const char *line = printed; line && *line;) {
    size_t n = strcspn(line, "\n");
    if (!read_line(line, n, out)) {
      error_at(NO_SPAN, "PD0604", "the profiling program printed '%.*s', which is not a measurement",
               (int)(n < 80 ? n : 80), line);
      return false;
    }
    line += n + (line[n] == '\n');
  }
  if (!printed)
    return false;
  if ((!out->algorithms.n || out->cublaslt.device) && (!out->attentions.n || out->cudnn.device))
    return true;
  error_at(NO_SPAN, "PD0604", "the profiling program did not print the version of the library that it measured");
  return false;
}

bool find_seconds(const Timings *t, const Kernel *kernel, double *seconds) {
  for (int i = 0; i < t->n; i++)
    if (t->at[i].signature == kernel->signature) {
      *seconds = t->at[i].seconds;
      return true;
    }
  error_at(NO_SPAN, "PD0604", "the profiling program did not measure '%s'", kernel->name);
  return false;
}

double timing_named(const Timings *t, const char *name) {
  for (int i = 0; i < t->n; i++)
    if (!strcmp(t->at[i].signature, name))
      return t->at[i].seconds;
  return 0;
}

static void count_kernel(MeasuredSize *m, const Kernel *kernel, double seconds) {
  for (int i = 0; i < m->kernels.n; i++)
    if (m->kernels.at[i].signature == kernel->signature) {
      m->kernels.at[i].count++;
      return;
    }
  push(&m->kernels, ((MeasuredKernel){kernel->signature, kernel->name, 1, seconds}));
}

/* Adds the algorithms of the kernel's products. */
static void add_algorithms(MeasuredSize *m, const Kernel *kernel, const Measurements *measured) {
  for (int i = 0; i < measured->algorithms.n; i++) {
    const TimedAlgorithm *t = &measured->algorithms.at[i];
    bool known = t->signature != kernel->signature;
    for (int k = 0; k < m->algorithms.n && !known; k++)
      known = m->algorithms.at[k].product == t->algorithm.product;
    if (!known)
      push(&m->algorithms, t->algorithm);
  }
}

static void add_attentions(MeasuredSize *m, const Kernel *kernel, const Measurements *measured) {
  for (int i = 0; i < measured->attentions.n; i++) {
    const TimedAttention *t = &measured->attentions.at[i];
    bool known = t->signature != kernel->signature;
    for (int k = 0; k < m->attentions.n && !known; k++)
      known = m->attentions.at[k].attention == t->attention.attention;
    if (!known)
      push(&m->attentions, t->attention);
  }
}

static bool measure_size(const Planner *r, const StageKernels *k, const Measurements *measured, Profile *profile) {
  MeasuredSize m = {.microbatch = k->microbatch};
  int n = k->forward.n + k->backward.n;
  double *seconds = alloc((size_t)(n + 1) * sizeof *seconds);
  for (int i = 0; i < n; i++) {
    const Kernel *kernel = i < k->forward.n ? &k->forward.at[i] : &k->backward.at[i - k->forward.n];
    if (!find_seconds(&measured->timings, kernel, &seconds[i]))
      return false;
    count_kernel(&m, kernel, seconds[i]);
    add_algorithms(&m, kernel, measured);
    add_attentions(&m, kernel, measured);
  }
  attribute(r, k, seconds, &m);
  push(&profile->sizes, m);
  return true;
}

/* Whether the smallest partition fits with this microbatch: as a pipeline, or with too few microbatches as
 * replicas. */
static bool holds(const Planner *r, const Spans *spans, int64_t b) {
  int64_t microbatches = r->g->train.batch / b;
  Pipeline form = r->form;
  if (!schedule_allows(&form, microbatches))
    form = form_make(r, 1, &r->ranks);
  Partition part;
  const int parts = pipeline_parts(&form);
  return schedule_allows(&form, microbatches) &&
         partition_smallest(spans, copies(r, &form, &(Placement){0}, b, r->request->recompute), parts, &part) <=
             r->memory.arena;
}

/* Keeps the largest microbatches that run in reasonable time and fit; at least the smallest. */
static void keep_reasonable(Planner *r) {
  int n = r->microbatches.n, end = n, first;
  for (; end > 1; end--) {
    int64_t b = r->microbatches.at[end - 1];
    const Spans *spans = spans_at(r, b);
    if (span_compute(spans, 0, spans->c->n) <= LONGEST_SECONDS && holds(r, spans, b))
      break;
  }
  first = end > MOST_SIZES ? end - MOST_SIZES : 0;
  for (int i = first; i < end; i++)
    r->microbatches.at[i - first] = r->microbatches.at[i];
  r->microbatches.n = end - first;
}

/* The measured program: the whole model as one stage, at every candidate microbatch. */
typedef struct Job {
  Planner planner;
  ProfileTask task;
} Job;

/* Memory layout for a run on one rank. */
static const Allocation *lay_out(const Planner *r, const LoweredStage *stage, int64_t b) {
  Pipeline form = pipeline_make(intern(r->g->inference ? "forward" : "flush"), 1, 1);
  form = pipeline_at(&form, r->g->train.batch, b);
  const Program *program = schedule(&form, NULL, NO_SPAN);
  ensure(program);
  return allocate(stage, program, &r->g->train);
}

/* Processes: the plan's ranks, limited by processors and memory. */
static void choose_processes(const Planner *r, ProfileTask *task) {
  const Device *device = backend_of(&r->target)->device;
  int64_t most = 0;
  long at_once = device->has_threads ? sysconf(_SC_NPROCESSORS_ONLN) / r->target.threads : 1;
  for (int i = 0; i < task->n; i++)
    most = task->allocations[i]->bytes > most ? task->allocations[i]->bytes : most;
  const int ranks = r->ranks * (r->g->shards ? r->g->shards : 1);
  task->processes = ranks < at_once ? ranks : (int)at_once;
  while (task->processes > 1 && device->memory && device->memory(task->processes) - device->process < most)
    task->processes--;
  task->processes = task->processes > 1 ? task->processes : 1;
  task->room = device->memory ? device->memory(task->processes) - device->process : r->memory.arena;
}

static void choose_update(const Graph *g, ProfileTask *task) {
  const UpdateRule *rule = update_rule(&g->train);
  if (g->inference || rule->scratch)
    return;
  task->rule = rule->name;
  task->n_moments = rule->n_moments;
  for (int i = 0; i < g->params.n; i++)
    task->elements += is_trained(&g->params.at[i]) ? shape_elements(&g->params.at[i].shape) : 0;
}

static bool prepare(Job *j, const Graph *g, const Pieces *p, const PlanRequest *request) {
  Planner *r = &j->planner;
  if (!planner_prepare(r, g, p, request, NULL) || !planner_microbatches(r))
    return false;
  keep_reasonable(r);
  int n = r->microbatches.n;
  const LoweredStage **stages = alloc((size_t)n * sizeof *stages);
  const Allocation **allocations = alloc((size_t)n * sizeof *allocations);
  for (int i = 0; i < n; i++) {
    int64_t b = r->microbatches.at[i];
    stages[i] = lower(fuse(g, p, 0, p->n, 0, 1, b, false, false, r->target));
    allocations[i] = lay_out(r, stages[i], b);
  }
  j->task = (ProfileTask){.stages = stages, .allocations = allocations, .n = n};
  j->task.link = request->spill && r->rates->host > 0;
  j->task.target = profile_target(&r->target);
  choose_processes(r, &j->task);
  choose_update(g, &j->task);
  return true;
}

char *profile_program(const Graph *g, const Pieces *p, const PlanRequest *request) {
  Job job;
  return prepare(&job, g, p, request) ? emit_profile(&job.task) : NULL;
}

/* For the largest microbatch. */
static bool print_table(const Job *job, const Timings *timings, FILE *out) {
  const Planner *r = &job->planner;
  const Device *device = backend_of(&r->target)->device;
  ProfileTable t = {.stage = job->task.stages[job->task.n - 1],
                    .timings = timings,
                    .rates = {timing_named(timings, "products"), timing_named(timings, "operations"),
                              timing_named(timings, "memory")},
                    .measured = true,
                    .rule = job->task.rule,
                    .elements = job->task.elements,
                    .n_moments = job->task.n_moments,
                    .machine = device->machine()};
  if (t.rates.memory <= 0) { /* GPU programs do not measure rates */
    t.measured = false;
    t.rates = (BestRates){r->rates->product, r->rates->product, r->rates->stream};
  }
  return profile_table(&t, out);
}

/* Takes the GPU's name from the output. With --measured it may be another machine's: then one GPU is assumed.
 * False after a diagnostic: the GPU does not match --arch. */
static bool name_machine(ProfileSignature *s, const Measurements *measured, const char *arch) {
  const char *device = measured->cublaslt.device;
  if (!device)
    return true;
  const DeviceKind *kind = kind_of_model(device);
  if (arch && kind && kind->arch != (int)strtol(arch + strlen("sm_"), NULL, 10)) {
    error_at(NO_SPAN, "PD0604", "the profiling program ran on '%s', which is sm_%d, not %s", device, kind->arch,
             arch);
    return false;
  }
  if (strncmp(s->machine, device, strlen(device)) != 0)
    s->machine = internf("%s, 1 GPU", device);
  return true;
}

bool profile_make(const Graph *g, const Pieces *p, const PlanRequest *request, const char *out_path,
                  ProfileRun run, void *context, FILE *table) {
  Job job;
  if (!prepare(&job, g, p, request))
    return false;
  job.task.rates = table != NULL;
  const Planner *r = &job.planner;
  char *printed = run(context, emit_profile(&job.task));
  Measurements measured = {0};
  if (!printed || !read_measurements(printed, job.task.target, &measured))
    return false;
  const Timings *timings = &measured.timings;
  Profile profile = {.file = intern(out_path), .signature = profile_signature(g, p, r->target, request->compiler)};
  if (!name_machine(&profile.signature, &measured, request->arch))
    return false;
  profile.update = timing_named(timings, "update");
  profile.apart = timing_named(timings, "apart");
  profile.norm = timing_named(timings, "norm");
  profile.to_device = timing_named(timings, "to_device");
  profile.from_device = timing_named(timings, "from_device");
  profile.at_home = timing_named(timings, "at_home");
  profile.cublaslt = measured.cublaslt;
  profile.cudnn = measured.cudnn;
  if (request->spill && !spills_to_host(r) &&
      !measure_place(request->spill, 4 * job.task.elements * (2 + job.task.n_moments), &profile))
    return false;
  for (int i = 0; i < job.task.n; i++)
    if (!measure_size(r, job.task.stages[i]->kernels, &measured, &profile))
      return false;
  char *text = profile_write(&profile, p);
  if (write_file(out_path, text, strlen(text)))
    return !table || print_table(&job, timings, table);
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", out_path, strerror(errno));
  return false;
}
