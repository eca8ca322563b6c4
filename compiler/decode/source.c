/* Models with an encoder: which input has the source's tokens or numbers, and which token is behind tokens. */
#include "decode/internal.h"
#include "graph/interpret.h"

/* Inputs that all ranks can compute from the source's tokens. */
static bool is_from(const Input *in, int source) {
  return in->from == source && (in->origin == ORIGIN_LENGTHS || in->origin == ORIGIN_PRESENT ||
                                in->origin == ORIGIN_SEGMENTS || in->origin == ORIGIN_SHIFTED);
}

static bool is_source(const Graph *g, int input) {
  const Input *in = &g->inputs.at[input];
  const Value *v = &g->values.at[in->value];
  const bool sequence = v->type == TYPE_TOKEN && v->shape.rank == 1, numbers = v->type == TYPE_F32;
  return in->origin == ORIGIN_FILE && !in->target && (sequence || numbers);
}

static bool needs(const Graph *g, const Sequence *s, int input) {
  return input != s->tokens && s->needed[g->values.at[g->inputs.at[input].value].node];
}

static bool refuse(const Graph *g, int input, const char *why) {
  const Input *in = &g->inputs.at[input];
  Diagnostic *d = error_at(in->span, "PD0812", "--generate: the logits need the input '%s', %s", in->name, why);
  help(
      d,
      "beside its own tokens, a decoder may depend on one input of numbers, or on one sequence of tokens and 'lengths', 'present', "
      "'segments' and 'shifted' of it");
  return false;
}

/* ---- the token behind sources ------------------------------------------------------------------------- */

/* Where the model tells padding by this token; all places must agree. */
static bool take_pad(Sequence *s, double pad) {
  if (s->pad >= 0 && (double)s->pad != pad)
    return false;
  s->pad = (int64_t)pad;
  return true;
}

static bool shows(const Graph *g, int value, int input) {
  const Node *n = &g->nodes.at[g->values.at[value].node];
  for (; n->op->kind == OP_VIEW; n = &g->nodes.at[g->values.at[value].node])
    value = n->in[0];
  return value == g->inputs.at[input].value;
}

/* Comparisons with one token, such as those of padding_mask. */
static bool find_compared_pad(const Graph *g, Sequence *s) {
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    double token;
    for (int k = 0; k < 2 && s->needed[i] && n->op == &op_equal; k++)
      if (shows(g, n->in[k], s->source) && interpret_element(g, n->in[1 - k], 0, &token) && !take_pad(s, token))
        return false;
  }
  return true;
}

static bool find_pad(const Graph *g, Sequence *s) {
  if (g->values.at[g->inputs.at[s->source].value].type != TYPE_TOKEN)
    return true;
  bool one = find_compared_pad(g, s);
  for (int i = 0; i < g->inputs.n && one; i++) {
    const Input *in = &g->inputs.at[i];
    if (needs(g, s, i) && in->from == s->source && in->origin != ORIGIN_SHIFTED)
      one = take_pad(s, in->numbers.at[in->origin == ORIGIN_SEGMENTS ? 1 : 0]);
  }
  if (!one)
    s->pad = -1;
  return one;
}

bool find_source(const Graph *g, Sequence *s) {
  for (int i = 0; i < g->inputs.n; i++) {
    const Input *in = &g->inputs.at[i];
    const int source = needs(g, s, i) ? (is_source(g, i) ? i : in->from) : -1;
    if (!needs(g, s, i))
      continue;
    if (source < 0 || !is_source(g, source) || (source != i && !is_from(in, source)))
      return refuse(g, i, "which is neither a sequence of tokens nor computed from one");
    if (s->source >= 0 && source != s->source)
      return refuse(g, i, format("beside '%s'", g->inputs.at[s->source].name));
    s->source = source;
  }
  s->start = (int64_t)g->inputs.at[s->tokens].numbers.at[0];
  return find_pad(g, s) || refuse(g, s->source, "and the model compares it with several tokens of padding");
}
