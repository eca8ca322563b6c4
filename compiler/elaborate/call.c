/* Calls of layers (inlined); instances and their names. */
#include "elaborate/internal.h"

#include <math.h>
#include <string.h>

/* ---- instances ----------------------------------------------------------------------------- */

static Instance *child_named(const Instance *parent, Name name) {
  return parent->children.n ? table_find(&parent->by_name, &name) : NULL;
}

/* A child that the layer's current call has already used. */
static Instance *instance_made(const Frame *f, Name name) {
  Instance *c = child_named(f->instance, name);
  return c && c->seen == f->instance->calls ? c : NULL;
}

Instance *instance_find(const Frame *f, Name name) {
  Instance *i = instance_made(f, name);
  return i && i->named_by != NAMED_BY_LAYER ? i : NULL;
}

bool instance_has_prefix(const Frame *f, Name prefix) {
  const Stem *stem = f->instance->children.n ? table_find(&f->instance->by_stem, &prefix) : NULL;
  for (int i = 0; stem && i < stem->n; i++)
    if (stem->at[i]->named_by != NAMED_BY_LAYER && stem->at[i]->seen == f->instance->calls)
      return true;
  return false;
}

/* Registers a new child under each stem of its name. */
static void add_stems(Instance *parent, Instance *child) {
  for (size_t n = strcspn(child->name, ".");; n += 1 + strcspn(child->name + n + 1, ".")) {
    const Name name = intern_n(child->name, n);
    Stem *stem = table_find(&parent->by_stem, &name);
    if (!stem) {
      Stem none = {0};
      stem = alloc_copy(&none, sizeof none);
      table_add(&parent->by_stem, &name, stem);
    }
    push(stem, child);
    if (!child->name[n])
      return;
  }
}

InstanceParam *instance_param(const Instance *i, Name name) {
  const int place = table_number(&i->param_places, &name);
  return place >= 0 ? &i->params.at[place] : NULL;
}

void instance_add_param(Instance *i, InstanceParam param) {
  i->param_places.key_bytes = sizeof param.name;
  table_set_number(&i->param_places, &param.name, i->params.n);
  push(&i->params, param);
}

Name label_text(Elaborator *e, Frame *f, const Ast *label) {
  if (label->kind == AST_NAME)
    return label->name;
  Name base = label_text(e, f, label->a);
  if (!base)
    return NULL;
  if (label->kind == AST_MEMBER)
    return internf("%s.%s", base, label->name);
  for (int i = 0; i < label->list.n; i++) {
    const Ast *s = label->list.at[i];
    int64_t index;
    if (s->kind == AST_RANGE)
      return NULL;
    if (!want_whole(e, f, evaluate(e, f, s), s->span, "an index", &index))
      return NULL;
    if (index < 0) {
      fail(f, s->span, "PD0208", "an index of a name cannot be negative, but is %lld", (long long)index);
      return NULL;
    }
    base = internf("%s.%lld", base, (long long)index);
  }
  return base;
}

void warn_of_label(const Elaborator *e, const Frame *f, Name name, Span where) {
  const Instance *i = instance_made(f, name);
  if (!i || i->named_by != NAMED_BY_LABEL || i->poisoned)
    return;
  Diagnostic *d = warning_at(where, "PD0114", "'%s' means the %s here, not the instance with the same label", name,
                             layer_find(e, name) ? "layer" : "operation");
  note_calls(f, d);
  note_at(d, i->span, "the instance is made here");
  help(d, "to refer to the instance, use a label that differs from all layers' names: '%s_0: ...'", name);
}

static Instance *instance_new(Frame *f, Name name, const Layer *layer, Span span) {
  Instance *i = alloc(sizeof *i), *parent = f->instance;
  *i = (Instance){.name = name,
                  .layer = layer,
                  .parent = parent,
                  .span = span,
                  .seen = parent->calls,
                  .numbered_in = parent->calls,
                  .number = 1};
  i->path = parent->path[0] ? internf("%s.%s", parent->path, name) : name;
  if (!parent->children.n)
    parent->by_name = parent->by_stem = (Table){.key_bytes = sizeof name};
  push(&parent->children, i);
  table_add(&parent->by_name, &name, i);
  add_stems(parent, i);
  return i;
}

