/* What a stage program tells the runtime about itself: parameters, inputs, channels, settings. */
#include "emit/print.h"
#include "optimizers/optimizer.h"

#include <inttypes.h>
#include <string.h>

int stage_of_node(const Emit *e, int forward_node) {
  for (int i = 0; i < plan_parts(e->plan); i++) {
    const StagePlan *s = &e->plan->stage[i];
    if (forward_node >= e->pieces->at[s->first_piece].first &&
        forward_node < e->pieces->at[s->end_piece - 1].end)
      return plan_stage_of(e->plan, i);
  }
  BUG("forward node %d is on no stage", forward_node);
}

static bool stage_holds(const Emit *e, int stage, int param) {
  for (int c = stage; c < plan_parts(e->plan); c += e->plan->pipeline.n_stages)
    for (int i = e->plan->stage[c].first_piece; i < e->plan->stage[c].end_piece; i++)
      for (int j = 0; j < e->pieces->at[i].params.n; j++)
        if (e->pieces->at[i].params.at[j] == param)
          return true;
  return false;
}

static int owner_of(const Emit *e, int param) {
  for (int i = 0; i < e->plan->pipeline.n_stages; i++)
    if (stage_holds(e, i, param))
      return i;
  BUG("parameter '%s' is on no stage", e->g->params.at[param].name);
}

