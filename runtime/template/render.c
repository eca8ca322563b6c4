/* Statements: a template's text. */
#include "internal.h"

#include <string.h>

static void run_body(struct pd_rendering *r, const struct pd_node *n);

static void run_in(struct pd_rendering *r, struct pd_scope *scope, const struct pd_node *body) {
  struct pd_scope *before = r->scope;
  r->scope = scope;
  run_body(r, body);
  r->scope = before;
}

/* The text of a body, in a scope. */
static struct pd_value text_of(struct pd_rendering *r, struct pd_scope *scope, const struct pd_node *body) {
  struct pd_writer w = {.arena = r->arena}, *before = r->out;
  r->out = &w;
  run_in(r, scope, body);
  r->out = before;
  return pd_value_text(pd_written(&w));
}

static struct pd_scope *scope_in(struct pd_rendering *r, struct pd_scope *outer) {
  struct pd_scope *s = pd_arena_alloc(r->arena, sizeof *s);
  s->outer = outer;
  return s;
}

static void set(struct pd_rendering *r, struct pd_text name, struct pd_value v) {
  pd_dict_set(r->arena, &r->scope->variables, name, v);
}

/* ---- macros ---------------------------------------------------------------------------------------- */

/* Sets the macro's parameters from the call's arguments, and defaults in the macro's scope. */
static void bind(struct pd_rendering *r, const struct pd_node *m, const struct pd_node *call,
                 struct pd_scope *to) {
  struct pd_scope *before = r->scope;
  if (call->n > m->n) pd_stop(r, "the macro '%.*s' takes %d arguments", (int)m->name.n, m->name.at, m->n);
  for (int i = 0; i < m->n && !r->failed; i++) {
    const struct pd_node *given = m->items[i];
    for (int j = 0; j < call->n; j++)
      if (call->names[j].n ? pd_texts_equal(call->names[j], m->names[i]) : j == i) given = call->items[j];
    r->scope = given == m->items[i] ? to : before;
    const struct pd_value v = given ? pd_evaluate(r, given) : pd_undefined();
    r->scope = before;
    pd_dict_set(r->arena, &to->variables, m->names[i], v);
  }
  for (int j = 0; j < call->n && !r->failed; j++) {
    bool known = !call->names[j].n;
    for (int i = 0; i < m->n; i++) known |= pd_texts_equal(call->names[j], m->names[i]);
    if (!known)
      pd_stop(r, "the macro '%.*s' takes no argument '%.*s'", (int)m->name.n, m->name.at, (int)call->names[j].n,
              call->names[j].at);
  }
}

struct pd_value pd_call_macro(struct pd_rendering *r, const struct pd_macro *m, const struct pd_node *call) {
  struct pd_scope *scope = scope_in(r, m->scope);
  bind(r, m->node, call, scope);
  return r->failed ? pd_undefined() : text_of(r, scope, m->node->c);
}

/* ---- loops ------------------------------------------------------------------------------------------ */

static bool unpack(struct pd_rendering *r, const struct pd_node *n, struct pd_scope *scope,
                   const struct pd_value *v) {
  if (n->n_names == 1) {
    pd_dict_set(r->arena, &scope->variables, n->names[0], *v);
    return true;
  }
  if (v->kind != PD_LIST || v->list->n != n->n_names)
    return pd_stop(r, "an item of the loop is not %d values", n->n_names), false;
  for (int i = 0; i < n->n_names; i++) pd_dict_set(r->arena, &scope->variables, n->names[i], v->list->at[i]);
  return true;
}

/* The items of the loop, without those that its condition excludes. */
static bool loop_items(struct pd_rendering *r, const struct pd_node *n, struct pd_list *to) {
  struct pd_list all = {0};
  const struct pd_value of = pd_evaluate(r, n->a);
  if (r->failed || !pd_items_of(r, &of, n->b ? &all : to)) return false;
  for (int64_t i = 0; i < all.n; i++) {
    struct pd_scope *scope = scope_in(r, r->scope), *before = r->scope;
    if (!unpack(r, n, scope, &all.at[i])) return false;
    r->scope = scope;
    const struct pd_value v = pd_evaluate(r, n->b);
    r->scope = before;
    if (r->failed) return false;
    if (pd_truth(&v)) pd_list_add(r->arena, to, all.at[i]);
  }
  return true;
}

/* The members of the variable `loop`. */
static struct pd_value loop_at(struct pd_rendering *r, const struct pd_list *items, int64_t i) {
  const struct {
    const char *name;
    struct pd_value value;
  } members[] = {{"index", pd_int(i + 1)},
                 {"index0", pd_int(i)},
                 {"depth", pd_int(1)}, /* of recursive loops, which are refused */
                 {"depth0", pd_int(0)},
                 {"first", pd_true(i == 0)},
                 {"last", pd_true(i == items->n - 1)},
                 {"length", pd_int(items->n)},
                 {"revindex", pd_int(items->n - i)},
                 {"revindex0", pd_int(items->n - i - 1)},
                 {"previtem", i ? items->at[i - 1] : pd_undefined()},
                 {"nextitem", i + 1 < items->n ? items->at[i + 1] : pd_undefined()}};
  struct pd_value loop = pd_value_dict(r->arena);
  for (size_t m = 0; m < sizeof members / sizeof *members; m++)
    pd_dict_set(r->arena, loop.dict, pd_text_of(members[m].name), members[m].value);
  loop.kind = PD_LOOP;
  return loop;
}

