/* Prints the table of parameters for the runtime: offsets of weights, gradients and moments, sharing ranks,
 * initial values. */
#include "emit/print.h"

#include <inttypes.h>
#include <string.h>

static bool stage_holds(const Emit *e, int stage, int param) {
  for (int c = 0; c < pipeline_chunks(&e->plan->pipeline, stage); c++) {
    const StagePlan *part = &e->plan->stage[plan_part_of(e->plan, stage, c)];
    for (int i = part->first_piece; i < part->end_piece; i++)
      for (int j = 0; j < e->pieces->at[i].params.n; j++)
        if (e->pieces->at[i].params.at[j] == param)
          return true;
  }
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

Name shape_fields(const Shape *shape) {
  Text dims = {0};
  for (int i = 0; i < shape->rank; i++)
    text_add(&dims, "%s%" PRId64, i ? ", " : "", shape->dim[i]);
  return internf(".dim = {%s}, .rank = %d", dims.n ? dims.at : "1", shape->rank);
}

void list_field(Emit *e, const char *name, const char *type, const Names *list, const char *tail) {
  char *head = format("   .%s = PD_LIST(%s, ", name, type);
  if (list->n)
    text_list(&e->out, (int)strlen(head), head, list, format(")%s", tail));
}

/* The accumulator of each use. */
static Names uses_of(const Emit *e, int param) {
  const Param *p = &e->g->params.at[param];
  Names uses = {0};
  for (int use = 0; use < p->uses.n; use++) {
    if (use >= p->gradients.n || p->gradients.at[use] < 0)
      continue;
    int buffer = find_buffer(e, BUFFER_ACCUMULATOR, param, use);
    Name offset = buffer >= 0 ? internf("%s, %s", e->gradients_type, member_path(e, buffer))
                              : internf("struct arena, exchanged[0].%s_use_%d", c_identifier(p->name), use + 1);
    push(&uses, internf("{.stage = %d, .offset = offsetof(%s)}", stage_of_node(e, p->uses.at[use]), offset));
  }
  return uses;
}

static bool has_gradient(const Emit *e, const Param *p, int stage) {
  for (int use = 0; use < p->uses.n && use < p->gradients.n; use++)
    if (p->gradients.at[use] >= 0 && stage_of_node(e, p->uses.at[use]) == stage)
      return true;
  return false;
}

/* The stages that hold the parameter without a gradient; a frozen one is not exchanged. */
static Names readers_of(const Emit *e, int param) {
  Names readers = {0};
  for (int i = 0; i < e->plan->pipeline.n_stages && !e->g->params.at[param].frozen; i++)
    if (stage_holds(e, i, param) && !has_gradient(e, &e->g->params.at[param], i))
      push(&readers, internf("%d", i));
  return readers;
}

static bool used_once_here(const Emit *e, int param, int weight) {
  const Param *p = &e->g->params.at[param];
  int buffer = find_buffer(e, BUFFER_ACCUMULATOR, param, 0);
  return p->padding == 0 && p->uses.n == 1 && p->gradients.n == 1 && p->gradients.at[0] >= 0 && buffer >= 0 &&
         owner_of(e, param) == e->p->stage && !strcmp(member_path(e, buffer), member_path(e, weight));
}

static int find_weight(const Emit *e, int param) {
  bool frozen = e->g->params.at[param].frozen;
  int weight = find_buffer(e, frozen ? BUFFER_FROZEN : BUFFER_WEIGHT, param, -1);
  ensure(weight >= 0);
  return weight;
}

/* A buffer's fields: the rule and the rate of its update. */
static Name buffer_fields(const Emit *e, const Param *buffer) {
  const Node *use = &e->g->nodes.at[buffer->uses.at[0]];
  return internf(".buffer = true, .%s = %s", use->op->moves_by,
                 float_literal(node_number(use, use->op->moves_by)));
}

static void add_init(const Param *p, Names *fields) {
  static const char *const inits[] = {"PD_ZEROS", "PD_ONES", "PD_CONSTANT", "PD_UNIFORM", "PD_NORMAL"};
  push(fields, internf(".init = %s", inits[p->init]));
  if (p->init != INIT_ZEROS && p->init != INIT_ONES)
    push(fields, internf(".init_value = %s", double_literal(p->init_value)));
  if (p->zero_row >= 0)
    push(fields, internf(".has_zero_row = true, .zero_row = %" PRId64, p->zero_row));
  if (p->layout.kind == LAYOUT_SPLIT)
    push(fields,
         internf(".runs = %" PRId64 ", .split_axis = %d", layout_runs(&p->shape, p->layout), p->layout.axis));
  if (p->surplus)
    push(fields, internf(".surplus = %" PRId64, p->surplus));
}

/* Prints the owner, uses and readers of a shared parameter. */
static void sharing_fields(Emit *e, int param) {
  Names uses = uses_of(e, param), readers = readers_of(e, param);
  text_add(&e->out, "   .owner = %d, .n_uses = %d", owner_of(e, param), uses.n);
  if (readers.n)
    text_add(&e->out, ", .n_readers = %d", readers.n);
  text_add(&e->out, uses.n + readers.n ? ",\n" : "},\n");
  for (int i = 0; i < uses.n; i++)
    text_add(&e->out, "%s     %s%s", i == 0 ? "   .uses = PD_LIST(struct pd_use,\n" : "", uses.at[i],
             i + 1 < uses.n ? ",\n"
             : readers.n    ? "),\n"
                            : ")},\n");
  list_field(e, "readers", "int", &readers, "},\n");
}

/* Fields are in the order of struct pd_parameter, which C++ requires. */
static void parameter_line(Emit *e, int param) {
  const Param *p = &e->g->params.at[param];
  int weight = find_weight(e, param);
  bool once = used_once_here(e, param, weight);
  Names values = {0};
  text_add(&e->out, "  {.name = %s, .order = %d, %s,\n", string_literal(p->name), param, shape_fields(&p->shape));
  if (e->p->forward_only) {
    text_add(&e->out, "   %sHELD(%s), .owner = %d},\n", p->stored_in_out ? ".stored_in_out = true, " : "",
             member_path(e, weight), owner_of(e, param));
    return;
  }
  add_init(p, &values);
  const ParameterGroup *group = p->group ? &e->g->train.groups.at[p->group - 1] : NULL;
  bool decay_all = group ? group->decay_all : e->g->train.decay_all;
  if (is_trained(p) && (decay_all || p->shape.rank >= 2))
    push(&values, intern(".decays = true"));
  if (p->hidden)
    push(&values, intern(".hidden = true"));
  if (group)
    push(&values, internf(".group = %d", p->group));
  if (p->stored_in_out)
    push(&values, intern(".stored_in_out = true"));
  if (p->buffer)
    push(&values, buffer_fields(e, p));
  const char *held = once ? "USED_ONCE" : p->frozen ? "FROZEN" : "HELD";
  Name own = p->padding ? internf(", %" PRId64, shape_elements(&p->shape)) : intern("");
  push(&values, internf("%s%s(%s%s)", held, p->padding ? "_PADDED" : "", member_path(e, weight), own));
  text_list(&e->out, 3, "   ", &values, once ? "},\n" : ",\n");
  if (!once)
    sharing_fields(e, param);
}

static void inference_macros(Emit *e) {
  text_add(&e->out,
           "/* A parameter that is this member of struct weights. */\n"
           "#define HELD(member) \\\n"
           "  .elements = sizeof ((struct weights *)0)->member / sizeof *((struct weights *)0)->member, \\\n"
           "  .offset = offsetof(struct weights, member)%s\n",
           e->k->target.precision == PRECISION_BF16 ? ", \\" : "");
  if (e->k->target.precision == PRECISION_BF16)
    text_add(&e->out, "  .bf16 = sizeof *((struct weights *)0)->member == sizeof(pd_bf16)\n");
  text_add(&e->out, "\n");
}

/* The fields of a parameter's elements: the whole member or, with padding, its first elements. */
static const char *elements_fields(const char *all, bool padded) {
  return padded ? format("  .elements = own, .padding = (int64_t)(%s) - (own), \\\n", all)
                : format("  .elements = %s, \\\n", all);
}

static void frozen_macro(Emit *e, bool padded) {
  bool rounds = e->k->target.precision == PRECISION_BF16;
  const char *all = "sizeof ((struct frozen *)0)->member / sizeof *((struct frozen *)0)->member";
  text_add(&e->out,
           "/* A frozen one, which is this member of struct frozen%s. */\n"
           "#define FROZEN%s \\\n"
           "%s"
           "  .offset = offsetof(struct frozen, member), \\\n  %s.frozen = true\n",
           padded ? ", its own elements in front of zeros" : "", padded ? "_PADDED(member, own)" : "(member)",
           elements_fields(all, padded),
           rounds ? ".bf16 = sizeof *((struct frozen *)0)->member == sizeof(pd_bf16), " : "");
}

static void held_macro(Emit *e, bool padded) {
  bool masters = has_masters(e);
  text_add(&e->out,
           "/* A parameter that is this member of struct weights%s. */\n"
           "#define HELD%s \\\n"
           "%s"
           "  .offset = offsetof(struct weights, member)%s\n",
           padded ? ", its own elements in front of zeros" : "", padded ? "_PADDED(member, own)" : "(member)",
           elements_fields(format("sizeof ((%s *)0)->member / sizeof(float)", e->state_type), padded),
           masters ? ", .state = offsetof(struct masters, member), \\" : "");
  if (masters)
    text_add(&e->out, "  .bf16 = sizeof *((struct weights *)0)->member == sizeof(pd_bf16)\n");
}

/* Whether a parameter here, trained or frozen, has padding. */
static bool some_padded(const Emit *e, bool frozen) {
  bool some = false;
  for (int i = 0; i < e->k->params.n; i++) {
    const Param *p = &e->g->params.at[e->k->params.at[i]];
    some |= p->padding > 0 && p->frozen == frozen;
  }
  return some;
}

/* Macros of the fields that follow from a parameter's place. */
static void parameter_macros(Emit *e) {
  bool once = false;
  for (int i = 0; i < e->k->params.n && !once; i++)
    once = used_once_here(e, e->k->params.at[i], find_weight(e, e->k->params.at[i]));
  if (e->allocation->section[SECTION_WEIGHTS].copies)
    held_macro(e, false);
  if (some_padded(e, false))
    held_macro(e, true);
  if (once)
    text_add(&e->out,
             "/* One that the model uses once, on this stage: its gradient is the same member of "
             "arena->gradients[]. */\n"
             "#define USED_ONCE(member) \\\n"
             "  HELD(member), .owner = STAGE, .n_uses = 1, \\\n"
             "  .uses = PD_LIST(struct pd_use, {.stage = STAGE, .offset = offsetof(%s, member)})\n",
             e->gradients_type);
  if (e->allocation->section[SECTION_FROZEN].copies)
    frozen_macro(e, false);
  if (some_padded(e, true))
    frozen_macro(e, true);
  text_add(&e->out, "\n");
}

void parameter_table(Emit *e) {
  if (e->k->params.n == 0)
    return;
  (e->p->forward_only ? inference_macros : parameter_macros)(e);
  text_add(&e->out, "static const struct pd_parameter parameters[] = {\n");
  for (int i = 0; i < e->k->params.n; i++)
    parameter_line(e, e->k->params.at[i]);
  text_add(&e->out, "};\n\n");
}

/* ---- of a model that spills -------------------------------------------------------------------- */

/* By gradient, in the order of uses_of(): the part that computes it, -1: on another stage. */
static Names parts_of_uses(const Emit *e, int param) {
  const Param *p = &e->g->params.at[param];
  Names parts = {0};
  for (int use = 0; use < p->uses.n && use < p->gradients.n; use++)
    if (p->gradients.at[use] >= 0) {
      int buffer = find_buffer(e, BUFFER_ACCUMULATOR, param, use);
      push(&parts, internf("%d", buffer < 0 ? -1 : e->k->buffers.at[buffer].chunk));
    }
  return parts;
}

void spilled_parameter_table(Emit *e) {
  text_add(
      &e->out,
      "/* By parameter: the parts that read it, part p as bit p, and the part that computes each use's gradient. */\n"
      "static const struct pd_spilled_parameter spilled_parameters[] = {\n");
  for (int i = 0; i < e->k->params.n; i++) {
    int param = e->k->params.at[i];
    Names uses = parts_of_uses(e, param), fields = {0};
    push(&fields, internf(".parts = 0x%" PRIx64, e->k->buffers.at[find_weight(e, param)].chunks));
    if (gradients_stay(e->k, param))
      push(&fields, intern(".gradients_stay = true"));
    if (uses.n)
      push(&fields, internf(".uses = PD_LIST(int, %s", uses.at[0]));
    for (int use = 1; use < uses.n; use++)
      push(&fields, uses.at[use]);
    text_list(&e->out, 3, "  {", &fields,
              format("%s}, /* %s */\n", uses.n ? ")" : "", comment_text(e->g->params.at[param].name)));
  }
  text_add(&e->out, "};\n\n");
}

/* ---- moments of shapes of their own ---------------------------------------------------------- */

/* A moment with the parameter's shape: its place on the replica that keeps it. */
static Name like_moment(const Emit *e, int moment, int weight, const char *member) {
  if (!is_sharded(e))
    return internf(".offset = offsetof(struct arena, moments[%d].%s)", moment, member);
  const int64_t state = state_offsets(e->k)[weight];
  const Shards *shard = e->allocation->shard;
  ensure(shard->cells == 1); /* rules over whole tensors have one cell */
  return internf(".offset = offsetof(struct arena, moments[%d]) + offsetof(%s, %s) - %" PRId64, moment,
                 e->state_type, member, shard->at[shard_of(shard, state, 0)]);
}

void moment_table(Emit *e) {
  const UpdateRule *rule = update_rule(&e->g->train);
  if (!e->allocation->own_moments.n)
    return;
  text_add(&e->out,
           "/* By parameter and moment; all zero for frozen parameters and for moments without elements. */\n"
           "static const struct pd_moment own_moments[] = {\n");
  for (int i = 0, own = 0; i < e->k->params.n; i++) {
    const Param *p = &e->g->params.at[e->k->params.at[i]];
    int weight = find_weight(e, e->k->params.at[i]);
    const char *member = member_path(e, weight);
    for (int m = 0, like = 0; m < rule->n_moments; m++) {
      Shape shape = moment_shape(rule, m, p);
      Names fields = {0};
      if (!is_trained(p) || !shape_elements(&shape))
        push(&fields, intern(".offset = 0"));
      else if (rule->moment_shape[m])
        push(&fields, internf(".offset = offsetof(struct arena, own_moments.%s)",
                              own_moment_member(e, &e->allocation->own_moments.at[own++])));
      else
        push(&fields, like_moment(e, like++, weight, member));
      push(&fields, shape_fields(&shape));
      text_list(&e->out, 3, "  {", &fields, "},\n");
    }
  }
  text_add(&e->out, "};\n\n");
}
