/* Prints a program that times kernels, for `pdc profile`. On processors it runs whole forward and backward passes
 * over the buffers of a run and reads the clock between kernels. Caches are therefore in the state of a run. On a
 * GPU it repeats each distinct kernel. */
#include "emit/print.h"
#include "ops/op.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct Timed {
  const StageKernels *stage;
  const Lowered *kernel;
  Name name;
  int count;     /* equal kernels in the stage */
  int64_t bytes; /* of the buffers, side by side; scratch follows */
} Timed;

typedef struct TimedKernels {
  Timed *at;
  int n, room;
  KernelTexts inner; /* kernels of the bodies of scans, which are not timed by themselves */
  Names taken;       /* identifiers at file scope */
} TimedKernels;

static Name local_name(void *context, int buffer) {
  const Arguments *a = context;
  for (int i = 0; i < a->buffers.n; i++)
    if (a->buffers.at[i] == buffer)
      return internf("x%d", i);
  BUG("a call names buffer %d, which is not among its own", buffer);
}

static int find_timed(const TimedKernels *timed, const Lowered *kernel) {
  int i = 0;
  while (i < timed->n && timed->at[i].kernel->kernel->signature != kernel->kernel->signature)
    i++;
  return i;
}

/* Names the kernels of a scan's body that are not known yet. */
static void collect_inner(const Lowered *scan, TimedKernels *timed, Names *taken) {
  collect_kernels(scan->scan->step, scan->kernel->name, &timed->inner);
  for (int i = 0; i < timed->inner.n; i++)
    if (!timed->inner.at[i].name)
      timed->inner.at[i].name = unique_kernel_name(taken, timed->inner.at[i].wanted);
}

static Name inner_function(const void *context, const Lowered *k) {
  const TimedKernels *timed = context;
  for (int i = 0; i < timed->inner.n; i++)
    if (timed->inner.at[i].kernel->kernel->signature == k->kernel->signature)
      return timed->inner.at[i].name;
  BUG("kernel '%s' was never printed", k->kernel->name);
}

static void collect(const StageKernels *k, const LoweredList *list, TimedKernels *timed, Names *taken) {
  for (int i = 0; i < list->n; i++) {
    int j = find_timed(timed, &list->at[i]);
    if (j == timed->n && list->at[i].scan)
      collect_inner(&list->at[i], timed, taken);
    if (j == timed->n)
      push(timed, (Timed){k, &list->at[i], unique_kernel_name(taken, list->at[i].kernel->name), 0, 0});
    timed->at[j].count += timed->at[j].stage == k;
  }
}

static bool seen_before(const Ints *buffers, int i) {
  for (int j = 0; j < i; j++)
    if (buffers->at[j] == buffers->at[i])
      return true;
  return false;
}

/* "run_NAME" calls the kernel, whose buffers and scratch memory are at at[0], at[1] .. Collectives are not timed,
 * because the program has one rank. */
static void print_run(Text *out, const Timed *t) {
  const Arguments *c = &t->kernel->arguments;
  if (t->kernel->call && t->kernel->kernel->node->op->collective) {
    text_add(out, "static void run_%s(void) {} /* other ranks' */\n\n", t->name);
    return;
  }
  text_add(out, "static void run_%s(void) {\n", t->name);
  for (int i = 0; i < c->buffers.n; i++) {
    const Buffer *b = &t->stage->buffers.at[c->buffers.at[i]];
    const char *type = b->type == TYPE_TOKEN ? "int32_t" : b->bf16 ? "pd_bf16" : "float";
    if (!seen_before(&c->buffers, i))
      text_add(out, "  %s *x%d = (%s *)(memory + at[%d]);\n", type, i, type, i);
  }
  if (c->first)
    text_add(out, "  const bool first = false;\n");
  if (c->scratch)
    text_add(out, "  char *scratch = memory + at[%d];\n", c->buffers.n);
  if (t->kernel->call) {
    print_kernel_call(out, 2, dialect_of(t->stage), t->kernel, t->name, local_name, (void *)c, false);
  } else {
    Names list = {0};
    if (c->first)
      push(&list, intern("first"));
    for (int i = 0; i < c->buffers.n; i++)
      push(&list, internf("x%d", i));
    for (int i = 0; i < c->keys.n; i++)
      push(&list, intern("1"));
    if (c->scratch)
      push(&list, intern("scratch"));
    dialect_of(t->stage)->print_loop_call(out, 2, t->stage, t->kernel, t->name, &list);
  }
  text_add(out, "}\n\n");
}