static Instance *duplicate(const Elaborator *e, Frame *f, Name name, const Ast *call, const Ast *label,
                           const Instance *other) {
  Diagnostic *d =
      fail(f, label ? label->span : call->span, "PD0103", "an instance named '%s' already exists", name);
  note_at(d, other->span, "the first one is here");
  Name stem = intern_n(name, strcspn(name, "."));
  if (label && layer_find(e, name))
    help(d, "use another label");
  else if (label)
    help(d, "use another label, or call '%s(...)' to share the first instance's parameters", name);
  else if (f->counter)
    help(d, "use a label with the loop counter: '%s[%s]: %s'", stem, f->counter, ast_text(call));
  else
    help(d, "use a label: '%s_2: %s'", stem, ast_text(call));
  return NULL;
}

/* Whether the call owns parameters: its layer does, or a layer passed as an argument. */
static bool call_owns_params(const Elaborator *e, const Layer *layer, const Ast *call, const Val *args) {
  bool owns = layer_owns_params(e, layer);
  for (int i = 0; i < call->list.n; i++)
    owns = owns || (args[i].kind == VAL_LAYER && args[i].layer && layer_owns_params(e, args[i].layer));
  return owns;
}

/* The instance that this call creates, or reuses in a repeated call of its parent. NULL after a diagnostic. */
static Instance *instance_for(Elaborator *e, Frame *f, const Layer *layer, const Ast *call, const Val *args,
                              const Ast *label, Name hint) {
  bool owns = call_owns_params(e, layer, call, args);
  Name name = layer->name;
  NamedBy named_by = label ? NAMED_BY_LABEL : NAMED_BY_LAYER;
  if (label && !(name = label_text(e, f, label)))
    return NULL;
  if (!label && owns && hint && !variable_find(f, hint) && !instance_made(f, hint)) {
    name = hint;
    named_by = NAMED_BY_VARIABLE;
  }
  Instance *same = child_named(f->instance, name), *first = same;
  if (first && first->numbered_in != f->instance->calls) {
    first->numbered_in = f->instance->calls;
    first->number = 1;
  }
  while (!label && !owns && same && same->seen == f->instance->calls)
    same = child_named(f->instance, name = internf("%s_%d", layer->name, ++first->number));
  if (same && (same->seen == f->instance->calls || same->layer != layer))
    return duplicate(e, f, name, call, label, same);
  if (!same)
    same = instance_new(f, name, layer, call->span);
  same->seen = f->instance->calls;
  same->named_by = named_by;
  return same;
}

/* ---- arguments of layers ------------------------------------------------------------------- */

typedef struct Given {
  Val val;
  Span span;
  bool given;
} Given;

char *layer_signature(const Layer *l, bool defaults) {
  enum { WIDE = 100 };
  Text t = {0};
  text_add(&t, "%s(", l->name);
  for (int i = 0; i < l->ast->list.n; i++) {
    const Ast *a = l->ast->list.at[i];
    text_add(&t, "%s%s", i ? ", " : "", a->name);
    for (int k = 0; k < a->list.n; k++)
      text_add(&t, "%s%s", k ? ", " : "[", ast_text(a->list.at[k]));
    if (a->list.n)
      text_add(&t, "]");
    if (a->a && defaults)
      text_add(&t, " = %s", ast_text(a->a));
  }
  text_add(&t, ")");
  return defaults && t.n > WIDE ? layer_signature(l, false) : t.at;
}

