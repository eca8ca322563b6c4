/* Prints loops over time: a function with the loop, which calls the kernels of a step. */
#include "emit/print.h"
#include "ops/scan.h"

#include <inttypes.h>
#include <string.h>

/* ---- kernels with the kernels of their bodies ---------------------------------------------------- */

static void add_kernel(KernelTexts *to, const StageKernels *stage, const Lowered *k, Name within) {
  for (int i = 0; i < to->n; i++)
    if (to->at[i].kernel->kernel->signature == k->kernel->signature)
      return;
  if (k->scan)
    collect_kernels(k->scan->step, k->kernel->name, to);
  push(to, (KernelText){stage, k, NULL, within ? internf("%s_%s", within, k->kernel->name) : k->kernel->name});
}

void collect_kernels(const LoweredStage *s, Name within, KernelTexts *to) {
  for (int i = 0; i < N_LISTS; i++)
    for (int j = 0; j < s->list[i].n; j++)
      add_kernel(to, s->kernels, &s->list[i].at[j], within);
}

bool kernel_takes_instance(const Lowered *k) {
  const LoweredStage *step = k->scan ? k->scan->step : NULL;
  if (call_is_constructed(k))
    return true;
  for (int i = 0; step && i < N_LISTS; i++)
    for (int j = 0; j < step->list[i].n; j++)
      if (kernel_takes_instance(&step->list[i].at[j]))
        return true;
  return false;
}

enum { BETWEEN_PROGRESS = 16 }; /* steps */

/* ---- the function ------------------------------------------------------------------------------------ */

typedef struct Printing {
  Text *out;
  const ScanTexts *texts;
  const StageKernels *outer, *k; /* kernels around the loop, and of a step */
  const Lowered *kernel;
  const LoweredScan *s;
  const ScanLoop *loop;
  Names taken;
  Name *input, *result; /* by input and result of the body: the function's parameter; NULL: none */
  Name *first,
      *second;      /* by state. Cached scans: before and after a row; others: `second` alternates with `result` */
  Name *text;       /* by buffer of the step */
  const char *step; /* the number of the step: "t", which is also the row, or "step" */
} Printing;

static const Buffer *operand_buffer(const Printing *l, int operand) {
  return &l->outer->buffers.at[l->kernel->kernel->in.at[operand].buffer];
}

static const Buffer *result_buffer(const Printing *l, int result) {
  return &l->outer->buffers.at[l->kernel->kernel->out.at[result].buffer];
}

static const char *const cached_operands[CACHED_OPERANDS] = {"position", "sequence"};

static Names parameters(Printing *l, bool instance) {
  const Graph *body = l->s->body;
  Names list = {0};
  if (instance)
    push(&list, internf("struct %s *m", l->texts->library));
  for (int i = 0; i < body->inputs.n; i++) {
    if (l->s->operand[i] < 0)
      continue;
    bool state = i >= l->loop->scanned && i < l->loop->scanned + l->loop->states;
    const char *name = body->inputs.at[i].name;
    l->input[i] = unique_name(&l->taken, state ? format("%s_0", name) : name);
    push(&list, internf("const %s *%s", element_type(operand_buffer(l, l->s->operand[i])), l->input[i]));
  }
  for (int i = 0; i < CACHED_OPERANDS && l->loop->cached; i++)
    push(&list, internf("const int32_t *%s", cached_operands[i]));
  for (int i = 0; i < body->figures.n; i++) {
    const bool kept = l->loop->cached && i >= l->loop->stacked;
    const char *name = body->figures.at[i].output;
    if (kept)
      name = format("%s_kept", name);
    l->result[i] = unique_name(&l->taken, name);
    push(&list, internf("%s *%s", element_type(result_buffer(l, i)), l->result[i]));
  }
  if (l->kernel->scratch_bytes > 0)
    push(&list, intern("char *memory"));
  return list;
}

static char *memory_at(int64_t offset) {
  return offset ? format("(memory + %" PRId64 ")", offset) : format("memory");
}

