/* Finds a model's token input and its logits, which its loss compares with targets. */
#include "decode/internal.h"
#include "ops/rules.h"

static int producer(const Graph *g, int value) { return g->values.at[value].node; }

/* The node's instance among those called by the model itself; 0: the model. */
static int instance_of(const Graph *g, int node) {
  int scope = g->nodes.at[node].scope;
  while (scope > 0 && g->scopes.at[scope].parent > 0)
    scope = g->scopes.at[scope].parent;
  return scope;
}

static bool *reached_from(const Graph *g, bool targets) {
  bool *reached = alloc(g->nodes.n + 1);
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    if (n->op->source == SOURCE_INPUT)
      reached[i] = g->inputs.at[node_int(n, "index")].target == targets;
    for (int k = 0; k < n->n_in; k++)
      reached[i] |= reached[producer(g, n->in[k])];
  }
  return reached;
}

enum { BY_ARITHMETIC, BY_LAYER, HOWS };

/* Walks back from losses to values that depend on samples but not on targets. A layer such as cross_entropy
 * compares its inputs with targets. The model's own arithmetic is ambiguous: an operand beside a target may be a
 * weight or a further term of the loss. */
typedef struct Search {
  const Graph *g;
  bool *from_targets, *from_inputs, *seen;
  bool *found[HOWS]; /* by value */
} Search;

static void search(Search *s, int value, int reader) {
  const Graph *g = s->g;
  int node = producer(g, value), here = instance_of(g, node), there = instance_of(g, reader);
  bool inside = here > 0 && here == there;
  if (!s->from_inputs[node] && !s->from_targets[node])
    return;
  if (!inside && !s->from_targets[node]) {
    s->found[there > 0 ? BY_LAYER : BY_ARITHMETIC][value] = g->values.at[value].type == TYPE_F32;
    return;
  }
  if (s->seen[value])
    return;
  s->seen[value] = true;
  for (int i = 0; i < g->nodes.at[node].n_in; i++)
    search(s, g->nodes.at[node].in[i], node);
}

/* Values that layers compare with targets; without such layers, the operands beside targets in arithmetic. A loss
 * without targets compares nothing. */
static Ints find_compared(const Graph *g, bool *by_arithmetic) {
  Search s = {.g = g,
              .from_targets = reached_from(g, true),
              .from_inputs = reached_from(g, false),
              .seen = alloc(g->values.n + 1)};
  Ints compared = {0};
  for (int how = 0; how < HOWS; how++)
    s.found[how] = alloc(g->values.n + 1);
  for (int i = 0; i < g->n_losses; i++) {
    int loss = g->figures.at[i].value;
    if (s.from_targets[producer(g, loss)])
      search(&s, loss, producer(g, loss));
  }
  for (int how = HOWS - 1; how >= 0 && !compared.n; how--)
    for (int v = 0; v < g->values.n; v++)
      if (s.found[how][v]) {
        *by_arithmetic = how == BY_ARITHMETIC;
        push(&compared, v);
      }
  return compared;
}

static void mark_needed(const Graph *g, bool *needed, int node) {
  if (needed[node])
    return;
  needed[node] = true;
  for (int i = 0; i < g->nodes.at[node].n_in; i++)
    mark_needed(g, needed, producer(g, g->nodes.at[node].in[i]));
}

/* Refuses arithmetic, which may compare probabilities instead of logits; sampling from those would be far too
 * uniform. */
static void tell_arithmetic(const Graph *g, int value) {
  const Value *v = &g->values.at[value];
  Diagnostic *d = warning_at(v->span, "PD0815", "--generate: assumes that '%s' holds logits", v->name);
  note_at(d, NO_SPAN,
          "the model computes the loss with its own arithmetic: the value could also be probabilities");
  help(d, "use 'cross_entropy(logits, next)' to state that the value holds logits");
}

static bool find_logits(const Graph *g, Sequence *s) {
  bool by_arithmetic = false;
  Ints compared = find_compared(g, &by_arithmetic);
  if (compared.n == 1) {
    s->logits = compared.at[0];
    if (by_arithmetic)
      tell_arithmetic(g, s->logits);
    return true;
  }
  Diagnostic *d = error_at(NO_SPAN, "PD0811",
                           compared.n ? "--generate: the model's losses compare more than one value with targets"
                                      : "--generate: the model's loss compares no value with a target");
  for (int i = 0; i < compared.n; i++)
    note_at(d, g->values.at[compared.at[i]].span, "this value is compared with a target");
  help(d, "use one loss that compares logits with the next tokens: 'loss cross_entropy(logits, next);'");
  return false;
}

static bool is_sequence(const Graph *g, int input) {
  const Value *v = &g->values.at[g->inputs.at[input].value];
  return v->type == TYPE_TOKEN && v->shape.rank == 1;
}