static bool match_arguments(Frame *f, const Layer *l, const Ast *call, const Val *args, Given *given) {
  int n = l->ast->list.n;
  for (int i = 0; i < call->list.n; i++) {
    const Ast *a = call->list.at[i];
    int which = a->name ? table_number(&l->formals, &a->name) : i;
    if (which >= 0 && which < n && !given[which].given) {
      given[which] = (Given){args[i], a->a->span, true};
      continue;
    }
    Diagnostic *d;
    if (which >= n) {
      d = fail(f, a->span, "PD0204", "too many arguments for '%s'", l->name);
    } else if (which >= 0) {
      d = fail(f, a->span, "PD0206", "'%s' is given twice", a->name);
    } else {
      d = fail(f, a->span2, "PD0203", "'%s' has no argument '%s'", l->name, a->name);
      const char **names = alloc((size_t)(n + 1) * sizeof *names);
      for (int k = 0; k < n; k++)
        names[k] = l->ast->list.at[k]->name;
      const char *like = nearest(a->name, names, n);
      if (like)
        help(d, "did you mean '%s'?", like);
    }
    if (a->name && which < 0)
      advise(d, a->name);
    help(d, "its signature is '%s'", layer_signature(l, true));
    return false;
  }
  return true;
}

static bool dims_fail(Elaborator *e, const Frame *inner, const Ast *formal, const Given *g, int axis,
                      int64_t wanted) {
  const Value *v = &e->g->values.at[g->val.value];
  Text t = {0};
  for (int i = 0; i < formal->list.n; i++)
    text_add(&t, "%s%s", i ? ", " : "", ast_text(formal->list.at[i]));
  Diagnostic *d = fail(inner->caller, g->span, "PD0320", "'%s' needs %s[%s], but gets a tensor of shape %s",
                       inner->layer->name, formal->name, t.n ? t.at : "", shape_text(&v->shape));
  if (axis >= 0)
    note_at(d, formal->span, "axis %d must be %lld here", axis, (long long)wanted);
  note_at(d, v->span, "the tensor comes from here");
  return false;
}

/* Binds the dimension names of x[.., width] to sizes, or compares bound names. */
static bool bind_dims(Elaborator *e, Frame *inner, const Ast *formal, const Given *g) {
  if (g->val.kind != VAL_TENSOR) {
    fail(inner->caller, g->span, "PD0207", "'%s' of '%s' must be a tensor, but is %s", formal->name,
         inner->layer->name, val_kind(e, g->val));
    return false;
  }
  Shape s = e->g->values.at[g->val.value].shape;
  int n = formal->list.n;
  bool leading =
      n > 0 && formal->list.at[0]->kind == AST_RANGE && !formal->list.at[0]->a && !formal->list.at[0]->b;
  if (leading ? s.rank < n - 1 : s.rank != n)
    return dims_fail(e, inner, formal, g, -1, 0);
  for (int i = leading; i < n; i++) {
    const Ast *dim = formal->list.at[i];
    int axis = s.rank - n + i;
    if (dim->kind == AST_RANGE) {
      help(fail(inner, dim->span, "PD0321", "'..' must be the first size of a signature"), "write 'x[.., width]'");
      return false;
    }
    int64_t wanted;
    if (dim->kind == AST_NAME && !variable_find(inner, dim->name)) {
      variable_declare(inner, dim->name, val_number((double)s.dim[axis]), false, dim->span);
      continue;
    }
    if (!want_size(e, inner, evaluate(e, inner, dim), dim->span, &wanted))
      return false;
    if (wanted != s.dim[axis])
      return dims_fail(e, inner, formal, g, axis, wanted);
  }
  return true;
}

/* Declares the arguments in the new frame. A repeated call inherits missing attributes from the instance's first
 * call. */