static int find_buffer(const Emit *e, BufferKind kind, int param, int use) {
  for (int i = 0; i < e->k->buffers.n; i++) {
    const Buffer *b = &e->k->buffers.at[i];
    if (b->kind == kind && b->param == param && (use < 0 || b->use == use))
      return i;
  }
  return -1;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static char *dims_list(int rank, const int64_t *dim) {
  Text out = {0};
  for (int i = 0; i < rank; i++)
    text_add(&out, "%s%" PRId64, i ? ", " : "", dim[i]);
  return out.n ? out.at : format("1");
}

/* Adds "PD_LIST(struct pd_use, {0, offset}", "{1, offset})", and how many there are before. */
static void add_uses(const Emit *e, int param, Names *list) {
  const Param *p = &e->g->params.at[param];
  Names uses = {0};
  for (int use = 0; use < p->uses.n; use++) {
    if (use >= p->gradients.n || p->gradients.at[use] < 0)
      continue;
    int stage = stage_of_node(e, p->uses.at[use]), buffer = find_buffer(e, BUFFER_ACCUMULATOR, param, use);
    push(&uses, buffer >= 0
                    ? internf("{%d, offsetof(%s, %s)}", stage, e->gradients_type, member_path(e, buffer))
                    : internf("{%d, offsetof(struct arena, exchanged[0].%s_use_%d)}", stage,
                              c_identifier(p->name), use + 1));
  }
  push(list, internf("%d", uses.n));
  for (int i = 0; i < uses.n; i++)
    push(list,
         internf("%s%s%s", i == 0 ? "PD_LIST(struct pd_use, " : "", uses.at[i], i + 1 == uses.n ? ")" : ""));
  if (uses.n == 0)
    push(list, intern("NULL"));
}

/* A parameter with one use, on this stage, by far the most. %1: the struct of its f32 values, %2: of gradients,
 * %3: where its masters stand, and whether its weights are bf16. */
static const char parameter_macro[] =
  "#define PARAMETER(name, member, init, value, decays, transposed, order, rank, ...)\n"
  "  {name, rank, {__VA_ARGS__}, sizeof ((%1 *)0)->member / sizeof(float),\n"
  "   offsetof(struct weights, member), transposed, decays, init, value, order, STAGE, 1,\n"
  "   PD_LIST(struct pd_use, {STAGE, offsetof(%2, member)}), 0, NULL, false, 0, %3}\n";

static const char buffer_macro[] =
  "#define BUFFER(name, member, init, value, momentum, order, rank, ...)\n"
  "  {name, rank, {__VA_ARGS__}, sizeof ((%1 *)0)->member / sizeof(float),\n"
  "   offsetof(struct weights, member), false, false, init, value, order, STAGE, 1,\n"
  "   PD_LIST(struct pd_use, {STAGE, offsetof(%2, member)}), 0, NULL, true, momentum, %3}\n";

static const char state_macro[] =
  "/* Bytes from where the masters and each moment begin; whether the weights are rounded to bf16. */\n"
  "#define STATE(member)\n"
  "  offsetof(struct masters, member),\n"
  "  sizeof ((struct weights *)0)->member < sizeof ((struct masters *)0)->member\n";

/* A macro of several lines, all but the last of them continued. */
static void print_macro(Emit *e, const char *text) {
  enum { CONTINUATION = 103 };
  const char *const with[] = {e->state_type, e->gradients_type, has_masters(e) ? "STATE(member)" : "0, false"};
  while (*text) {
    Text line = {0};
    for (; *text != '\n'; text++)
      if (*text == '%')
        text_add(&line, "%s", with[*++text - '1']);
      else
        text_add(&line, "%c", *text);
    text++;
    bool continued = *text && line.at[0] != '/';
    if (continued)
      text_add(&e->out, "%-*s\\\n", CONTINUATION, line.at);
    else
      text_add(&e->out, "%s\n", line.at);
  }
}

static bool has_gradient(const Emit *e, const Param *p, int stage) {
  for (int use = 0; use < p->uses.n && use < p->gradients.n; use++)
    if (p->gradients.at[use] >= 0 && stage_of_node(e, p->uses.at[use]) == stage)
      return true;
  return false;
}

/* The stages that hold it and pass it no gradient, and how many there are before. */
static void add_readers(const Emit *e, int param, Names *list) {
  Text out = {0};
  int n = 0;
  for (int i = 0; i < e->plan->pipeline.n_stages; i++)
    if (stage_holds(e, i, param) && !has_gradient(e, &e->g->params.at[param], i))
      text_add(&out, "%s%d", n++ ? ", " : "", i);
  push(list, internf("%d", n));
  push(list, n ? internf("PD_LIST(int, %s)", out.at) : intern("NULL"));
}

static bool used_once_here(const Emit *e, int param, int weight) {
  const Param *p = &e->g->params.at[param];
  int buffer = find_buffer(e, BUFFER_ACCUMULATOR, param, 0);
  return p->uses.n == 1 && p->gradients.at[0] >= 0 && buffer >= 0 && owner_of(e, param) == e->k->stage &&
         !strcmp(member_path(e, buffer), member_path(e, weight));
}

static double momentum_of(const Emit *e, const Param *buffer) {
  return node_number(&e->g->nodes.at[buffer->uses.at[0]], "momentum");
}

static void parameter_line(Emit *e, int param) {
  static const char *const inits[] = {"PD_ZEROS", "PD_ONES", "PD_CONSTANT", "PD_UNIFORM", "PD_NORMAL"};
  const Param *p = &e->g->params.at[param];
  int weight = find_buffer(e, BUFFER_WEIGHT, param, -1);
  ensure(weight >= 0);
  bool once = used_once_here(e, param, weight);
  const char *decays = !p->buffer && (e->g->train.decay_all || p->shape.rank >= 2) ? "true" : "false";
  const char *momentum = p->buffer ? float_literal(momentum_of(e, p)) : "0";
  const char *transposed = p->stored_in_out ? "true" : "false";
  Names list = {0};
  push(&list, intern(string_literal(p->name)));
  if (once)
    push(&list, member_path(e, weight));
  if (!once) {
    push(&list, internf("%d", p->shape.rank));
    push(&list, internf("{%s}", dims_list(p->shape.rank, p->shape.dim)));
    push(&list, internf("%" PRId64, shape_elements(&p->shape)));
    push(&list, internf("offsetof(struct weights, %s)", member_path(e, weight)));
    push(&list, intern(transposed));
    push(&list, intern(decays));
  }
  push(&list, intern(inits[p->init]));
  push(&list, intern(double_literal(p->init_value)));
  if (once && p->buffer)
    push(&list, intern(momentum));
  if (once && !p->buffer) {
    push(&list, intern(decays));
    push(&list, intern(transposed));
  }
  push(&list, internf("%d", param));
  if (once) {
    push(&list, internf("%d", p->shape.rank));
    push(&list, intern(dims_list(p->shape.rank, p->shape.dim)));
    text_list(&e->out, p->buffer ? 9 : 12, p->buffer ? "  BUFFER(" : "  PARAMETER(", &list, "),\n");
    return;
  }
  push(&list, internf("%d", owner_of(e, param)));
  add_uses(e, param, &list);
  add_readers(e, param, &list);
  push(&list, intern(p->buffer ? "true" : "false"));
  push(&list, intern(momentum));
  push(&list, has_masters(e) ? internf("offsetof(struct masters, %s)", member_path(e, weight)) : intern("0"));
  push(&list, intern(e->k->buffers.at[weight].bf16 ? "true" : "false"));
  text_list(&e->out, 3, "  {", &list, "},\n");
}

static void parameter_table(Emit *e) {
  if (e->k->params.n == 0)
    return;
  text_add(&e->out, "enum { STAGE = %d };\n", e->k->stage);
  if (has_masters(e))
    print_macro(e, state_macro);
  text_add(&e->out, "/* Name, member of struct weights, initial values, whether it decays, whether files hold it "
                    "transposed, place\n * in the model's order, shape. */\n");
  print_macro(e, parameter_macro);
  for (int i = 0; i < e->k->params.n; i++)
    if (e->g->params.at[e->k->params.at[i]].buffer) {
      text_add(&e->out, "/* A running average: momentum instead of what an optimizer needs to know. */\n");
      print_macro(e, buffer_macro);
      break;
    }
  text_add(&e->out, "static const struct pd_parameter parameters[] = {\n");
  for (int i = 0; i < e->k->params.n; i++)
    parameter_line(e, e->k->params.at[i]);
  text_add(&e->out, "};\n\n");
}

/* Where some moments have shapes of their own: all of them, by parameter. */
static void moment_table(Emit *e) {
  const UpdateRule *rule = update_rule(&e->g->train);
  if (!e->allocation->own_moments.n)
    return;
  text_add(&e->out, "/* Place, rank, shape. */\nstatic const struct pd_moment own_moments[] = {\n");
  for (int i = 0, own = 0; i < e->k->params.n; i++) {
    const Param *p = &e->g->params.at[e->k->params.at[i]];
    const char *member = member_path(e, find_buffer(e, BUFFER_WEIGHT, e->k->params.at[i], -1));
    for (int m = 0, like = 0; m < rule->n_moments; m++) {
      Shape shape = moment_shape(rule, m, &p->shape);
      Names row = {0};
      if (p->buffer)
        push(&row, intern("0"));
      else if (rule->moment_shape[m])
        push(&row, internf("offsetof(struct arena, own_moments.%s)",
                           own_moment_member(e, &e->allocation->own_moments.at[own++])));
      else
        push(&row, internf("offsetof(struct arena, moments[%d].%s)", like++, member));
      push(&row, internf("%d", shape.rank));
      push(&row, internf("{%s}", dims_list(shape.rank, shape.dim)));
      text_list(&e->out, 3, "  {", &row, "},\n");
    }
  }
  text_add(&e->out, "};\n\n");
}

/* What says how the loader computes an input or normalises it. */
static void origin_fields(Emit *e, const Input *in) {
  static const char *const origins[] = {"PD_FILE",    "PD_IMAGE",    "PD_LENGTHS", "PD_PRESENT", "PD_COUNTED",
                                        "PD_SHIFTED", "PD_SEGMENTS", "PD_MASKED",  "PD_CHOSEN"};
  if (in->origin == ORIGIN_FILE)
    return;
  text_add(&e->out, ",\n   .origin = %s", origins[in->origin]);
  if (in->from >= 0)
    text_add(&e->out, ", .from = %d", in->from);
  Names list = {0};
  for (int i = 0; i < in->numbers.n; i++)
    push(&list, intern(double_literal(in->numbers.at[i])));
  if (list.n)
    text_list(&e->out, 4, format(", .n_numbers = %d,\n   .numbers = PD_LIST(double, ", list.n), &list, ")");
}

static int input_buffer(const Emit *e, int value) {
  for (int i = 0; i < e->k->buffers.n; i++)
    if (e->k->buffers.at[i].kind == BUFFER_INPUT && e->k->buffers.at[i].value == value)
      return i;
  return -1;
}

static void input_table(Emit *e) {
  text_add(&e->out, "static const struct pd_input inputs[] = {\n");
  for (int i = 0; i < e->g->inputs.n; i++) {
    const Input *in = &e->g->inputs.at[i];
    const Value *v = &e->g->values.at[in->value];
    Names list = {0};
    push(&list, internf(".name = %s", string_literal(in->name)));
    if (in->target)
      push(&list, intern(".target = true"));
    if (v->type == TYPE_TOKEN) {
      push(&list, intern(".token = true"));
      push(&list, internf(".classes = %" PRId64, v->classes));
    }
    push(&list, internf(".rank = %d", v->shape.rank));
    push(&list, internf(".dim = {%s}", dims_list(v->shape.rank, v->shape.dim)));
    push(&list, internf(".elements = %" PRId64, shape_elements(&v->shape)));
    text_list(&e->out, 3, "  {", &list, "");
    origin_fields(e, in);
    int buffer = input_buffer(e, in->value);
    text_add(&e->out, buffer >= 0 && e->k->buffers.at[buffer].bf16 ? ", .bf16 = true},\n" : "},\n");
  }
  text_add(&e->out, "};\n\n");
}

/* ---- tensors that a failure can name --------------------------------------------------------- */

static void slot_line(Emit *e, int buffer) {
  const Buffer *b = &e->k->buffers.at[buffer];
  Names list = {0};
  push(&list, intern(string_literal(b->comment)));
  push(&list, chunk_member(e, b->kind, b->chunk));
  push(&list, chunk_slots(e, b->kind, b->chunk));
  push(&list, member_path(e, buffer));
  text_list(&e->out, 7, "  SLOT(", &list, "),\n");
}

static void workspace_line(Emit *e, int buffer) {
  const Buffer *b = &e->k->buffers.at[buffer];
  Names list = {0};
  push(&list, intern(string_literal(b->comment)));
  push(&list, internf("%" PRId64, workspace_offset(e, buffer)));
  push(&list, internf("%" PRId64, b->elements));
  push(&list, intern(b->bf16 ? "true" : "false"));
  text_list(&e->out, 12, "  WORKSPACE(", &list, "),\n");
}

static void tensor_line(Emit *e, int buffer) {
  const Buffer *b = &e->k->buffers.at[buffer];
  if (in_workspace(e, b))
    workspace_line(e, buffer);
  else if (e->p->chunks > 1)
    slot_line(e, buffer);
  else
    text_add(&e->out, "  %s(%s, %s),\n",
             b->kind == BUFFER_SAVED  ? "SAVED"
             : b->kind == BUFFER_KEPT ? "KEPT"
                                      : "RECEIVED",
             string_literal(b->comment), member_path(e, buffer));
}

static const char tensor_macros[] =
  "#define SLOT(name, part, slots, member) \\\n"
  "  {name, offsetof(struct arena, part[0].member), sizeof(struct part), slots, \\\n"
  "   sizeof ((struct part *)0)->member / sizeof(float), false}\n";
static const char typed_tensor_macros[] =
  "#define SLOT(name, part, slots, member) \\\n"
  "  {name, offsetof(struct arena, part[0].member), sizeof(struct part), slots, \\\n"
  "   sizeof ((struct part *)0)->member / sizeof *((struct part *)0)->member, \\\n"
  "   sizeof *((struct part *)0)->member == sizeof(pd_bf16)}\n";
static const char tensor_kinds[] =
  "#define SAVED(name, member) SLOT(name, saved, SAVED_SLOTS, member)\n"
  "#define RECEIVED(name, member) SLOT(name, received, RECEIVED_SLOTS, member)\n";

static const char workspace_kind[] =
  "#define WORKSPACE(name, offset, elements, bf16) \\\n"
  "  {name, offsetof(struct arena, workspace) + offset, 0, 1, elements, bf16}\n";
static const char kept_kind[] = "#define KEPT(name, member) SLOT(name, kept, KEPT_SLOTS, member)\n";

static bool some_saved_packed(const Emit *e) {
  bool packed = false;
  for (int chunk = 0; chunk < e->p->chunks; chunk++)
    packed |= allocation_saved_packed(e->p, chunk);
  return packed;
}

static int tensor_table(Emit *e) {
  int n = 0;
  for (int at = -1; at < e->k->forward.n; at++)
    for (int i = 0; i < e->k->buffers.n; i++) {
      const Buffer *b = &e->k->buffers.at[i];
      bool saved = b->kind == BUFFER_SAVED || b->kind == BUFFER_KEPT;
      bool mine = b->type == TYPE_F32 && (at < 0 ? b->kind == BUFFER_RECEIVED : saved && b->first == at);
      if (!mine)
        continue;
      if (n++ == 0)
        text_add(&e->out, "/* Where to look for the first value that is not finite. */\n%s"
                          "%s%s%sstatic const struct pd_tensor tensors[] = {\n",
                 e->k->target.precision == PRECISION_BF16 ? typed_tensor_macros : tensor_macros,
                 e->p->chunks > 1 ? "" : tensor_kinds, e->p->split_backward ? kept_kind : "",
                 some_saved_packed(e) ? workspace_kind : "");
      tensor_line(e, i);
    }
  if (n)
    text_add(&e->out, "};\n\n");
  return n;
}

/* ---- channels -------------------------------------------------------------------------------- */

typedef struct Channel { const char *field; const Ints *buffers; BufferKind kind; } Channel;
enum { N_CHANNELS = 4 };

static void list_channels(const Emit *e, Channel *channel) {
  channel[0] = (Channel){"activations_in", &e->k->received, BUFFER_RECEIVED};
  channel[1] = (Channel){"activations_out", &e->k->sent, BUFFER_SENT};
  channel[2] = (Channel){"gradients_in", &e->k->gradients_received, BUFFER_GRADIENT_RECEIVED};
  channel[3] = (Channel){"gradients_out", &e->k->gradients_sent, BUFFER_GRADIENT_SENT};
}

static void channel_table(Emit *e, const Channel *channel, int chunk) {
  Ints buffers = chunk_buffers(e->k, channel->buffers, chunk);
  Name name = chunk_member(e, channel->kind, chunk);
  if (buffers.n == 0)
    return;
  text_add(&e->out, "static const struct pd_channel_value %s_values[] = {\n", name);
  for (int i = 0; i < buffers.n; i++) {
    const Buffer *b = &e->k->buffers.at[buffers.at[i]];
    text_add(&e->out, "  {offsetof(struct arena, %s[0].%s), sizeof(struct %s),\n   %s * sizeof(%s)},\n", name,
             e->member[buffers.at[i]], name, array_text(e, b), b->bf16 ? "pd_bf16" : "float");
  }
  text_add(&e->out, "};\n");
}

/* By chunk; one that nothing crosses is all zeros. */
static void channel_field(Emit *e, const Channel *channel) {
  Names list = {0};
  if (channel->buffers->n == 0)
    return;
  for (int c = 0; c < e->p->chunks; c++) {
    int n = chunk_buffers(e->k, channel->buffers, c).n;
    push(&list, n ? internf("{%d, %s_values, %s}", n, chunk_member(e, channel->kind, c),
                            chunk_slots(e, channel->kind, c))
                  : intern("{0, NULL, 0}"));
  }
  text_list(&e->out, 4, format("  .%s = {", channel->field), &list, "},\n");
}

/* ---- the stage ------------------------------------------------------------------------------- */

static double flops_per_sample(const Graph *g) {
  double flops = 0;
  for (int i = 0; i < g->nodes.n; i++)
    if (g->nodes.at[i].op->cost)
      flops += g->nodes.at[i].op->cost(g, i).matmul_flops;
  return flops;
}

static void train_fields(Emit *e) {
  static const char *const rates[] = {"PD_LR_CONSTANT", "PD_LR_LINEAR", "PD_LR_COSINE"};
  const Train *t = &e->g->train;
  Names arguments = {0};
  for (int i = 0; i < optimizer_n_numbers(t->optimizer); i++)
    push(&arguments, internf(".%s = %s", optimizer_field(t->optimizer, i), double_literal(t->number[i])));
  text_add(&e->out, "  .optimizer = &pd_%s, .lr = %s, .clip_norm = %s,\n", update_rule(t)->name,
           double_literal(t->lr), double_literal(t->clip_norm));
  text_list(&e->out, 4, format("  .arguments = PD_LIST(struct pd_%s_arguments, {", t->optimizer->name), &arguments,
            "}),\n");
  text_add(&e->out, "  .rate = %s, .lr_warmup = %" PRId64 ", .lr_total = %" PRId64 ", .lr_floor = %s,\n",
           rates[t->lr_kind], t->lr_warmup, t->lr_total, double_literal(t->lr_floor));
}

static void memory_fields(Emit *e) {
  const Allocation *l = e->allocation;
  text_add(&e->out, "  .planned_peak_bytes = planned_peak_bytes, .arena_bytes = sizeof(struct arena),\n");
  if (l->section[SECTION_WEIGHTS].copies)
    text_add(&e->out, "  .weights = offsetof(struct arena, weights), .weights_stride = sizeof(struct "
                      "weights), .versions = VERSIONS,\n");
  else
    text_add(&e->out, "  .versions = VERSIONS,\n");
  if (l->section[SECTION_GRADIENTS].copies)
    text_add(&e->out,
             "  .accumulators = offsetof(struct arena, gradients), .accumulators_stride = sizeof(%s),\n",
             e->gradients_type);
  text_add(&e->out, "  .accumulator_sets = ACCUMULATORS,\n");
  if (l->section[SECTION_EXCHANGED].copies)
    text_add(&e->out,
             "  .exchanged = offsetof(struct arena, exchanged), .exchanged_stride = sizeof(struct exchanged),\n");
  text_add(&e->out, "  .exchange_sets = %d,\n", e->p->exchanges);
  if (l->reduced_bytes > 0)
    text_add(&e->out, "  .reduced = offsetof(struct arena, exchanged[0].reduced),\n");
  if (l->own_moments.n)
    text_add(&e->out,
             "  .moments = offsetof(struct arena, %smoments), .n_moments = %d, .own_moments = own_moments,\n",
             l->n_moments ? "" : "own_", update_rule(&e->g->train)->n_moments);
  else if (l->section[SECTION_MOMENTS].copies)
    text_add(&e->out,
             "  .moments = offsetof(struct arena, moments), .moments_stride = sizeof(%s), .n_moments = %d,\n",
             e->state_type, l->n_moments);
  if (has_masters(e))
    text_add(&e->out, "  .has_masters = true, .masters = offsetof(struct arena, masters),\n");
}

static void rank_tables(Emit *e) {
  Names replicas = {0}, peaks = {0};
  for (int i = 0; i < e->plan->pipeline.n_stages; i++) {
    push(&replicas, internf("%d", e->plan->pipeline.replicas[i]));
    for (int r = 0; r < e->plan->pipeline.replicas[i]; r++)
      push(&peaks, internf("%" PRId64, e->plan->stage[i].peak_bytes));
  }
  text_list(&e->out, 2, "static const int replicas[] = {", &replicas, "}; /* by stage */\n");
  text_list(&e->out, 2, "static const int64_t planned_peak_bytes[] = {", &peaks, "}; /* by rank */\n\n");
}

static void figure_table(Emit *e) {
  text_add(&e->out, "static const struct pd_figure figures[] = { /* losses, then metrics */\n");
  for (int i = 0; i < e->g->figures.n; i++) {
    const Figure *f = &e->g->figures.at[i];
    int64_t elements = shape_elements(&e->g->values.at[f->value].shape);
    if (f->metric)
      text_add(&e->out, "  {.elements = %" PRId64 ", .metric = %s%s%s},\n", elements, string_literal(f->metric),
               f->of_mean ? ", .of_mean = " : "", f->of_mean ? f->of_mean : "");
    else
      text_add(&e->out, "  {.elements = %" PRId64 "},\n", elements);
  }
  text_add(&e->out, "};\n\n");
}

static void seconds_fields(Emit *e) {
  Text forward = {0}, backward = {0}, weights = {0};
  double update = 0;
  for (int c = 0; c < e->p->chunks; c++) {
    const StagePlan *s = &e->plan->stage[plan_part_of(e->plan, e->p->stage, c)];
    const char *comma = c ? ", " : "";
    text_add(&forward, "%s%.6g", comma, s->forward_seconds);
    text_add(&backward, "%s%.6g", comma, s->backward_seconds);
    text_add(&weights, "%s%.6g", comma, e->p->split_backward ? s->weights_seconds : 0);
    update += s->update_seconds;
  }
  text_add(&e->out, "  .forward_seconds = {%s}, .backward_seconds = {%s},\n", forward.at, backward.at);
  text_add(&e->out, "  .weights_seconds = {%s}, .update_seconds = %.6g,\n", weights.at, update);
}

void print_tables(Emit *e) {
  const StageKernels *k = e->k;
  Channel channel[N_CHANNELS];
  text_add(&e->out, "/* ---- what the runtime is told ---- */\n\n");
  parameter_table(e);
  moment_table(e);
  input_table(e);
  int n_tensors = tensor_table(e);
  list_channels(e, channel);
  for (int i = 0; i < N_CHANNELS; i++)
    for (int c = 0; c < e->p->chunks; c++)
      channel_table(e, &channel[i], c);
  rank_tables(e);
  figure_table(e);
  int64_t elements = 0;
  for (int i = 0; i < e->g->params.n; i++)
    elements += e->g->params.at[i].buffer ? 0 : shape_elements(&e->g->params.at[i].shape);
  text_add(&e->out,
           "static const struct pd_stage stage = {\n  .model = %s, .schedule = %s,\n  .plan_hash = %s,\n",
           string_literal(e->g->name), string_literal(e->plan->pipeline.schedule), string_literal(e->plan_hash));
  text_add(&e->out,
           "  .stage = %d, .n_stages = %d, .replicas = replicas,\n  .batch = %" PRId64
           ", .microbatch = MICROBATCH, .microbatches = %" PRId64 ",\n",
           k->stage, k->n_stages, e->plan->pipeline.batch, e->plan->pipeline.microbatches);
  text_add(&e->out,
           "  .model_parameters = %" PRId64
           ", .n_model_parameters = %d,\n  .flops_per_sample = %s, .tokens_per_sample = %" PRId64 ",\n",
           elements, e->g->params.n, double_literal(flops_per_sample(e->g)), graph_tokens_per_sample(e->g));
  text_add(&e->out, "  .threads = %d,\n", e->plan->target.threads);
  memory_fields(e);
  text_add(&e->out, "  .per_batch = %s, .lag = LAG,\n", e->p->per_batch ? "true" : "false");
  if (k->params.n)
    text_add(&e->out, "  .parameters = parameters, .n_parameters = %d,\n", k->params.n);
  text_add(&e->out, "  .inputs = inputs, .n_inputs = %d,\n", e->g->inputs.n);
  if (n_tensors)
    text_add(&e->out, "  .tensors = tensors, .n_tensors = %d,\n", n_tensors);
  text_add(&e->out, "  .chunks = %d,\n", e->p->chunks);
  for (int i = 0; i < N_CHANNELS; i++)
    channel_field(e, &channel[i]);
  text_add(&e->out, "  .figures = figures, .n_figures = %d, .n_losses = %d,\n", e->g->figures.n, e->g->n_losses);
  train_fields(e);
  seconds_fields(e);
  text_add(&e->out, "};\n\n");
}