/* Fills a buffer at `at` with plausible values. */
static void print_fill(Text *out, const StageKernels *k, const Buffer *b, int64_t at) {
  bool token = b->type == TYPE_TOKEN;
  text_add(out, "  fill_%s(memory + %" PRId64 ", %" PRId64 "%s);\n",
           token     ? "tokens"
           : b->bf16 ? "bf16"
                     : "floats",
           at, b->elements, token ? format(", %" PRId64, k->graph->values.at[b->value].classes) : "");
}

/* ---- kernels by themselves ------------------------------------------------------------------------- */

/* "at_NAME": offsets of the buffers side by side, then of the scratch memory; "fill_NAME" fills them. */
static void print_side_by_side(Text *out, Timed *t) {
  const Ints *buffers = &t->kernel->arguments.buffers;
  Text fills = {0};
  int64_t *at = alloc((size_t)(buffers->n + 1) * sizeof *at);
  for (int i = 0; i < buffers->n; i++) {
    const Buffer *b = &t->stage->buffers.at[buffers->at[i]];
    at[i] = t->bytes;
    if (seen_before(buffers, i))
      continue;
    print_fill(&fills, t->stage, b, t->bytes);
    t->bytes += buffer_bytes(b);
  }
  at[buffers->n] = t->bytes;
  text_add(out, "static const int64_t at_%s[] = {", t->name);
  for (int i = 0; i <= buffers->n; i++)
    text_add(out, "%s%" PRId64, i ? ", " : "", at[i]);
  text_add(out, "};\nstatic void fill_%s(void) {\n%s}\n\n", t->name, fills.n ? fills.at : "");
}

/* ---- whole passes ---------------------------------------------------------------------------------- */

/* Offsets of a stage's buffers, and the end of the last. */
typedef struct Places {
  const StageKernels *k;
  const Allocation *a;
  int64_t room, end;
  int64_t *apart; /* by buffer: its offset after the room; 0: none yet */
} Places;

/* The offset of a run. Beyond the memory limit buffers overlap, because their contents do not matter. */
static int64_t place(Places *p, int64_t offset, int64_t bytes) {
  int64_t last = p->room > bytes ? (p->room - bytes) / ALIGNMENT * ALIGNMENT : 0;
  int64_t at = offset <= last ? offset : last ? offset % last / ALIGNMENT * ALIGNMENT : 0;
  p->end = at + bytes > p->end ? at + bytes : p->end;
  return at;
}

/* Tokens never overlap, because they decide the addresses that kernels read. */
static int64_t place_of(Places *p, int buffer) {
  const Buffer *b = &p->k->buffers.at[buffer];
  if (p->a->bytes > p->room && b->type == TYPE_TOKEN) {
    if (!p->apart[buffer]) {
      p->apart[buffer] = p->end > p->room ? p->end : p->room;
      p->end = p->apart[buffer] + buffer_bytes(b);
    }
    return p->apart[buffer];
  }
  int64_t offset = p->a->buffer[buffer].offset;
  if (b->kind == BUFFER_TEMPORARY && b->region >= 0)
    offset += b->backward ? p->a->frame_backward[b->region] : p->a->frame[b->region];
  return place(p, offset, buffer_bytes(b));
}

/* Prints a kernel's buffers and scratch memory; returns their number. */
static int print_places(Text *out, Places *p, const Lowered *kernel) {
  const Ints *buffers = &kernel->arguments.buffers;
  text_add(out, "  ");
  for (int i = 0; i < buffers->n; i++)
    text_add(out, "%" PRId64 ", ", place_of(p, buffers->at[i]));
  text_add(out, "%" PRId64 ",\n", place(p, p->a->scratch_offset, kernel->scratch_bytes));
  return buffers->n + 1;
}

/* Fills the buffer as at the start of a run, because some kernels take longer for large numbers. The values have
 * the standard deviation of the parameter's initial values, or one. */
static void print_contents(Text *out, Places *p, int buffer) {
  const double evenly = sqrt(3); /* half-width of a uniform distribution, in standard deviations */
  const Buffer *b = &p->k->buffers.at[buffer];
  int64_t at = place_of(p, buffer);
  double mean = 0, spread = b->kind == BUFFER_ACCUMULATOR ? 0 : evenly;
  if (b->type == TYPE_TOKEN) {
    print_fill(out, p->k, b, at);
    return;
  }
  if (is_parameter(b->kind)) {
    const Param *q = &p->k->graph->params.at[b->param];
    mean = q->init == INIT_ONES ? 1 : q->init == INIT_CONSTANT ? q->init_value : 0;
    spread = q->init == INIT_NORMAL ? evenly * q->init_value : q->init == INIT_UNIFORM ? q->init_value : 0;
  }
  text_add(out, "  fill_spread(memory + %" PRId64 ", %" PRId64 ", %s, %s);\n", at, b->elements,
           float_literal(mean), float_literal(spread));
}

