/* Prints the stage's description for the runtime: parameters, inputs, channels, settings. */
#include "emit/print.h"
#include "fuse/facts.h"
#include "optimizers/lr_schedule.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

int stage_of_node(const Emit *e, int forward_node) {
  for (int i = 0; i < plan_parts(e->plan); i++) {
    const StagePlan *s = &e->plan->stage[i];
    if (forward_node >= e->pieces->at[s->first_piece].first && forward_node < e->pieces->at[s->end_piece - 1].end)
      return plan_stage_of(e->plan, i);
  }
  BUG("forward node %d is on no stage", forward_node);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* The loader's computation or normalisation of an input. */
static void origin_fields(Emit *e, const Input *in, int from) {
  static const struct {
    const char *name, *numbers;
  } origins[] = {
      [ORIGIN_FILE] = {.name = "PD_FILE"},
      [ORIGIN_IMAGE] = {.name = "PD_IMAGE", .numbers = "each channel's mean, then each one's deviation"},
      [ORIGIN_LENGTHS] = {.name = "PD_LENGTHS", .numbers = "pad"},
      [ORIGIN_PRESENT] = {.name = "PD_PRESENT", .numbers = "pad"},
      [ORIGIN_COUNTED] = {.name = "PD_COUNTED", .numbers = "token not counted"},
      [ORIGIN_SHIFTED] = {.name = "PD_SHIFTED", .numbers = "first token"},
      [ORIGIN_SEGMENTS] = {.name = "PD_SEGMENTS", .numbers = "separator, pad"},
      [ORIGIN_MASKED] = {.name = "PD_MASKED", .numbers = "mask, share of chosen positions, tokens never chosen"},
      [ORIGIN_CHOSEN] = {.name = "PD_CHOSEN"},
      [ORIGIN_NORMAL_NOISE] = {.name = "PD_NORMAL_NOISE"},
      [ORIGIN_UNIFORM_NOISE] = {.name = "PD_UNIFORM_NOISE"},
      [ORIGIN_RANDOM_INT] = {.name = "PD_RANDOM_INT"},
  };
  Names numbers = {0};
  for (int i = 0; i < in->numbers.n; i++)
    push(&numbers, intern(double_literal(in->numbers.at[i])));
  text_add(&e->out, "   .origin = %s", origins[in->origin].name);
  if (in->from >= 0)
    text_add(&e->out, ", .from = %d /* %s */", from, comment_text(e->g->inputs.at[in->from].name));
  if (numbers.n)
    text_add(&e->out, ", .n_numbers = %d,\n   /* %s */\n", numbers.n, origins[in->origin].numbers);
  else
    text_add(&e->out, "},\n");
  list_field(e, "numbers", "double", &numbers, "},\n");
}

int input_buffer(const Emit *e, int value) {
  for (int i = 0; i < e->k->buffers.n; i++)
    if (e->k->buffers.at[i].kind == BUFFER_INPUT && e->k->buffers.at[i].value == value)
      return i;
  return -1;
}

bool *inputs_of_outputs(const Graph *g) {
  bool *value = alloc((size_t)g->values.n + 1), *input = alloc((size_t)g->inputs.n + 1);
  for (int i = graph_n_logged(g); i < g->figures.n; i++)
    value[g->figures.at[i].value] = true;
  for (int i = g->n_forward - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    bool read = false;
    for (int k = 0; k < n->n_out; k++)
      read |= value[n->out[k]];
    for (int k = 0; k < n->n_in && read; k++)
      value[n->in[k]] = true;
  }
  for (int i = g->inputs.n - 1; i >= 0; i--) { /* sources precede the inputs computed from them */
    input[i] |= value[g->inputs.at[i].value];
    if (input[i] && g->inputs.at[i].from >= 0)
      input[g->inputs.at[i].from] = true;
  }
  return input;
}

void input_line(Emit *e, int input, int from, bool predicts) {
  const Input *in = &e->g->inputs.at[input];
  const Value *v = &e->g->values.at[in->value];
  int buffer = input_buffer(e, in->value);
  Names fields = {0};
  push(&fields, internf(".name = %s", string_literal(in->name)));
  if (in->target)
    push(&fields, intern(".target = true"));
  if (predicts)
    push(&fields, intern(".predicts = true"));
  if (v->type == TYPE_TOKEN)
    push(&fields, internf(".token = true, .classes = %" PRId64, v->classes));
  push(&fields, shape_fields(&v->shape));
  push(&fields, internf(".elements = %" PRId64, shape_elements(&v->shape)));
  if (buffer >= 0 && e->k->buffers.at[buffer].bf16)
    push(&fields, intern(".bf16 = true"));
  text_list(&e->out, 3, "  {", &fields, in->origin == ORIGIN_FILE ? "},\n" : ",\n");
  if (in->origin != ORIGIN_FILE)
    origin_fields(e, in, from);
}

static void input_table(Emit *e) {
  const bool *needed = inputs_of_outputs(e->g);
  text_add(&e->out, "static const struct pd_input inputs[] = {\n");
  for (int i = 0; i < e->g->inputs.n; i++)
    input_line(e, i, e->g->inputs.at[i].from, needed[i]);
  text_add(&e->out, "};\n\n");
}

/* ---- channels -------------------------------------------------------------------------------- */

typedef struct Channel {
  const char *field;
  const Ints *buffers;
  BufferKind kind;
} Channel;
enum { N_CHANNELS = 4 };

static void list_channels(const Emit *e, Channel *channel) {
  channel[0] = (Channel){"activations_in", &e->k->received, BUFFER_RECEIVED};
  channel[1] = (Channel){"activations_out", &e->k->sent, BUFFER_SENT};
  channel[2] = (Channel){"gradients_in", &e->k->gradients_received, BUFFER_GRADIENT_RECEIVED};
  channel[3] = (Channel){"gradients_out", &e->k->gradients_sent, BUFFER_GRADIENT_SENT};
}

/* Buffers of a chunk that travel to or from another rank. */
static Ints channel_buffers(const Emit *e, const Channel *channel, int chunk) {
  const bool before = channel->kind == BUFFER_RECEIVED || channel->kind == BUFFER_GRADIENT_SENT;
  if (e->p->offload.on && !(before ? program_receives : program_sends)(e->p, chunk))
    return (Ints){0};
  return chunk_buffers(e->k, channel->buffers, chunk);
}

static void channel_table(Emit *e, const Channel *channel, int chunk) {
  Ints buffers = channel_buffers(e, channel, chunk);
  Name part = chunk_member(e, channel->kind, chunk);
  if (buffers.n == 0)
    return;
  text_add(&e->out, "static const struct pd_channel_value %s_values[] = {\n", part);
  for (int i = 0; i < buffers.n; i++) {
    Name member = e->member[buffers.at[i]];
    Names fields = {0};
    push(&fields, internf(".offset = offsetof(struct arena, %s[0].%s)", part, member));
    push(&fields, internf(".bytes = sizeof ((struct %s *)0)->%s", part, member));
    text_list(&e->out, 3, "  {", &fields, "},\n");
  }
  text_add(&e->out, "};\n\n");
}

/* Whether a later pass reads the values that a chunk sends; a recomputation recreates them. */
static bool read_later(const Emit *e, BufferKind sent, int chunk) {
  if (sent == BUFFER_SENT && !program_recomputes_chunk(e->p, chunk) &&
      pass_uses(e, (Pass){PASS_BACKWARD, chunk}, sent))
    return true;
  return (sent == BUFFER_SENT || sent == BUFFER_GRADIENT_SENT) && pass_uses(e, (Pass){PASS_WEIGHTS, chunk}, sent);
}

static void channel_field(Emit *e, const Channel *channel) {
  int all = 0;
  for (int c = 0; c < e->p->chunks; c++)
    all += channel_buffers(e, channel, c).n;
  if (all == 0)
    return;
  text_add(&e->out, "  .%s = {%s\n", channel->field, e->p->chunks > 1 ? " /* by chunk */" : "");
  for (int c = 0; c < e->p->chunks; c++) {
    int n = channel_buffers(e, channel, c).n;
    Name part = chunk_member(e, channel->kind, c);
    Names fields = {0};
    if (n)
      push(&fields, internf(".values = %s_values", part));
    push(&fields, internf(".n_values = %d", n));
    if (n) {
      push(&fields, internf(".slots = %s", chunk_slots(e, channel->kind, c)));
      push(&fields, internf(".stride = sizeof(struct %s)", part));
      if (read_later(e, channel->kind, c))
        push(&fields, intern(".kept = true"));
    }
    text_list(&e->out, 5, "    {", &fields, "},\n");
  }
  text_add(&e->out, "  },\n");
}

/* ---- the stage ------------------------------------------------------------------------------- */

/* The share of a product's operations without padding, if a padded parameter is a factor or its gradient the
 * result. */
static double without_padding(const Graph *g, int node) {
  const Node *n = &g->nodes.at[node];
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    bool touches = false;
    for (int k = 0; k < n->n_in && p->padding; k++)
      touches |= behind_views(g, n->in[k]) == p->value;
    for (int k = 0; k < p->gradients.n && p->padding; k++)
      touches |= p->gradients.at[k] >= 0 && behind_views(g, p->gradients.at[k]) == n->out[0];
    if (touches)
      return (double)p->shape.dim[0] / (double)(p->shape.dim[0] + p->padding);
  }
  return 1;
}

