/* --lora: adapters of linear layers, and no other trained parameters. A layer that computes x @ weight.T with its own
 * parameter `weight` gets lora_A and lora_B, and computes x @ weight.T + alpha / r (dropout(x) @ lora_A.T) @ lora_B.T:
 * Hu et al. (2021), with the names and initial values of PEFT. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "elaborate/internal.h"
#include "shared/adapters.h"

/* The weight of x @ weight.T, if it is the parameter `weight` of the layer that computes the product; else NULL. */
static const Param *own_weight(const Elaborator *e, const Frame *f, int transposed) {
  const Graph *g = e->g;
  const Node *turned = &g->nodes.at[g->values.at[transposed].node];
  const Node *from = turned->op == &op_transpose ? &g->nodes.at[g->values.at[turned->in[0]].node] : NULL;
  if (!from || from->op->source != SOURCE_PARAMETER)
    return NULL;
  const Param *p = &g->params.at[node_int(from, "index")];
  return p->shape.rank == 2 && p->name == internf("%s.weight", f->instance->path) ? p : NULL;
}

/* The adapter's parameter; another call of the instance reads the same one. */
static int adapter_param(Elaborator *e, const Frame *f, const char *end, int64_t rows, int64_t columns,
                         double bound, Span span) {
  const Name name = internf("%s%s", f->instance->path, end);
  int param = table_number(&e->param_names, &name);
  if (param >= 0)
    return e->g->params.at[param].value;
  const Shape shape = {.rank = 2, .dim = {rows, columns}};
  param = graph_param(e->g, name, shape, f->scope, span);
  e->g->params.at[param].init = bound > 0 ? INIT_UNIFORM : INIT_ZEROS;
  e->g->params.at[param].init_value = bound;
  table_set_number(&e->param_names, &name, param);
  return e->g->params.at[param].value;
}

/* x @ w.T; -1 after a diagnostic. */
static int product(Elaborator *e, const Frame *f, int x, int w, Span span) {
  Attr last[MAX_ATTR] = {{.number = -2}, {.number = -1}};
  const Val turned = build(e, f, &op_transpose, &w, 1, last, span, span);
  if (x < 0 || turned.kind == VAL_POISON)
    return -1;
  const int in[2] = {x, turned.value};
  const Val v = build(e, f, &op_matmul, in, 2, NULL, span, span);
  return v.kind == VAL_POISON ? -1 : v.value;
}

static int dropped(Elaborator *e, const Frame *f, int x, Span span) {
  Attr attr[MAX_ATTR] = {{.number = e->options->lora->dropout}};
  if (e->options->lora->dropout == 0 || e->g->inference)
    return x;
  const Val v = build(e, f, &op_dropout, &x, 1, attr, span, span);
  return v.kind == VAL_POISON ? -1 : v.value;
}

static int scaled(Elaborator *e, const Frame *f, int x, Span span) {
  const Lora *l = e->options->lora;
  if (x < 0 || l->alpha == (double)l->r)
    return x;
  const int in[2] = {x, graph_constant(e->g, l->alpha / (double)l->r, f->scope, span)};
  const Val v = build(e, f, &op_mul, in, 2, NULL, span, span);
  return v.kind == VAL_POISON ? -1 : v.value;
}

static void note_adapted(Elaborator *e, Name path, bool stored_in_out) {
  for (int i = 0; i < e->adapted.n; i++)
    if (e->adapted.at[i].path == path)
      return;
  push(&e->adapted, ((Adapted){path, stored_in_out}));
}

Val lora_adapt(Elaborator *e, Frame *f, const int in[2], Val y, Span span) {
  const Lora *l = e->options->lora;
  const Param *weight = y.kind == VAL_TENSOR ? own_weight(e, f, in[1]) : NULL;
  if (!weight || !pd_pattern_matches(l->targets, f->instance->path))
    return y;
  const int64_t out_features = weight->shape.dim[0], in_features = weight->shape.dim[1];
  note_adapted(e, f->instance->path, weight->stored_in_out);
  const int a = adapter_param(e, f, PD_ADAPTER_A, l->r, in_features, 1 / sqrt((double)in_features), span);
  const int b = adapter_param(e, f, PD_ADAPTER_B, out_features, l->r, 0, span);
  const int low = scaled(e, f, product(e, f, dropped(e, f, in[0], span), a, span), span);
  const int delta = product(e, f, low, b, span);
  return delta < 0 ? POISON : build(e, f, &op_add, (int[]){y.value, delta}, 2, NULL, span, span);
}