static Name declare_state(Printing *l, const char *name, const Buffer *b, int64_t offset) {
  const Name text = unique_name(&l->taken, name);
  text_add(l->out, "  %s *%s = (%s *)%s; /* %s */\n", element_type(b), text, element_type(b), memory_at(offset),
           dims_text(b->rank, b->dim));
  return text;
}

/* The step's buffer of the state after it. */
static const Buffer *next_buffer(const Printing *l, int state) {
  for (int i = 0; i < l->k->buffers.n; i++)
    if (l->k->buffers.at[i].kind == BUFFER_FIGURE && l->k->buffers.at[i].figure == l->loop->stacked + state)
      return &l->k->buffers.at[i];
  BUG("state %d has no buffer", state);
}

/* Whether a kernel of the step takes scratch memory, if only as an argument. */
static bool takes_scratch(const LoweredStage *step) {
  for (int i = 0; i < N_LISTS; i++)
    for (int j = 0; j < step->list[i].n; j++) {
      const Lowered *k = &step->list[i].at[j];
      for (int a = 0; k->call && a < k->call->arguments.n; a++)
        if (k->call->arguments.at[a].kind == ARGUMENT_SCRATCH)
          return true;
    }
  return false;
}

/* Pointers that stay the same in all steps. */
static void declare_memory(Printing *l) {
  for (int i = 0; i < l->k->buffers.n; i++) {
    const Buffer *b = &l->k->buffers.at[i];
    if (b->kind != BUFFER_TABLE && b->kind != BUFFER_TEMPORARY)
      continue;
    l->text[i] = unique_name(&l->taken, b->name);
    text_add(l->out, "  %s *%s = (%s *)%s; /* %s */\n", element_type(b), l->text[i], element_type(b),
             memory_at(l->s->offset[i]), dims_text(b->rank, b->dim));
  }
  for (int i = 0; i < l->loop->states; i++) {
    const int result = l->loop->stacked + i;
    const char *name = l->s->body->inputs.at[l->loop->scanned + i].name;
    if (l->loop->cached)
      l->first[i] = declare_state(l, name, next_buffer(l, i), l->s->first[i]);
    l->second[i] = l->loop->cached ? declare_state(l, format("%s_next", name), next_buffer(l, i), l->s->second[i])
                                   : declare_state(l, format("%s_other", l->result[result]),
                                                   result_buffer(l, result), l->s->second[i]);
  }
  if (l->s->scratch >= 0)
    text_add(l->out, "  char *scratch = memory + %" PRId64 ";\n", l->s->scratch);
  else if (takes_scratch(l->s->step))
    text_add(l->out, "  char *scratch = %s;\n", l->texts->dialect->null);
}

static void zero_states(Printing *l) {
  for (int i = 0; i < l->loop->states && !l->loop->cached; i++) {
    const Buffer *b = result_buffer(l, l->loop->stacked + i);
    if (!starts_from_zeros(l->s->body, i))
      continue;
    Name first = l->loop->steps % 2 ? l->second[i] : l->result[l->loop->stacked + i];
    text_add(l->out, "  ");
    text_add(l->out, l->texts->dialect->zero, first, b->elements * element_bytes(b));
    text_add(l->out, "\n");
  }
}

static int state_of_input(const Printing *l, int input) {
  int state = input - l->loop->scanned;
  return state >= 0 && state < l->loop->states ? state : -1;
}