/* The single input that is computed from a target: the tokens before each. -1: none, or several. */
static int find_shifted(const Graph *g, const Ints *inputs) {
  int found = -1;
  for (int i = 0; i < inputs->n; i++) {
    const Input *in = &g->inputs.at[inputs->at[i]];
    if (in->origin != ORIGIN_SHIFTED || !g->inputs.at[in->from].target)
      continue;
    if (found >= 0)
      return -1;
    found = inputs->at[i];
  }
  return found;
}

/* Finds the single input that the logits need, or the decoder's of several. */
static bool find_tokens(const Graph *g, Sequence *s) {
  Ints needed = {0};
  for (int i = 0; i < g->inputs.n; i++)
    if (s->needed[producer(g, g->inputs.at[i].value)])
      push(&needed, i);
  s->tokens = needed.n == 1 ? needed.at[0] : find_shifted(g, &needed);
  if (s->tokens >= 0 && is_sequence(g, s->tokens)) {
    s->context = g->values.at[g->inputs.at[s->tokens].value].shape.dim[0];
    return needed.n == 1 || find_source(g, s);
  }
  Diagnostic *d = error_at(NO_SPAN, "PD0812",
                           needed.n > 1 ? "--generate: the logits need several inputs, and none is known as the "
                                          "sequence to continue"
                                        : "--generate: the logits need no sequence of tokens");
  for (int i = 0; i < needed.n; i++)
    note_at(d, g->inputs.at[needed.at[i]].span, "the logits depend on '%s'", g->inputs.at[needed.at[i]].name);
  help(d, "the logits must depend on one input, a sequence: 'input tokens[128] : token(256);'");
  if (needed.n > 1)
    help(d, "in a model with an encoder, the decoder's input is the target's tokens before each: 'input "
            "before[128] : shifted(next, first = 0);'");
  return false;
}

static void mark_stepped(const Graph *g, Sequence *s) {
  s->stepped = alloc(g->nodes.n + 1);
  for (int i = 0; i < g->nodes.n; i++) {
    s->stepped[i] = g->values.at[g->inputs.at[s->tokens].value].node == i;
    for (int k = 0; k < g->nodes.at[i].n_in; k++)
      s->stepped[i] |= s->stepped[producer(g, g->nodes.at[i].in[k])];
  }
}

static bool check_logits(const Graph *g, const Sequence *s) {
  const Value *v = &g->values.at[s->logits], *t = &g->values.at[g->inputs.at[s->tokens].value];
  if (v->shape.rank == 2 && v->shape.dim[0] == s->context && v->shape.dim[1] >= t->classes)
    return true;
  Diagnostic *d =
      error_at(NO_SPAN, "PD0812", "--generate: needs logits of shape [%lld, %lld], but '%s' has shape %s",
               (long long)s->context, (long long)t->classes, v->name, shape_text(&v->shape));
  note_at(d, v->span, "the loss compares this value with targets");
  note_at(d, g->inputs.at[s->tokens].span, "these are the tokens; each needs one row of logits");
  return false;
}

bool find_sequence(const Graph *g, Sequence *s) {
  *s = (Sequence){.needed = alloc(g->nodes.n + 1), .source = -1, .pad = -1};
  if (!find_logits(g, s))
    return false;
  mark_needed(g, s->needed, producer(g, s->logits));
  if (!find_tokens(g, s) || !check_logits(g, s))
    return false;
  mark_stepped(g, s);
  return true;
}

/* The positions axis of a causal call's results: that of its first operand. */
static int axis_of_node(const Graph *g, int node, const int *axis, const Keys *of, int64_t context, Keys *keys) {
  const Node *n = &g->nodes.at[node];
  Decoded ignored;
  int whole, found = decode_node(g, node, axis, context, &ignored);
  found = decode_keys(g, node, axis, of, found, keys, &whole);
  return found < 0 && n->op->causal && n->op->causal(g, node) ? axis[0] : found;
}

int find_not_causal(const Graph *g, const Sequence *s) {
  int *axis = alloc((g->values.n + 1) * sizeof *axis); /* by value: 1 + the axis of positions; 0: none */
  Keys *keys = alloc((g->values.n + 1) * sizeof *keys);
  for (int v = 0; v < g->values.n; v++)
    keys[v].axis = -1;
  axis[g->inputs.at[s->tokens].value] = 1;
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    int *of = alloc((n->n_in + 1) * sizeof *of);
    Keys *keys_of = alloc((n->n_in + 1) * sizeof *keys_of), made;
    bool any = false;
    for (int k = 0; k < n->n_in; k++) {
      keys_of[k] = keys[n->in[k]];
      of[k] = axis[n->in[k]] - 1;
      any |= of[k] >= 0;
    }
    if (!any || !s->needed[i])
      continue;
    int found = axis_of_node(g, i, of, keys_of, s->context, &made);
    if (found < 0)
      return n->out[0];
    for (int k = 0; k < n->n_out; k++) {
      axis[n->out[k]] = 1 + found;
      keys[n->out[k]] = made;
    }
  }
  return -1;
}