/* Size i: "places_i", "steps_i" and "fill_i", forward and then backward. Returns the bytes of memory required. */
static int64_t print_size(Text *out, const ProfileTask *task, int i, const TimedKernels *timed) {
  const LoweredStage *stage = task->stages[i];
  Places p = {stage->kernels, task->allocations[i], task->room / ALIGNMENT * ALIGNMENT, 0, NULL};
  p.apart = alloc((size_t)p.k->buffers.n * sizeof *p.apart);
  Text places = {0}, steps = {0};
  int n = 0;
  for (PassKind pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++) {
    const LoweredList *list = lowered_pass(stage, pass);
    for (int j = 0; j < list->n; j++) {
      text_add(&steps, "  {%d, places_%d + %d},\n", find_timed(timed, &list->at[j]), i, n);
      n += print_places(&places, &p, &list->at[j]);
    }
  }
  text_add(out, "static const int64_t places_%d[] = {\n%s};\n", i, places.at);
  text_add(out, "static const struct step steps_%d[] = {\n%s};\n", i, steps.at);
  text_add(out, "static void fill_%d(void) {\n", i);
  for (int j = 0; j < p.k->buffers.n; j++)
    if (p.k->buffers.at[j].kind <= BUFFER_INPUT || p.k->buffers.at[j].kind == BUFFER_TABLE)
      print_contents(out, &p, j);
  text_add(out, "}\n\n");
  return p.end;
}

static int64_t print_passes(Text *out, const ProfileTask *task, const TimedKernels *timed) {
  int64_t bytes = 0;
  text_add(out, "static double sums[%d];\nstatic int64_t counts[%d];\n\n", timed->n, timed->n);
  for (int i = 0; i < task->n; i++) {
    int64_t need = print_size(out, task, i, timed);
    bytes = need > bytes ? need : bytes;
  }
  text_add(out, "static const struct size sizes[] = {\n");
  for (int i = 0; i < task->n; i++)
    text_add(out, "  {steps_%d, sizeof steps_%d / sizeof *steps_%d, fill_%d},\n", i, i, i, i);
  text_add(out, "};\n\nstatic double seconds_of(size_t i) { return sums[i] / (double)counts[i]; }\n\n");
  return bytes;
}

/* ---- the program ---------------------------------------------------------------------------------- */

/* Without an argument: lines "SIGNATURE SECONDS". With one: JSON, for comparison with a machine's rates. */
static const char main_loop[] =
    "  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {\n"
    "    const double seconds = seconds_of(i);\n"
    "    if (argc > 1)\n"
    "      printf(\"{\\\"kernel\\\": \\\"%s\\\", \\\"count\\\": %d, \\\"bytes\\\": %.0f, "
    "\\\"operations\\\": %.0f, \\\"seconds\\\": %.9g}\\n\",\n"
    "             kernels[i].name, kernels[i].count, kernels[i].bytes, kernels[i].operations, seconds);\n"
    "    else\n      printf(\"%s %.9g\\n\", kernels[i].signature, seconds);\n";

static void print_table(Text *out, const TimedKernels *timed, bool side_by_side) {
  text_add(out,
           "static const struct {\n  const char *signature, *name;\n  void (*run)(void);\n%s"
           "  int count;\n  double bytes, operations;\n} kernels[] = {\n",
           side_by_side ? "  void (*fill)(void);\n  const int64_t *at;\n" : "");
  for (int i = 0; i < timed->n; i++) {
    const Timed *t = &timed->at[i];
    const KernelWork work = kernel_work(t->stage, t->kernel);
    text_add(out, "  {.signature = \"%s\", .name = \"%s\",\n   .run = run_%s,%s\n", t->kernel->kernel->signature,
             t->name, t->name, side_by_side ? format(" .fill = fill_%s, .at = at_%s,", t->name, t->name) : "");
    text_add(out, "   .count = %d, .bytes = %.0f, .operations = %.0f},\n", t->count, work.bytes, work.products);
  }
  text_add(out, "};\n\n");
}

/* Kernels cannot have names that are words of the text outside comments and strings. */
static void take_words(Names *taken, const char *text) {
  while (*text) {
    const char *end = text;
    if (!strncmp(text, "/*", 2)) {
      end = strstr(text, "*/");
    } else if (*text == '"') {
      for (end++; *end && *end != '"'; end++)
        end += *end == '\\';
      end += *end == '"';
    } else {
      while (isalnum((unsigned char)*end) || *end == '_')
        end++;
      if (end > text)
        push(taken, internf("%.*s", (int)(end - text), text));
    }
    text = end > text ? end : text + 1;
  }
}

/* Names in main(), main_loop and print_passes. */
static const char own_names[] = "argc argv at counts kernels main memory now seconds_of sizes sums x";