/* Pointers of one step. */
static void declare_rows(Printing *l) {
  for (int i = 0; i < l->k->buffers.n; i++) {
    const Buffer *b = &l->k->buffers.at[i];
    const int input = l->s->input[i], state = b->kind == BUFFER_INPUT ? state_of_input(l, input) : -1;
    const char *type = element_type(b);
    int64_t row =
        b->elements / (l->loop->steps *
                       (l->s->body->values.at[b->value >= 0 ? b->value : 0].shape.batched ? l->k->microbatch : 1));
    if (l->loop->cached && b->kind == BUFFER_FIGURE && b->figure >= l->loop->stacked) {
      l->text[i] = l->second[b->figure - l->loop->stacked];
    } else if (l->loop->cached && state >= 0) {
      l->text[i] = l->first[state];
    } else if (l->loop->cached && b->kind == BUFFER_INPUT && l->s->body->values.at[b->value].shape.batched) {
      l->text[i] = internf("%s + t * %" PRId64, l->input[input], b->elements);
    } else if (b->kind == BUFFER_INPUT && state >= 0) {
      Name first = l->input[input], last = l->result[l->loop->stacked + state];
      l->text[i] = unique_name(&l->taken, l->s->body->inputs.at[input].name);
      text_add(l->out, "    const %s *%s = %s(%" PRId64 " - %s) %% 2 ? %s : %s;\n", type, l->text[i],
               first ? format("%s == 0 ? %s : ", l->step, first) : "", l->loop->steps, l->step, l->second[state],
               last);
    } else if (b->kind == BUFFER_INPUT && input < l->loop->scanned) {
      l->text[i] = internf("%s + t * %" PRId64, l->input[input], row);
    } else if (b->kind == BUFFER_INPUT) {
      l->text[i] = l->input[input];
    } else if (b->kind == BUFFER_FIGURE && b->figure < l->loop->stacked) {
      l->text[i] = internf("%s + t * %" PRId64, l->result[b->figure], row);
    } else if (b->kind == BUFFER_FIGURE) {
      l->text[i] = unique_name(&l->taken, format("%s_next", l->result[b->figure]));
      text_add(l->out, "    %s *%s = (%" PRId64 " - %s) %% 2 ? %s : %s;\n", type, l->text[i], l->loop->steps - 1,
               l->step, l->second[b->figure - l->loop->stacked], l->result[b->figure]);
    }
  }
}

static Name text_of(void *context, int buffer) {
  Printing *l = context;
  ensure(l->text[buffer]);
  return l->text[buffer];
}

static void print_kernels(Printing *l, const LoweredList *list, int indent) {
  for (int i = 0; i < list->n; i++) {
    const Lowered *k = &list->at[i];
    Name function = l->texts->function(l->texts->context, k);
    if (k->call) {
      bool member = l->texts->library && call_is_constructed(k);
      print_kernel_call(l->out, indent, l->texts->dialect, k, member ? internf("m->%s", function) : function,
                        text_of, l, l->texts->library != NULL);
      continue;
    }
    Names arguments = {0};
    for (int j = 0; j < k->arguments.buffers.n; j++)
      push(&arguments, text_of(l, k->arguments.buffers.at[j]));
    if (k->arguments.scratch)
      push(&arguments, intern("scratch"));
    l->texts->dialect->print_loop_call(l->out, indent, l->k, k, function, &arguments);
  }
}

static const char *comment_of(const Printing *l) {
  const char *what = comment_text(l->kernel->kernel->comment);
  if (l->loop->cached)
    return format("%s: a step for each row, from the states of its sequence.", what);
  return format("%s: %" PRId64 " steps%s.", what, l->loop->steps, l->loop->reverse ? ", the last row first" : "");
}

/* Reads the row's states before its step, or writes those after it. */
static void print_states(Printing *l, bool before) {
  const int64_t sequences = (int64_t)node_number(l->kernel->kernel->node, "samples");
  for (int i = 0; i < l->loop->states; i++) {
    const int64_t n = next_buffer(l, i)->elements;
    const Name initial = l->input[l->loop->scanned + i];
    Names list = {0};
    push(&list, internf("%" PRId64, n));
    push(&list, internf("%" PRId64, sequences));
    if (before)
      push(&list, internf("%s + t", cached_operands[0]));
    push(&list, internf("%s + t", cached_operands[1]));
    if (before)
      push(&list, initial ? internf("%s + t * %" PRId64, initial, n) : intern(l->texts->dialect->null));
    push(&list, before ? l->result[l->loop->stacked + i] : l->second[i]);
    push(&list, before ? l->first[i] : l->result[l->loop->stacked + i]);
    const char *function = before ? "pd_take_state(" : "pd_put_state(";
    text_list(l->out, 4 + (int)strlen(function), format("    %s", function), &list, ");\n");
  }
}