static double flops_per_sample(const Graph *g) {
  double flops = 0;
  if (g->shards)
    return g->whole_flops;
  for (int i = 0; i < g->nodes.n; i++) {
    double products = g->nodes.at[i].op->cost ? g->nodes.at[i].op->cost(g, i).matmul_flops : 0;
    flops += products > 0 ? products * without_padding(g, i) : 0;
  }
  return flops;
}

static void lr_fields(Emit *e) {
  const Train *t = &e->g->train;
  const LrSchedule *s = t->lr_schedule;
  Names arguments = {0};
  for (int i = 0; i < lr_schedule_n_arguments(s); i++)
    push(&arguments, internf(".%s = %s", s->argument[i].name, double_literal(t->lr_number[i])));
  text_add(&e->out, "  .lr_schedule = pd_lr_%s,\n", s->name);
  text_list(&e->out, 4, format("  .lr_arguments = PD_LIST(struct pd_lr_%s_arguments, {", s->name), &arguments,
            "}),\n");
  if (s->total >= 0)
    text_add(&e->out, "  .lr_total = %.0f,\n", t->lr_number[s->total]);
}

/* "PD_LIST(struct pd_adamw_arguments, {.beta1 = 0.9, ...})" */
static void arguments_field(Emit *e, int indent, const double *number, const char *tail) {
  const Optimizer *o = e->g->train.optimizer;
  Names arguments = {0};
  for (int i = 0; i < optimizer_n_numbers(o); i++)
    push(&arguments, internf(".%s = %s", optimizer_field(o, i), double_literal(number[i])));
  text_list(&e->out, indent + 2, format("%*s.arguments = PD_LIST(struct pd_%s_arguments, {", indent, "", o->name),
            &arguments, format("})%s", tail));
}

