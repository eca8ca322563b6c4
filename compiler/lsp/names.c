/* Finds the names in a file and resolves each (docs/reference/language.md, "What a name stands for"). */
#include <string.h>

#include "lsp/internal.h"

/* The use of a name, before declarations are known. */
typedef enum { USE_VALUE, USE_CALL, USE_BASE, USE_KNOWN } Use;

typedef struct Walk {
  Mentions found;
  Vec(Use) uses; /* by mention */
  int item;
} Walk;

static void mention(Walk *w, NameKind kind, Name name, Span span, bool declares, Use use) {
  push(&w->found, ((Mention){.kind = kind, .name = name, .span = span, .item = w->item, .declares = declares}));
  push(&w->uses, use);
}

static void walk(Walk *w, const Ast *a);

static void walk_list(Walk *w, AstList list) {
  for (int i = 0; i < list.n; i++)
    walk(w, list.at[i]);
}

/* A declaration; its sizes may be names, bound by arguments. */
static void walk_declaration(Walk *w, const Ast *a) {
  for (int i = 0; i < a->list.n; i++) {
    const Ast *size = a->list.at[i];
    if (a->kind == AST_FORMAL && size->kind == AST_NAME)
      mention(w, NAME_VARIABLE, size->name, size->span, true, USE_KNOWN);
    else
      walk(w, size);
  }
  walk(w, a->a);
  if (a->b) /* the option's name belongs to the language */
    walk(w, a->b->a);
  mention(w, NAME_VARIABLE, a->name, a->span2, true, USE_KNOWN);
}

/* The base name of members and subscripts: `h` of h[0].attn. */
static void walk_base(Walk *w, const Ast *a, bool label) {
  if (a->kind == AST_NAME) {
    mention(w, label ? NAME_LABEL : NAME_UNKNOWN, a->name, a->span, label, label ? USE_KNOWN : USE_BASE);
  } else if (a->kind == AST_MEMBER) {
    walk_base(w, a->a, label);
  } else if (a->kind == AST_INDEX) {
    walk_base(w, a->a, label);
    walk_list(w, a->list);
  } else {
    walk(w, a);
  }
}

static void walk_call(Walk *w, const Ast *a) {
  Name callee = a->a->kind == AST_NAME ? a->a->name : NULL;
  if (callee)
    mention(w, NAME_UNKNOWN, callee, a->a->span, false, USE_CALL);
  else
    walk(w, a->a);
  for (int i = 0; i < a->list.n; i++) {
    const Ast *argument = a->list.at[i];
    if (argument->name) {
      mention(w, NAME_ARGUMENT, argument->name, argument->span2, false, USE_KNOWN);
      w->found.at[w->found.n - 1].callee = callee;
    }
    walk(w, argument->a);
  }
}

/* The arguments of a scan declare variables, except its options. */
static void walk_bindings(Walk *w, const Ast *call) {
  for (int i = 0; call->kind == AST_CALL && i < call->list.n; i++) {
    const Ast *argument = call->list.at[i];
    walk(w, argument->a);
    if (argument->name && strcmp(argument->name, "reverse") != 0 && strcmp(argument->name, "keep") != 0)
      mention(w, NAME_VARIABLE, argument->name, argument->span2, true, USE_KNOWN);
  }
}