/* ---- after elaboration ------------------------------------------------------------------------ */

static bool meets(const Elaborator *e, struct pd_range part) {
  for (int i = 0; i < e->adapted.n; i++)
    if (pd_alternative_matches(part, e->adapted.at[i].path))
      return true;
  return false;
}

/* The last part of the path of a layer with a matrix `weight`; NULL: another parameter, such as an adapter's. */
static const char *layer_name(const Param *p) {
  static const char weight[] = ".weight";
  const size_t n = strlen(p->name), m = sizeof weight - 1;
  if (pd_is_adapter(p->name) || p->shape.rank != 2 || n <= m || strcmp(p->name + n - m, weight))
    return NULL;
  const char *path = format("%.*s", (int)(n - m), p->name), *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

static bool is_table(const Graph *g, const Param *p) {
  for (int i = 0; i < g->n_forward; i++)
    if (g->nodes.at[i].op == &op_gather && g->nodes.at[i].in[0] == p->value)
      return true;
  return false;
}

/* Whether a product reads the parameter's transpose, as linear layers do; a tied head is a table. */
static bool is_linear(const Graph *g, const Param *p) {
  if (is_table(g, p))
    return false;
  for (int i = 0; i < g->n_forward; i++) {
    const Node *n = &g->nodes.at[i];
    const Node *turned = n->op == &op_matmul ? &g->nodes.at[g->values.at[n->in[1]].node] : NULL;
    if (turned && turned->op == &op_transpose && turned->in[0] == p->value)
      return true;
  }
  return false;
}

/* Up to four distinct last names of linear layers, those of blocks first: "q_proj, k_proj"; "": none. */
static const char *some_layers(const Graph *g) {
  enum { MOST = 4 };
  const char *names[MOST];
  int found = 0;
  Text all = {0};
  for (int blocks = 1; blocks >= 0 && !found; blocks--)
    for (int i = 0; i < g->params.n && found < MOST; i++) {
      const Param *p = &g->params.at[i];
      const char *name = strpbrk(p->name, "0123456789") || !blocks ? layer_name(p) : NULL;
      int k = 0;
      while (name && k < found && strcmp(names[k], name))
        k++;
      if (!name || k < found || !is_linear(g, p))
        continue;
      text_add(&all, "%s'%s'", found ? ", " : "", name);
      names[found++] = name;
    }
  return all.n ? all.at : "";
}

/* A table that the target matches; NULL: none. */
static const char *matched_table(const Graph *g, struct pd_range part) {
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    const size_t n = strlen(p->name), m = strlen(".weight");
    if (layer_name(p) && is_table(g, p)) {
      const char *path = format("%.*s", (int)(n - m), p->name);
      if (pd_alternative_matches(part, path))
        return path;
    }
  }
  return NULL;
}

/* A stack of experts' matrices that the target matches, by its name, that of its layer, or that of a layer of one
 * expert in files; NULL: none. */
static const char *matched_experts(const Graph *g, struct pd_range part) {
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    const char *end = strrchr(p->name, '.');
    const char *layer = format("%.*s", end ? (int)(end - p->name) : 0, p->name);
    if (p->shape.rank == 3 && (pd_alternative_matches(part, p->name) || pd_alternative_matches(part, layer)))
      return p->name;
  }
  const Param *stack = stack_of_matched(g, part, ".weight");
  return stack ? stack->name : NULL;
}

static void refuse_target(const Graph *g, struct pd_range part) {
  Diagnostic *d = error_at(NO_SPAN, "PD0418", "--lora: no linear layer matches '%.*s'", (int)part.n, part.at);
  const char *text = format("%.*s", (int)part.n, part.at), *table = matched_table(g, part), *like = some_layers(g);
  const char *experts = matched_experts(g, part);
  if (strpbrk(text, "()[]\\^$+") || strstr(text, ".*"))
    help(d, "targets are patterns with * and ?, not regular expressions");
  else if (experts)
    help(d, "'%s' holds matrices of experts, which take no adapters", experts);
  else if (table)
    help(d, "'%s' is not a linear layer: embeddings take no adapters", table);
  if (*like)
    help(d, "a target is a pattern over names of linear layers, such as %s", like);
}