/* The loop over the rows of a generating program, each one position of a sequence. */
static void print_rows(Printing *l) {
  const int64_t rows = l->outer->microbatch;
  text_add(l->out, "  for (int64_t t = 0; t < %" PRId64 "; t++) {\n", rows);
  if (l->texts->dialect->unused_row)
    text_add(l->out, l->texts->dialect->unused_row, cached_operands[1],
             (int64_t)node_number(l->kernel->kernel->node, "samples"));
  print_states(l, true);
  declare_rows(l);
  print_kernels(l, lowered_pass(l->s->step, PASS_FORWARD), 4);
  print_states(l, false);
  text_add(l->out, "  }\n}\n\n");
}

void print_scan(Text *out, const ScanTexts *texts, const StageKernels *stage, const Lowered *k,
                const char *function) {
  const Graph *body = k->scan->body;
  Printing l = {.out = out,
                .texts = texts,
                .outer = stage,
                .k = k->scan->step->kernels,
                .kernel = k,
                .s = k->scan,
                .loop = &body->loop};
  l.input = alloc((size_t)(body->inputs.n + 1) * sizeof(Name));
  l.result = alloc((size_t)(body->figures.n + 1) * sizeof(Name));
  l.first = alloc((size_t)(body->loop.states + 1) * sizeof(Name));
  l.second = alloc((size_t)(body->loop.states + 1) * sizeof(Name));
  l.text = alloc((size_t)(l.k->buffers.n + 1) * sizeof(Name));
  for (int i = 0; i < texts->taken->n; i++)
    push(&l.taken, texts->taken->at[i]);
  for (const char *const *own = (const char *const[]){"m", "memory", "scratch", "step", "t", NULL}; *own; own++)
    push(&l.taken, intern(*own));
  for (int i = 0; i < CACHED_OPERANDS && l.loop->cached; i++)
    push(&l.taken, intern(cached_operands[i]));
  Names list = parameters(&l, texts->library && kernel_takes_instance(k));
  text_comment(out, 0, comment_of(&l));
  text_list(out, 13 + (int)strlen(function), format("static void %s(", function), &list, ") {\n");
  declare_memory(&l);
  zero_states(&l);
  print_kernels(&l, lowered_setup(k->scan->step), 2);
  if (l.loop->cached) {
    l.step = "t";
    print_rows(&l);
    return;
  }
  l.step = l.loop->reverse ? "step" : "t";
  text_add(out, "  for (int64_t %s = 0; %s < %" PRId64 "; %s++) {\n", l.step, l.step, l.loop->steps, l.step);
  Text rows = {0};
  l.out = &rows;
  declare_rows(&l);
  print_kernels(&l, lowered_pass(k->scan->step, PASS_FORWARD), 4);
  const char *lines = rows.n ? rows.at : "";
  if (l.loop->reverse && strstr(lines, " t * "))
    text_add(out, "    const int64_t t = %" PRId64 " - step;\n", l.loop->steps - 1);
  text_add(out, "%s", lines);
  if (texts->progress && !stage->graph->loop.steps && l.loop->steps > BETWEEN_PROGRESS)
    text_add(out, "    if (%s %% %d == 0)\n      pd_progress();\n", l.step, BETWEEN_PROGRESS);
  text_add(out, "  }\n}\n\n");
}

/* ---- the call ------------------------------------------------------------------------------------------ */

static Name at_place(const Place *p, BufferText text, void *context) {
  Name base = text(context, p->buffer);
  return p->offset ? internf("%s + %" PRId64, base, p->offset) : base;
}

void print_kernel_call(Text *out, int indent, const Dialect *dialect, const Lowered *k, const char *object,
                       BufferText text, void *context, bool library) {
  if (!k->scan) {
    print_call(out, indent, dialect, k, object, text, context);
    return;
  }
  Names list = {0};
  if (library && kernel_takes_instance(k))
    push(&list, intern("m"));
  for (int i = 0; i < k->kernel->in.n; i++)
    push(&list, at_place(&k->kernel->in.at[i], text, context));
  for (int i = 0; i < k->kernel->out.n; i++)
    push(&list, at_place(&k->kernel->out.at[i], text, context));
  if (k->scratch_bytes > 0)
    push(&list, intern("scratch"));
  text_list(out, indent + (int)strlen(object) + 1, format("%*s%s(", indent, "", object), &list, ");\n");
}