static TimedKernels distinct_kernels(const ProfileTask *task) {
  enum { MOST_OPERANDS = 64 };
  const TimingDialect *dialect = &dialect_of(task->stages[0]->kernels)->timing;
  const char *texts[] = {own_names,       dialect->preamble, dialect->now, dialect->measuring,
                         dialect->before, dialect->each,     dialect->end};
  TimedKernels timed = {0};
  Names taken = {0};
  Text printed = {0};
  dialect->print_beside(&printed, task, INT64_MAX);
  dialect->print_start(&printed, task, INT64_MAX, true);
  take_words(&taken, printed.at);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    take_words(&taken, texts[i]);
  for (int i = 0; i < MOST_OPERANDS; i++)
    push(&taken, internf("x%d", i));
  for (int i = 0; i < task->n; i++)
    take_words(&taken, format("fill_%d places_%d steps_%d", i, i, i));
  for (int i = 0; i < task->n; i++)
    for (PassKind pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass++)
      collect(task->stages[i]->kernels, lowered_pass(task->stages[i], pass), &timed, &taken);
  timed.taken = taken;
  return timed;
}

static void print_kernel(Text *loops, Text *objects, Text *scans, Text *setup, const TimedKernels *timed,
                         const KernelText *t) {
  const Dialect *dialect = dialect_of(t->stage);
  const ScanTexts texts = {dialect, NULL, false, &timed->taken, inner_function, timed};
  if (t->kernel->scan) {
    print_scan(scans, &texts, t->stage, t->kernel, t->name);
  } else if (!t->kernel->call) {
    dialect->print_loop(loops, t->stage, t->kernel, t->name);
  } else {
    print_call_object(objects, t->kernel, t->name, false);
    print_call_setup(setup, dialect, t->kernel, t->name);
  }
}

/* Prints loops, objects of calls and run functions; `setup` gets the objects' construction in main(). Returns
 * whether a kernel reads the microbatch's numbers or, with shards, its rank's. */
static bool print_kernels(Text *out, Text *setup, const Dialect *dialect, const TimedKernels *timed, bool shards) {
  Text loops = {0}, objects = {0}, scans = {0}, runs = {0};
  bool now = shards;
  for (int i = 0; i < timed->inner.n; i++)
    print_kernel(&loops, &objects, &scans, setup, timed, &timed->inner.at[i]);
  for (int i = 0; i < timed->n; i++) {
    const Timed *t = &timed->at[i];
    now |= t->kernel->arguments.now;
    print_kernel(&loops, &objects, &scans, setup, timed,
                 &(KernelText){.stage = t->stage, .kernel = t->kernel, .name = t->name});
    print_run(&runs, t);
  }
  if (now)
    text_add(out, "%s", dialect->timing.now);
  text_add(out, "static const int64_t *at;\n\n%s%s\n%s%s", loops.n ? loops.at : "", objects.n ? objects.at : "",
           scans.n ? scans.at : "", runs.n ? runs.at : "");
  return now;
}

char *emit_profile(const ProfileTask *task) {
  const StageKernels *first = task->stages[0]->kernels;
  const TimingDialect *dialect = &dialect_of(first)->timing;
  TimedKernels timed = distinct_kernels(task);
  Text out = {0}, setup = {0};
  int64_t bytes = 0;
  text_add(&out, "%s%senum { MICROBATCH = %" PRId64 ", SHARDS = %d };\n",
           text_of_precision(dialect_of(first), first->target.precision), dialect->preamble, first->microbatch,
           first->graph->shards);
  bool now = print_kernels(&out, &setup, dialect_of(first), &timed, first->graph->shards > 0);
  for (int i = 0; i < timed.n && !dialect->in_passes; i++) {
    print_side_by_side(&out, &timed.at[i]);
    int64_t need = timed.at[i].bytes + timed.at[i].kernel->scratch_bytes;
    bytes = need > bytes ? need : bytes;
  }
  print_table(&out, &timed, !dialect->in_passes);
  text_add(&out, "%s", dialect->measuring);
  if (dialect->in_passes)
    bytes = print_passes(&out, task, &timed);
  dialect->print_beside(&out, task, bytes);
  text_add(&out, "int main(int argc, char **argv) {\n  (void)argv;\n");
  dialect->print_start(&out, task, bytes + 4096, now);
  text_add(&out, "%s%s%s%s    fflush(stdout);\n  }\n", setup.n ? setup.at : "", dialect->before, main_loop,
           dialect->each);
  text_add(&out, "%s  if (argc == 1)\n    puts(\"end %s\");\n  return 0;\n}\n", dialect->end, task->target);
  return out.at;
}
