/* Completion. Works on the tokens before a place, because incomplete text rarely parses. */
#include <string.h>

#include "lsp/internal.h"
#include "ops/op.h"
#include "optimizers/lr_schedule.h"
#include "schedule/program.h"

/* CompletionItemKind of the protocol. */
enum {
  ITEM_FUNCTION = 3,
  ITEM_VARIABLE = 6,
  ITEM_MODULE = 9,
  ITEM_PROPERTY = 10,
  ITEM_VALUE = 12,
  ITEM_KEYWORD = 14
};

typedef struct Spot {
  const Tokens *tokens;
  int n;          /* tokens before the incomplete one */
  Name item;      /* "layer", "model", "train", "cluster"; NULL: between items */
  int item_start; /* its first token */
  Name callee;    /* of the innermost open call */
  int call;       /* the first token after its bracket */
  int depth;      /* open blocks */
} Spot;

static bool is(const Spot *p, int i, const char *text) {
  return i >= 0 && i < p->n && !strcmp(p->tokens->at[i].text, text);
}

static void leave_out_comments(const Tokens *all, Position at, Tokens *words) {
  for (int i = 0; i < all->n; i++) {
    const Token *t = &all->at[i];
    bool before = t->span.line < at.line || (t->span.line == at.line && t->span.end_column <= at.column);
    bool touched = t->span.end_line == at.line && t->span.end_column == at.column && t->kind == TOKEN_NAME;
    if (t->kind != TOKEN_COMMENT && before && !touched)
      push(words, *t);
  }
}

static Spot find_spot(const Tokens *words) {
  Spot p = {.tokens = words, .n = words->n};
  Ints open = {0}; /* round brackets */
  for (int i = 0; i < p.n; i++) {
    bool starts = p.depth == 0 && (i == 0 || is(&p, i - 1, ";") || is(&p, i - 1, "}"));
    if (starts)
      p.item = intern(words->at[i].text), p.item_start = i, open.n = 0;
    if (is(&p, i, "{"))
      p.depth++, open.n = 0;
    else if (is(&p, i, "}"))
      p.depth -= p.depth > 0, open.n = 0;
    else if (is(&p, i, ";"))
      open.n = 0;
    else if (is(&p, i, "("))
      push(&open, i);
    else if (is(&p, i, ")") && open.n)
      open.n--;
  }
  if (p.depth == 0 && (is(&p, p.n - 1, "}") || is(&p, p.n - 1, ";") || !p.n))
    p.item = NULL;
  if (open.n && open.at[open.n - 1] > 0) {
    p.call = open.at[open.n - 1] + 1;
    p.callee = intern(words->at[p.call - 2].text);
  }
  return p;
}

typedef struct Items {
  cJSON *list;
  Table labels; /* labels of the list, by name */
} Items;

/* Adds an item unless the label exists. */
static void add(Items *items, const char *label, int kind, const char *detail, const char *comment) {
  const Name name = intern(label);
  if (table_find(&items->labels, &name))
    return;
  cJSON *one = cJSON_CreateObject();
  cJSON_AddStringToObject(one, "label", label);
  cJSON_AddNumberToObject(one, "kind", kind);
  if (detail)
    cJSON_AddStringToObject(one, "detail", detail);
  if (comment && *comment)
    cJSON_AddStringToObject(one, "documentation", comment);
  cJSON_AddItemToArray(items->list, one);
  table_add(&items->labels, &name, one);
}

static void add_all(Items *items, const char *const *names, int kind) {
  for (; *names; names++)
    add(items, *names, kind, NULL, NULL);
}

/* ---- settings ------------------------------------------------------------------------------------ */

static void add_optimizer_arguments(Items *items, Name optimizer) {
  for (int i = 0; all_optimizers[i]; i++) {
    const Optimizer *o = all_optimizers[i];
    if (strcmp(o->name, optimizer))
      continue;
    add(items, "lr", ITEM_PROPERTY, NULL, NULL);
    for (int k = 0; k < MAX_OPTIMIZER_ARGUMENTS && o->argument[k].name; k++)
      add(items, o->argument[k].name, ITEM_PROPERTY, NULL, NULL);
    add(items, "decay", ITEM_PROPERTY, NULL, NULL);
  }
  for (int i = 0; all_lr_schedules[i]; i++)
    for (int k = 0; k < MAX_LR_ARGUMENTS && !strcmp(all_lr_schedules[i]->name, optimizer) &&
                    all_lr_schedules[i]->argument[k].name;
         k++)
      add(items, all_lr_schedules[i]->argument[k].name, ITEM_PROPERTY, NULL, NULL);
}

static void add_values(Items *items, const char *setting) {
  int n;
  const char *const *schedules = schedule_names(&n);
  for (int i = 0; !strcmp(setting, "pipeline") && i < n; i++)
    if (!schedule_traits(intern(schedules[i])).forward_only)
      add(items, schedules[i], ITEM_VALUE, NULL, NULL);
  for (int i = 0; !strcmp(setting, "optimizer") && all_optimizers[i]; i++)
    add(items, all_optimizers[i]->name, ITEM_FUNCTION, NULL, NULL);
  for (int i = 0; !strcmp(setting, "lr_schedule") && all_lr_schedules[i]; i++)
    add(items, all_lr_schedules[i]->name, ITEM_FUNCTION, all_lr_schedules[i]->example, NULL);
}