static void walk(Walk *w, const Ast *a) {
  if (!a)
    return;
  switch (a->kind) {
  case AST_NAME: mention(w, NAME_UNKNOWN, a->name, a->span, false, USE_VALUE); return;
  case AST_CALL: walk_call(w, a); return;
  case AST_MEMBER: walk_base(w, a, false); return;
  case AST_LABEL:
    walk_base(w, a->a, true);
    walk(w, a->b);
    return;
  case AST_FORMAL:
  case AST_PARAM:
  case AST_BUFFER:
  case AST_INPUT:
  case AST_TARGET: walk_declaration(w, a); return;
  case AST_SCAN:
    walk_bindings(w, a->a);
    walk(w, a->b);
    for (int i = 0; i < a->list.n; i++)
      if (a->list.at[i]->kind == AST_NAME)
        mention(w, NAME_VARIABLE, a->list.at[i]->name, a->list.at[i]->span, true, USE_KNOWN);
    return;
  case AST_ASSIGN:
    walk(w, a->a);
    for (int i = 0; i < a->list.n; i++)
      if (a->list.at[i]->kind == AST_NAME)
        mention(w, NAME_VARIABLE, a->list.at[i]->name, a->list.at[i]->span, true, USE_KNOWN);
    return;
  case AST_FOR:
    walk(w, a->a);
    mention(w, NAME_VARIABLE, a->name, a->span2, true, USE_KNOWN);
    walk(w, a->b);
    return;
  case AST_METRIC:
    walk_list(w, a->list);
    walk(w, a->a);
    return;
  case AST_OUTPUT:
    walk_list(w, a->list);
    if (a->a)
      walk(w, a->a);
    else
      mention(w, NAME_UNKNOWN, a->name, a->span2, false, USE_VALUE);
    return;
  default:
    walk(w, a->a);
    walk(w, a->b);
    walk(w, a->c);
    walk_list(w, a->list);
  }
}

/* Names in settings are the model's attributes; names of optimizers and schedules belong to the language. */
static void walk_training(Walk *w, const AstList *items, const Ast *a) {
  mention(w, NAME_MODEL, a->name, a->span2, false, USE_KNOWN);
  for (int i = 0; i < items->n; i++)
    if (items->at[i]->kind == AST_MODEL && items->at[i]->name == a->name)
      w->item = i;
  for (int i = 0; i < a->list.n; i++) {
    const Ast *setting = a->list.at[i];
    walk(w, setting->a);
    for (int k = 0; setting->kind == AST_GROUP && k < setting->list.n; k++)
      walk(w, setting->list.at[k]->a);
  }
}

static void walk_item(Walk *w, const AstList *items, const Ast *a) {
  switch (a->kind) {
  case AST_USE: mention(w, NAME_FILE, a->name, a->span2, false, USE_KNOWN); break;
  case AST_TRAIN: walk_training(w, items, a); break;
  case AST_LAYER:
  case AST_MODEL:
    mention(w, a->kind == AST_LAYER ? NAME_LAYER : NAME_MODEL, a->name, a->span2, true, USE_KNOWN);
    walk_list(w, a->list);
    walk(w, a->a);
    break;
  default: break;
  }
}

typedef struct Declared {
  Name name;
  int64_t kind, item;
} Declared;

static Table declarations(const Mentions *all) {
  Table t = {.key_bytes = sizeof(Declared)};
  for (int i = 0; i < all->n; i++) {
    const Mention *m = &all->at[i];
    if (m->declares)
      table_set(&t, &(Declared){m->name, m->kind, m->item}, (void *)m);
  }
  return t;
}

static bool is_declared(const Table *all, NameKind kind, const Mention *m) {
  return table_find(all, &(Declared){m->name, kind, m->item});
}

static NameKind kind_of(const Table *declared, const Mention *m, Use use, const Table *layer_of) {
  bool label = is_declared(declared, NAME_LABEL, m);
  if (use == USE_BASE && label)
    return NAME_LABEL;
  if (is_declared(declared, NAME_VARIABLE, m))
    return NAME_VARIABLE;
  return table_find(layer_of, &m->name) ? NAME_LAYER : label ? NAME_LABEL : NAME_UNKNOWN;
}

Mentions mentions_of(const Ast *file, const Table *layer_of) {
  Walk w = {0};
  for (int i = 0; i < file->list.n; i++) {
    w.item = i;
    walk_item(&w, &file->list, file->list.at[i]);
  }
  const Table declared = declarations(&w.found);
  for (int i = 0; i < w.found.n; i++)
    if (w.uses.at[i] != USE_KNOWN)
      w.found.at[i].kind = kind_of(&declared, &w.found.at[i], w.uses.at[i], layer_of);
  return w.found;
}