static bool bind_arguments(Elaborator *e, Frame *inner, const Ast *call, Given *given) {
  const AstList formals = inner->layer->ast->list;
  Instance *instance = inner->instance;
  bool again = instance->attribute != NULL;
  if (!again)
    instance->attribute = alloc((size_t)formals.n * sizeof *instance->attribute);
  for (int i = 0; i < formals.n; i++) {
    const Ast *formal = formals.at[i];
    Given *g = &given[i];
    if (!g->given && again && !formal->dims && instance->attribute[i].kind != VAL_TENSOR &&
        instance->attribute[i].kind != VAL_POISON)
      *g = (Given){instance->attribute[i], formal->span, true};
    if (!g->given && formal->a)
      *g = (Given){evaluate(e, inner, formal->a), formal->a->span, true};
    if (!g->given) {
      Diagnostic *d = fail(inner->caller, call->span, "PD0205", "'%s' needs its argument '%s'", inner->layer->name,
                           formal->name);
      help(d, "its signature is '%s'", layer_signature(inner->layer, true));
      return false;
    }
    if (g->val.kind == VAL_POISON)
      return false;
    if (formal->dims && !bind_dims(e, inner, formal, g))
      return false;
    variable_declare(inner, formal->name, g->val, false, g->span);
    if (!again)
      instance->attribute[i] = g->val;
  }
  return true;
}

/* ---- layers -------------------------------------------------------------------------------- */

static bool too_deep(Elaborator *e, const Frame *f, const Layer *layer, Span where) {
  if (f->depth < MAX_INLINED && e->g->scopes.n < MAX_SCOPES)
    return false;
  if (f->depth >= MAX_INLINED)
    error_at(where, "PD0211", "'%s' is called through more than %d layers; check for a layer that calls itself",
             layer->name, MAX_INLINED);
  else
    error_at(where, "PD0211", "the model has more than %d calls of layers", MAX_SCOPES);
  return true;
}

/* Gives values made by a layer the span of its call, for later diagnostics. */
static void comes_from(Elaborator *e, Span call, int values_before) {
  for (int i = values_before; i < e->g->values.n; i++)
    if (e->g->nodes.at[e->g->values.at[i].node].op->kind != OP_SOURCE)
      e->g->values.at[i].span = call;
}

static Val inline_layer(Elaborator *e, Frame *f, Instance *instance, const Ast *call, const Val *args) {
  if (instance->poisoned)
    return POISON;
  const Layer *layer = instance->layer;
  Given *given = alloc((size_t)(layer->ast->list.n + 1) * sizeof *given);
  instance->poisoned = true; /* until arguments are bound */
  if (too_deep(e, f, layer, call->span) || !match_arguments(f, layer, call, args, given))
    return POISON;
  Frame inner = {.caller = f,
                 .layer = layer,
                 .instance = instance,
                 .depth = f->depth + 1,
                 .call = call->span,
                 .doubtful = e->incomplete};
  inner.scope = graph_scope(e->g, f->scope, instance->path, layer->name, call->span);
  e->g->scopes.at[inner.scope].standard = layer->standard;
  instance->calls++;
  if (!bind_arguments(e, &inner, call, given))
    return POISON;
  instance->poisoned = false;
  int before = e->g->values.n;
  run_block(e, &inner, layer->ast->a);
  comes_from(e, call->span, before);
  if (inner.returned)
    return inner.result;
  if (!inner.doubtful) {
    Diagnostic *d = fail(&inner, layer->ast->span2, "PD0112", "the layer '%s' returns nothing", layer->name);
    help(d, "end it with 'return ...;'");
  }
  return POISON;
}

/* Marks the label of a call with a reported error, to suppress later reports of its uses. */
static Val spoiled(Elaborator *e, Frame *f, const Ast *call, const Ast *label) {
  Name name = label ? label_text(e, f, label) : NULL;
  if (name && !instance_made(f, name)) {
    Instance *i = child_named(f->instance, name); /* may exist from an earlier call of this layer */
    i = i ? i : instance_new(f, name, NULL, call->span);
    i->seen = f->instance->calls;
    i->named_by = NAMED_BY_LABEL;
    i->poisoned = true;
  }
  return POISON;
}

static Val call_layer(Elaborator *e, Frame *f, const Layer *layer, const Ast *call, const Val *args, bool poisoned,
                      const Ast *label, Name hint) {
  Instance *i = instance_for(e, f, layer, call, args, label, hint);
  if (!i)
    return POISON;
  if (poisoned) {
    i->poisoned = true;
    return POISON;
  }
  return inline_layer(e, f, i, call, args);
}