static void group_table(Emit *e) {
  const Train *t = &e->g->train;
  if (!t->groups.n || e->p->forward_only)
    return;
  text_add(&e->out, "static const struct pd_group groups[] = { /* a parameter's .group, from 1 */\n");
  for (int i = 0; i < t->groups.n; i++) {
    const ParameterGroup *group = &t->groups.at[i];
    text_add(&e->out, "  {.pattern = %s, .lr = %s,\n", string_literal(group->pattern), double_literal(group->lr));
    arguments_field(e, 3, group->number, "},\n");
  }
  text_add(&e->out, "};\n\n");
}

/* Updates ahead for which the momentum is extrapolated. */
static double updates_ahead(DelayCorrection c, double delay) {
  if (!c.automatic)
    return c.ahead * delay;
  return c.ahead > 0 ? fmax(c.ahead, delay) : 0;
}

/* Without delay there is nothing to correct. */
static void correction_field(Emit *e) {
  const DelayCorrection c = e->g->train.correction;
  const double delay = (double)e->p->delay;
  if (delay > 0 && (c.ahead > 0 || c.damping > 0))
    text_add(&e->out, "  .ahead = %s, .damping = %s, /* delay_correction */\n",
             double_literal(updates_ahead(c, delay)), double_literal(c.damping));
}