static bool check_targets(const Elaborator *e) {
  struct pd_range part;
  for (const char *rest = e->options->lora->targets; pd_pattern_next(&rest, &part);) {
    if (meets(e, part))
      continue;
    refuse_target(e->g, part);
    return false;
  }
  return true;
}

/* ---- modules_to_save --------------------------------------------------------------------------- */

static bool is_whole(const Elaborator *e, const Param *p) {
  const char *whole = e->options->lora->whole;
  return whole && !p->buffer && !pd_is_adapter(p->name) && pd_pattern_matches(whole, p->name);
}

/* The embeddings of a tied head: PEFT trains a copy of them for the embeddings alone. */
static bool is_tied(const Graph *g, const Param *p) {
  int readers = 0;
  for (int i = 0; i < g->n_forward && is_table(g, p); i++)
    readers += g->nodes.at[i].op == &op_transpose && g->nodes.at[i].in[0] == p->value;
  return readers > 0;
}

static bool check_whole(const Elaborator *e) {
  const Graph *g = e->g;
  struct pd_range part;
  for (const char *rest = e->options->lora->whole; rest && pd_pattern_next(&rest, &part);) {
    const Param *p = NULL;
    for (int i = 0; i < g->params.n && !p; i++)
      if (is_whole(e, &g->params.at[i]) && pd_alternative_matches(part, g->params.at[i].name))
        p = &g->params.at[i];
    Diagnostic *d = NULL;
    if (!p)
      d = error_at(NO_SPAN, "PD0418", "--lora: no parameter matches '%.*s' of modules_to_save", (int)part.n,
                   part.at);
    else if (p->shape.rank == 3 || is_tied(g, p))
      d = error_at(NO_SPAN, "PD0418", "--lora: modules_to_save has '%s', which is %s", p->name,
                   is_tied(g, p) ? "also the head" : "a stack of matrices");
    if (!d)
      continue;
    help(d, "modules_to_save is a pattern over parameters that are trained whole, such as a new head");
    return false;
  }
  return true;
}

/* The module of a parameter: its name without the last part. */
static const char *module_of(const Param *p) {
  const char *dot = strrchr(p->name, '.');
  return dot ? format("%.*s", (int)(dot - p->name), p->name) : p->name;
}

static void add_whole(const Elaborator *e, Text *t) {
  Vec(const char *) modules = {0};
  for (int i = 0; i < e->g->params.n; i++) {
    const Param *p = &e->g->params.at[i];
    int k = 0;
    while (k < modules.n && strcmp(modules.at[k], module_of(p)))
      k++;
    if (!is_whole(e, p) || k < modules.n)
      continue;
    push(&modules, module_of(p));
    text_add(t, k ? ", " : ", \"modules_to_save\": [");
    json_string(t, module_of(p));
  }
  text_add(t, modules.n ? "]" : "");
}

/* PEFT's adapter_config.json, without the base model and the task. */
static const char *config_text(const Elaborator *e) {
  const Lora *l = e->options->lora;
  Text t = {0};
  bool in_out = false;
  text_add(&t, "{\"peft_type\": \"LORA\", \"r\": %lld, \"lora_alpha\": ", (long long)l->r);
  json_double(&t, l->alpha);
  text_add(&t, ", \"lora_dropout\": ");
  json_double(&t, l->dropout);
  text_add(&t, ", \"target_modules\": [");
  for (int i = 0; i < e->adapted.n; i++) {
    text_add(&t, i ? ", " : "");
    json_string(&t, e->adapted.at[i].path);
    in_out |= e->adapted.at[i].stored_in_out;
  }
  text_add(&t, "], \"fan_in_fan_out\": %s, \"bias\": \"none\", \"inference_mode\": true",
           in_out ? "true" : "false");
  add_whole(e, &t);
  text_add(&t, "}");
  return t.at;
}

void lora_finish(Elaborator *e) {
  Graph *g = e->g;
  if (!e->options->lora || !check_targets(e) || !check_whole(e))
    return;
  g->adapter_config = config_text(e);
  for (int i = 0; i < g->params.n && !g->inference; i++)
    g->params.at[i].frozen |=
        !g->params.at[i].buffer && !pd_is_adapter(g->params.at[i].name) && !is_whole(e, &g->params.at[i]);
}