static Val unlabelled(Frame *f, const Ast *label, const char *what) {
  help(fail(f, label->span, "PD0107", "only instances of layers can have a label, and %s is not a layer", what),
       "leave the label out");
  return POISON;
}

static Val call_named(Elaborator *e, Frame *f, const Ast *call, const Val *args, bool poisoned, const Ast *label,
                      Name hint) {
  Name name = call->a->name;
  Variable *v = variable_find(f, name);
  const Layer *layer;
  const Op *op;
  bool known = find_callable(e, f, name, &layer, &op) || builtin_known(name);
  bool handed = v && (v->val.kind == VAL_LAYER || v->val.kind == VAL_INSTANCE);
  if (known && !handed && !label)
    warn_of_label(e, f, name, call->a->span);
  if (layer == f->layer)
    layer = NULL; /* a layer cannot call itself */
  if (v && v->val.kind == VAL_LAYER) {
    layer = v->val.layer;
    op = v->val.op;
    name = v->val.word;
  }
  Instance *instance = v && v->val.kind == VAL_INSTANCE ? v->val.instance : instance_find(f, name);
  if (v && v->val.kind == VAL_INSTANCE)
    layer = NULL, op = NULL;
  if (layer)
    return call_layer(e, f, layer, call, args, poisoned, label, hint);
  if (label && (op || instance || builtin_known(name)))
    return unlabelled(f, label, format("'%s'", name));
  if (poisoned)
    return spoiled(e, f, call, label);
  bool tensors = false;
  for (int i = 0; i < call->list.n; i++)
    tensors |= args[i].kind == VAL_TENSOR;
  if (builtin_known(name) && (!op || !tensors))
    return builtin_call(e, f, name, call, args);
  if (op)
    return call_op(e, f, op, call, args);
  if (instance) {
    assignment_read(f, name);
    return inline_layer(e, f, instance, call, args);
  }
  if (f->layer && name == f->layer->name) {
    fail(f, call->a->span, "PD0107", "the layer '%s' cannot call itself", name);
  } else if (v) {
    if (v->val.kind != VAL_POISON)
      fail(f, call->a->span, "PD0107", "'%s' is %s and cannot be called", name, val_kind(e, v->val));
  } else if (!f->doubtful) {
    suggest_callable(e, f, fail(f, call->a->span, "PD0102", "unknown layer '%s'", name), name);
  }
  return spoiled(e, f, call, label);
}

Val evaluate_call(Elaborator *e, Frame *f, const Ast *call, const Ast *label) {
  Name hint = f->result_hint;
  f->result_hint = NULL;
  Val *args = alloc((size_t)(call->list.n + 1) * sizeof *args);
  bool poisoned = false;
  for (int i = 0; i < call->list.n; i++) {
    args[i] = evaluate(e, f, call->list.at[i]->a);
    if (call->list.at[i]->text) {
      help(fail(f, call->list.at[i]->span, "PD0116", "only the arguments of a scan are written with 'in'"),
           "a loop over time: 'y, h_n = scan(x_t in x, h = h_0) { h = ...; return h; }'");
      args[i] = POISON;
    }
    poisoned |= args[i].kind == VAL_POISON;
  }
  if (call->a->kind == AST_NAME)
    return call_named(e, f, call, args, poisoned, label, hint);
  Val callee = evaluate(e, f, call->a);
  if (callee.kind == VAL_POISON || poisoned)
    return spoiled(e, f, call, label);
  if (label)
    return unlabelled(f, label, format("'%s'", ast_text(call->a)));
  if (callee.kind == VAL_INSTANCE)
    return inline_layer(e, f, callee.instance, call, args);
  fail(f, call->a->span, "PD0107", "this is %s and cannot be called", val_kind(e, callee));
  return POISON;
}