static void train_fields(Emit *e) {
  const Train *t = &e->g->train;
  text_add(&e->out, "  .optimizer = &pd_%s, .lr = %s, .clip_norm = %s,\n", update_rule(t)->name,
           double_literal(t->lr), double_literal(t->clip_norm));
  arguments_field(e, 2, t->number, ",\n");
  correction_field(e);
  if (t->groups.n)
    text_add(&e->out, "  .groups = groups, .n_groups = %d,\n", t->groups.n);
  lr_fields(e);
}

static bool has_buckets(const Emit *e) { return e->allocation->buckets.n > 1; }

/* Prints the range of gradients from member *i on that are in one bucket; bytes include alignment. */
static void bucket_range(Emit *e, const Ints *members, int *i, int bucket) {
  const Allocation *a = e->allocation;
  const int first = members->at[*i];
  int64_t bytes = 0;
  for (; *i < members->n && a->bucket[members->at[*i]] == bucket; ++*i)
    bytes += buffer_bytes(&e->k->buffers.at[members->at[*i]]);
  text_add(&e->out, "  {.bucket = %d, .offset = offsetof(%s, %s), .bytes = %" PRId64 "},\n", bucket,
           e->gradients_type, member_path(e, first), bytes);
}

static void bucket_table(Emit *e) {
  const Ints members = allocation_members(e->k, BUFFER_ACCUMULATOR, -1);
  if (!has_buckets(e))
    return;
  text_add(&e->out, "/* Gradients that replicas exchange together, in the order in which the backward pass of a "
                    "batch's last\n * microbatch completes them. */\n"
                    "static const struct pd_bucket_range bucket_ranges[] = {\n");
  for (int bucket = 0; bucket < e->allocation->buckets.n; bucket++)
    for (int i = 0; i < members.n;)
      if (e->allocation->bucket[members.at[i]] == bucket)
        bucket_range(e, &members, &i, bucket);
      else
        i++;
  text_add(&e->out, "};\n\n");
}

/* The start of each replica's shard of the optimizer's state, and the end of the last, cell after cell. */
static void shard_field(Emit *e) {
  const Shards *s = e->allocation->shard;
  Names list = {0};
  for (int i = 0; i < s->cells * (s->replicas + 1); i++)
    push(&list, internf("%" PRId64, s->at[i]));
  if (s->cells > 1)
    text_add(&e->out, "  .shard_cells = %d,\n", s->cells);
  list_field(e, "shards", "size_t", &list, ",\n");
}