static void complete_training(Items *items, const Spot *p) {
  if (p->callee)
    add_optimizer_arguments(items, p->callee);
  else if (is(p, p->n - 1, "="))
    add_values(items, p->tokens->at[p->n - 2].text);
  else if (is(p, p->n - 1, ";") || is(p, p->n - 1, "{") || is(p, p->n - 1, "}")) {
    add_all(items, train_setting_names, ITEM_PROPERTY);
    add(items, "freeze", ITEM_KEYWORD, NULL, NULL);
    add(items, "train_only", ITEM_KEYWORD, NULL, NULL);
    add(items, "group", ITEM_KEYWORD, NULL, NULL);
  }
}

static void complete_cluster(Items *items) {
  static const char *const names[] = {"device",   "level",     "kind",      "memory",           "peak",
                                      "peak_f32", "peak_tf32", "peak_bf16", "memory_bandwidth", "efficiency",
                                      "count",    "bandwidth", "latency",   "devices",          "device_bandwidth",
                                      NULL};
  add_all(items, names, ITEM_PROPERTY);
}

/* ---- layers and models ---------------------------------------------------------------------------- */

/* Adds the callee's arguments that the call still lacks. */
static void add_arguments(Items *items, const Analysis *a, const Spot *p) {
  const Ast *layer = p->callee ? layer_seen(a, p->callee) : NULL;
  Table given = {.key_bytes = sizeof(Name)};
  for (int k = p->call; layer && k + 1 < p->n; k++) {
    const Name name = intern(p->tokens->at[k].text);
    if (is(p, k + 1, "="))
      table_set(&given, &name, items);
  }
  for (int i = 0; layer && i < layer->list.n; i++) {
    const Ast *formal = layer->list.at[i];
    if (!table_find(&given, &formal->name))
      add(items, format("%s = ", formal->name), ITEM_PROPERTY,
          formal->a ? format("%s", ast_text(formal->a)) : NULL, NULL);
  }
  const Op *op = p->callee ? op_find(p->callee) : NULL;
  for (int k = 0; op && k < MAX_OPTIONAL && op->optional[k]; k++)
    add(items, format("%s = ", op->optional[k]), ITEM_PROPERTY, op->signature, NULL);
  for (int k = 0; op && k < MAX_ATTR && op->attr[k].name; k++)
    if (op->attr[k].name[0] != '$')
      add(items, format("%s = ", op->attr[k].name), ITEM_PROPERTY, op->signature, NULL);
}

static void add_callables(Items *items, const Analysis *a) {
  for (int i = 0; i < a->layers.n; i++)
    add(items, a->layers.at[i]->name, ITEM_FUNCTION, layer_text(a->layers.at[i]), layer_comment(a->layers.at[i]));
  for (int i = 0; i < n_ops; i++)
    if (!all_ops[i]->internal)
      add(items, all_ops[i]->name, ITEM_FUNCTION, all_ops[i]->signature, NULL);
  add_all(items, builtin_names, ITEM_FUNCTION);
}

/* Adds names used earlier in the item: arguments, declared and assigned names, labels. */
static void add_names(Items *items, const Spot *p) {
  for (int i = p->item_start + 2; i < p->n; i++)
    if (p->tokens->at[i].kind == TOKEN_NAME && !is(p, i - 1, ".") && !is(p, i + 1, "("))
      add(items, p->tokens->at[i].text, ITEM_VARIABLE, NULL, NULL);
}

static void complete_body(Items *items, const Analysis *a, const Spot *p) {
  static const char *const statements[] = {"if", "for", "require", "expect", NULL};
  static const char *const of_layers[] = {"param", "buffer", "return", NULL};
  static const char *const of_models[] = {"input", "target", "loss", "metric", "output", "param", "buffer", NULL};
  if (p->depth && (is(p, p->n - 1, ";") || is(p, p->n - 1, "{") || is(p, p->n - 1, "}"))) {
    add_all(items, statements, ITEM_KEYWORD);
    add_all(items, strcmp(p->item, "layer") ? of_models : of_layers, ITEM_KEYWORD);
  }
  add_arguments(items, a, p);
  add_names(items, p);
  add_callables(items, a);
}

cJSON *complete(const Analysis *a, Position at) {
  static const char *const starts[] = {"use", "layer", "model", "train", "cluster", NULL};
  Items all = {.list = cJSON_CreateArray(), .labels.key_bytes = sizeof(Name)};
  Tokens words = {0};
  leave_out_comments(&a->tokens, at, &words);
  Spot p = find_spot(&words);
  if (!p.item)
    add_all(&all, starts, ITEM_KEYWORD);
  else if (!strcmp(p.item, "use")) {
    Words files = {0};
    standard_files(&files);
    for (int i = 0; i < files.n; i++)
      add(&all, files.at[i], ITEM_MODULE, NULL, NULL);
  } else if (!strcmp(p.item, "train"))
    complete_training(&all, &p);
  else if (!strcmp(p.item, "cluster"))
    complete_cluster(&all);
  else if (!is(&p, p.n - 1, "."))
    complete_body(&all, a, &p);
  return all.list;
}