static void run_for(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_list items = {0};
  if (!loop_items(r, n, &items)) return;
  for (int64_t i = 0; i < items.n && pd_step(r); i++) {
    struct pd_scope *scope = scope_in(r, r->scope);
    pd_dict_set(r->arena, &scope->variables, pd_text_of("loop"), loop_at(r, &items, i));
    if (!unpack(r, n, scope, &items.at[i])) return;
    run_in(r, scope, n->c);
    const bool ends = r->leaving == PD_BREAKS;
    r->leaving = PD_STAYS;
    if (ends) break;
  }
  if (!items.n && n->d) run_in(r, scope_in(r, r->scope), n->d);
}

/* ---- other statements ------------------------------------------------------------------------------- */

static void run_if(struct pd_rendering *r, const struct pd_node *n) {
  for (; n && n->kind == PD_N_IF; n = n->c) {
    const struct pd_value v = pd_evaluate(r, n->b);
    if (r->failed) return;
    if (pd_truth(&v)) {
      run_body(r, n->a);
      return;
    }
  }
  if (n) run_body(r, n);
}

static void set_member(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_value of = pd_undefined();
  for (struct pd_scope *s = r->scope; s && of.kind == PD_UNDEFINED; s = s->outer) {
    const struct pd_value variables = {.kind = PD_DICT, .dict = &s->variables};
    of = pd_get(r, &variables, n->name);
  }
  const struct pd_value v = pd_evaluate(r, n->a);
  r->line = n->line;
  if (r->failed) return;
  if (of.kind != PD_NAMESPACE)
    pd_stop(r, "'%.*s' is not a namespace", (int)n->name.n, n->name.at);
  else
    pd_dict_set(r->arena, of.dict, n->names[0], v);
}

static void run_generation(struct pd_rendering *r, const struct pd_node *n) {
  const size_t begin = r->text.n;
  if (r->out != &r->text) {
    pd_stop(r, "a generation block in a macro, a set block or another generation block is not supported");
    return;
  }
  const struct pd_value text = text_of(r, scope_in(r, r->scope), n->c);
  if (r->failed) return;
  pd_write(r->out, text.text.at, text.text.n);
  if (r->n_spans == r->room_spans) {
    r->room_spans = r->room_spans ? 2 * r->room_spans : 16;
    struct pd_span *larger = pd_arena_alloc(r->arena, sizeof *larger * (size_t)r->room_spans);
    if (r->n_spans) memcpy(larger, r->span, sizeof *larger * (size_t)r->n_spans);
    r->span = larger;
  }
  r->span[r->n_spans++] = (struct pd_span){begin, r->text.n};
}

static void run_print(struct pd_rendering *r, const struct pd_node *n) {
  const struct pd_value v = pd_evaluate(r, n->a);
  if (!r->failed) pd_write_value(r, r->out, &v);
}

static void run_macro(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_macro *m = pd_arena_alloc(r->arena, sizeof *m);
  *m = (struct pd_macro){n, r->scope};
  set(r, n->name, (struct pd_value){.kind = PD_MACRO, .macro = m});
}

static void run_statement(struct pd_rendering *r, const struct pd_node *n) {
  struct pd_value v;
  switch (n->kind) {
  case PD_N_DATA: pd_write(r->out, n->value.text.at, n->value.text.n); return;
  case PD_N_PRINT: run_print(r, n); return;
  case PD_N_IF: run_if(r, n); return;
  case PD_N_FOR: run_for(r, n); return;
  case PD_N_SET:
    v = pd_evaluate(r, n->a);
    if (!r->failed) set(r, n->name, v);
    return;
  case PD_N_SET_MEMBER: set_member(r, n); return;
  case PD_N_SET_BLOCK:
    v = text_of(r, scope_in(r, r->scope), n->c);
    if (!r->failed) set(r, n->name, v);
    return;
  case PD_N_MACRO: run_macro(r, n); return;
  case PD_N_GENERATION: run_generation(r, n); return;
  default: r->leaving = n->kind == PD_N_BREAK ? PD_BREAKS : PD_CONTINUES; return;
  }
}

static void run_body(struct pd_rendering *r, const struct pd_node *n) {
  if (r->depth == 4 * PD_MOST_DEPTH) {
    pd_stop(r, "blocks are nested too deeply");
    return;
  }
  r->depth++;
  for (int i = 0; i < n->n && r->leaving == PD_STAYS && pd_step(r); i++) {
    r->line = n->items[i]->line;
    run_statement(r, n->items[i]);
  }
  r->depth--;
}

bool pd_template_render(const struct pd_template *t, const struct pd_value *context, struct pd_arena *a,
                        struct pd_rendered *to, char *why) {
  const size_t used = a->used;
  struct pd_scope *given = pd_arena_alloc(a, sizeof *given);
  if (context->kind == PD_DICT) given->variables = *context->dict;
  given->variables.room = given->variables.n; /* the dict stays as it is: a new member moves to new memory */
  struct pd_rendering r = {.arena = a, .text.arena = a, .used = used, .why = why};
  r.scope = scope_in(&r, given);
  r.out = &r.text;
  run_body(&r, t->body);
  *to = (struct pd_rendered){pd_written(&r.text), r.span, r.n_spans, r.beyond};
  return !r.failed;
}