static void memory_fields(Emit *e) {
  const Allocation *l = e->allocation;
  text_add(&e->out, "  .planned_peak_bytes = planned_peak_bytes, .arena_bytes = sizeof(struct arena),\n");
  if (l->scratch_bytes > 0)
    text_add(&e->out, "  .scratch_bytes = sizeof arena->scratch,\n");
  if (e->p->forward_only) {
    if (l->section[SECTION_WEIGHTS].copies)
      text_add(&e->out,
               "  .weights = offsetof(struct arena, weights), .weights_stride = sizeof(struct weights),\n");
    text_add(&e->out, "  .versions = 1,\n");
    return;
  }
  if (l->section[SECTION_WEIGHTS].copies)
    text_add(&e->out, "  .weights = offsetof(struct arena, weights), .weights_stride = sizeof(struct "
                      "weights), .versions = VERSIONS,\n");
  else
    text_add(&e->out, "  .versions = VERSIONS,\n");
  if (l->section[SECTION_FROZEN].copies)
    text_add(&e->out, "  .frozen = offsetof(struct arena, frozen),\n");
  if (l->section[SECTION_GRADIENTS].copies)
    text_add(&e->out, "  .accumulators = offsetof(struct arena, gradients), .accumulators_stride = sizeof(%s),\n",
             e->gradients_type);
  text_add(&e->out, "  .accumulator_sets = ACCUMULATORS,\n");
  if (l->section[SECTION_EXCHANGED].copies)
    text_add(&e->out,
             "  .exchanged = offsetof(struct arena, exchanged), .exchanged_stride = sizeof(struct exchanged),\n");
  text_add(&e->out, "  .exchange_sets = %d,\n", e->p->exchanges);
  if (l->reduced_bytes > 0)
    text_add(&e->out, "  .reduced = offsetof(struct arena, exchanged[0].reduced),\n");
  if (has_buckets(e))
    text_add(&e->out,
             "  .buckets = %d, .bucket_ranges = bucket_ranges,\n"
             "  .n_bucket_ranges = sizeof bucket_ranges / sizeof *bucket_ranges,\n",
             l->buckets.n);
  if (l->own_moments.n)
    text_add(&e->out,
             "  .moments = offsetof(struct arena, %smoments), .n_moments = %d, .own_moments = own_moments,\n",
             l->n_moments ? "" : "own_", update_rule(&e->g->train)->n_moments);
  else if (l->section[SECTION_MOMENTS].copies)
    text_add(&e->out, "  .moments = offsetof(struct arena, moments), .moments_stride = %s, .n_moments = %d,\n",
             is_sharded(e) ? "STATE_PART" : format("sizeof(%s)", e->state_type), l->n_moments);
  if (update_rule(&e->g->train)->scratch && l->scratch_bytes > 0)
    text_add(&e->out, "  .scratch = offsetof(struct arena, scratch),\n");
  if (l->section[SECTION_MEETING].copies)
    text_add(&e->out, "  .meeting = offsetof(struct arena, meeting), .meeting_bytes = %" PRId64 ",\n",
             l->meeting_bytes);
  if (e->k->target.precision == PRECISION_TF32)
    text_add(&e->out, "  .tf32 = true,\n");
  if (has_masters(e))
    text_add(&e->out, "  .has_masters = true, .masters = offsetof(struct arena, masters),\n");
  if (is_sharded(e))
    shard_field(e);
  if (l->section[SECTION_AVERAGES].copies)
    text_add(&e->out, "  .averages = offsetof(struct arena, averages), .ema = %s,\n",
             double_literal(e->g->train.ema));
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
  if (!graph_n_logged(e->g) || e->g->generation.context)
    return;
  text_add(&e->out, "static const struct pd_figure figures[] = { /* losses, then metrics */\n");
  for (int i = 0; i < graph_n_logged(e->g); i++) {
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

void prediction_table(Emit *e) {
  if (!e->g->n_outputs)
    return;
  text_add(&e->out, "static const struct pd_prediction predictions[] = {\n");
  for (int i = graph_n_logged(e->g); i < e->g->figures.n; i++) {
    const Figure *f = &e->g->figures.at[i];
    const Shape *shape = &e->g->values.at[f->value].shape;
    text_add(&e->out, "  {.name = %s, %s, .elements = %" PRId64 "},\n", string_literal(f->output),
             shape_fields(shape), shape_elements(shape));
  }
  text_add(&e->out, "};\n\n");
}

void generation_table(Emit *e) {
  const Generation *x = &e->g->generation;
  if (!x->context)
    return;
  const Value *logits = &e->g->values.at[e->g->figures.at[0].value];
  const Value *tokens = &e->g->values.at[e->g->inputs.at[x->tokens].value];
  text_add(&e->out,
           "static const struct pd_generation generation = {\n"
           "  .context = %" PRId64 ", %s.classes = %" PRId64 ", .logits = %" PRId64 ", .samples = %" PRId64 ",\n"
           "  .tokens = %d, .position = %d, .sequence = %d, .stage = %d,\n%s%s};\n\n",
           x->context, x->ring < x->context ? format(".ring = %" PRId64 ", ", x->ring) : "", tokens->classes,
           logits->shape.dim[1], x->samples, x->tokens, x->position, x->sequence, stage_of_node(e, logits->node),
           x->state ? "  .state = true,\n" : "",
           x->encoder ? format("  .encoder = true, .source = %d, .start = %" PRId64 ", .pad = %" PRId64 ",\n",
                               x->source, x->start, x->pad)
                      : "");
}

/* Inference has one loop and one part of the model per rank. */
static void statistics_field(Emit *e) {
  const int node = evaluated_statistic(e->g);
  if (node >= 0)
    text_add(&e->out, "  .statistics = %s,\n", string_literal(e->g->scopes.at[e->g->nodes.at[node].scope].path));
}

static void inference_fields(Emit *e) {
  if (e->g->n_outputs)
    text_add(&e->out, "  .predictions = predictions, .n_predictions = %d,\n", e->g->n_outputs);
  statistics_field(e);
  traits_field(e);
  text_add(&e->out, "  .forward_seconds = {%.6g}, .inference = true,\n",
           e->plan->stage[e->p->stage].forward_seconds);
}

static void seconds_field(Emit *e, const char *name, const Names *by_chunk) {
  text_list(&e->out, 4, format("  .%s = {", name), by_chunk, "},\n");
}

static void seconds_fields(Emit *e) {
  Names forward = {0}, backward = {0}, weights = {0};
  double update = 0;
  for (int c = 0; c < e->p->chunks; c++) {
    const StagePlan *s = &e->plan->stage[plan_part_of(e->plan, e->p->stage, c)];
    push(&forward, internf("%.6g", s->forward_seconds));
    push(&backward, internf("%.6g", s->backward_seconds));
    push(&weights, internf("%.6g", e->p->split_backward ? s->weights_seconds : 0));
    update += s->update_seconds;
  }
  seconds_field(e, "forward_seconds", &forward);
  seconds_field(e, "backward_seconds", &backward);
  if (e->p->split_backward)
    seconds_field(e, "weights_seconds", &weights);
  text_add(&e->out, "  .update_seconds = %.6g,\n", update);
}

/* ---- offload ------------------------------------------------------------------------------------- */

static void cut_table(Emit *e) {
  text_add(&e->out,
           "/* By part: values from the previous part, and saved values, with a slot for each microbatch. */\n"
           "static const struct pd_cut cuts[CHUNKS] = {\n");
  for (int c = 0; c < e->p->chunks; c++) {
    const struct {
      bool there;
      const char *field;
      BufferKind kind;
      int chunk;
    } way[] = {{c > 0, "activations", BUFFER_RECEIVED, c},
               {c > 0, "returned", BUFFER_GRADIENT_RECEIVED, c - 1},
               {program_keeps(e->p, c), "saved", BUFFER_SAVED, c}};
    Names fields = {0};
    if (program_keeps(e->p, c))
      push(&fields, intern(".keeps = true"));
    for (size_t i = 0; i < sizeof way / sizeof *way; i++)
      if (way[i].there && allocation_members(e->k, way[i].kind, way[i].chunk).n) {
        Name part = chunk_member(e, way[i].kind, way[i].chunk);
        push(&fields, internf(".%s = offsetof(struct arena, %s)", way[i].field, part));
        push(&fields, internf(".%s_bytes = sizeof(struct %s)", way[i].field, part));
      }
    if (!fields.n)
      push(&fields, intern(".activations = 0")); /* the first has no predecessor */
    text_list(&e->out, 3, "  {", &fields, "},\n");
  }
  text_add(&e->out, "};\n\n");
}

static void spilled_table(Emit *e) {
  spilled_parameter_table(e);
  cut_table(e);
  text_add(
      &e->out,
      "static const struct pd_spilled spilled = {.parts = CHUNKS, .cuts = cuts, .parameters = spilled_parameters,\n"
      "%s  .page = %" PRId64 ", .room = %" PRId64 ", .resident = %" PRId64 ", .kept = %d%s%s};\n\n",
      e->allocation->section[SECTION_WORKSPACE].copies
          ? "  .workspace = offsetof(struct arena, workspace), .workspace_bytes = sizeof arena->workspace,\n"
          : "",
      e->p->offload.page, e->allocation->room, e->allocation->resident_bytes, e->p->offload.pinned,
      e->p->offload.host_updates ? ", .at_home = true" : "",
      e->plan->spill ? format(",\n  .place = %s", string_literal(e->plan->spill)) : "");
}

/* Collectives of all passes of a microbatch. */
static int collectives_of(const Emit *e) {
  int n = 0;
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    for (int i = 0; i < pass_kernels(e->k, pass)->n; i++) {
      const Kernel *k = &pass_kernels(e->k, pass)->at[i];
      bool counts = kernel_is_collective(k) && k->part != CALL_END;
      n += counts ? 1 + (pass == PASS_FORWARD && program_recomputes(e->p)) : 0;
    }
  return n;
}

/* The tables that the stage's struct points to. Returns the number of tensors; fills `channel`. */
static int print_parts(Emit *e, Channel channel[N_CHANNELS]) {
  parameter_table(e);
  group_table(e);
  moment_table(e);
  input_table(e);
  int n_tensors = tensor_table(e);
  if (!e->p->forward_only)
    part_table(e);
  list_channels(e, channel);
  if (e->p->offload.on)
    spilled_table(e);
  for (int i = 0; i < N_CHANNELS; i++)
    for (int c = 0; c < e->p->chunks; c++)
      channel_table(e, &channel[i], c);
  rank_tables(e);
  figure_table(e);
  prediction_table(e);
  generation_table(e);
  if (!e->p->forward_only)
    identity_tables(e);
  traits_table(e);
  bucket_table(e);
  return n_tensors;
}

/* The model, its plan and its sizes. */
static void model_fields(Emit *e) {
  int64_t elements = 0;
  for (int i = 0; i < e->g->params.n; i++)
    elements += e->g->params.at[i].buffer ? 0 : param_elements(e->g, &e->g->params.at[i]);
  text_add(&e->out, "  .model = %s, .schedule = %s,\n  .plan_hash = %s,\n", string_literal(e->g->name),
           string_literal(e->plan->pipeline.schedule), string_literal(e->plan_hash));
  text_add(&e->out,
           "  .stage = STAGE, .n_stages = %d, .replicas = replicas,%s\n  .batch = %" PRId64
           ", .microbatch = MICROBATCH, .microbatches = %" PRId64 ",\n",
           e->p->n_stages,
           e->g->shards ? format(" .tensor = %d, .collectives = %d,", e->g->shards, collectives_of(e)) : "",
           e->plan->pipeline.batch, e->plan->pipeline.microbatches);
  text_add(&e->out,
           "  .model_parameters = %" PRId64
           ", .n_model_parameters = %d,\n  .flops_per_sample = %s, .tokens_per_sample = %" PRId64 ",\n",
           elements, e->g->params.n, double_literal(flops_per_sample(e->g)), graph_tokens_per_sample(e->g));
  text_add(&e->out, "  .threads = %d,\n", e->plan->target.threads);
}

static void print_stage(Emit *e, const Channel channel[N_CHANNELS], int n_tensors) {
  text_add(&e->out, "static const struct pd_stage stage = {\n");
  model_fields(e);
  memory_fields(e);
  if (!e->p->forward_only)
    text_add(&e->out, "  .per_batch = %s, .lag = LAG,\n", e->p->per_batch ? "true" : "false");
  if (e->k->params.n)
    text_add(&e->out, "  .parameters = parameters, .n_parameters = %d,\n", e->k->params.n);
  text_add(&e->out, "  .inputs = inputs, .n_inputs = %d,\n", e->g->inputs.n);
  if (n_tensors)
    text_add(&e->out, "  .tensors = tensors, .n_tensors = %d,\n", n_tensors);
  if (!e->p->forward_only)
    text_add(&e->out, "  .parts = parts, .n_parts = sizeof parts / sizeof *parts,\n");
  text_add(&e->out, "  .chunks = %d,\n", e->p->chunks);
  for (int i = 0; i < N_CHANNELS; i++)
    channel_field(e, &channel[i]);
  if (e->p->offload.on)
    text_add(&e->out, "  .spilled = &spilled,\n");
  if (e->g->generation.context)
    text_add(&e->out, "  .generation = &generation,\n");
  else if (graph_n_logged(e->g))
    text_add(&e->out, "  .figures = figures, .n_figures = %d, .n_losses = %d,\n", graph_n_logged(e->g),
             e->g->n_losses);
  if (e->p->forward_only) {
    inference_fields(e);
  } else {
    train_fields(e);
    identity_fields(e);
    statistics_field(e);
    traits_field(e);
    seconds_fields(e);
  }
  text_add(&e->out, "};\n\n");
}

void print_tables(Emit *e) {
  Channel channel[N_CHANNELS];
  text_add(&e->out, "/* ---- tables for the runtime ---- */\n\n");
  text_add(&e->out, "enum { STAGE = %d };\n\n", e->p->stage);
  int n_tensors = print_parts(e, channel);
  print_stage(e, channel, n_tensors);
}
