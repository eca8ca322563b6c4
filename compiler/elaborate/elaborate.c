/* Ast -> Graph: attributes and body of the model, and its required parts. */
#include "elaborate/internal.h"

static void bind_attributes(Elaborator *e, Frame *f) {
  for (int i = 0; i < e->model->list.n; i++) {
    const Ast *formal = e->model->list.at[i], *define = define_take(e, OWNER_MODEL, formal->name);
    if (formal->dims) {
      help(error_at(formal->span, "PD0111", "'%s' is a tensor; a model's arguments are numbers, strings and lists",
                    formal->name),
           "declare a tensor as an input: 'input %s[...];'", formal->name);
      variable_declare(f, formal->name, POISON, false, formal->span);
      continue;
    }
    Val v = POISON;
    if (define || formal->a)
      v = evaluate(e, f, define ? define : formal->a);
    else
      help(error_at(formal->span, "PD0205", "the model's attribute '%s' has no value", formal->name),
           "set a default, '%s = ...', or a value on the command line, '-D %s=...'", formal->name, formal->name);
    variable_declare(f, formal->name, v, false, formal->span);
  }
  e->attributes = alloc_copy(f->variables.at, (size_t)f->variables.n * sizeof *e->attributes);
  e->n_attributes = f->variables.n;
}

static void check_model(const Elaborator *e) {
  int inputs = 0;
  for (int i = 0; i < e->g->inputs.n; i++)
    inputs += !e->g->inputs.at[i].target;
  if (inputs == 0)
    help(error_at(e->model->span, "PD0110", "the model '%s' has no input", e->model->name),
         "declare one: 'input tokens[128] : token(256);'");
  if (e->g->inference && e->g->figures.n > 0)
    return;
  if (e->g->n_losses == 0)
    help(error_at(e->model->span, "PD0110", "the model '%s' has no loss", e->model->name),
         "end the model with a loss such as 'loss cross_entropy(logits, next);'%s",
         e->g->figures.n ? ", or use 'pdc infer', which needs none" : "");
  else if (e->g->params.n == 0)
    help(error_at(e->model->span, "PD0110", "the model '%s' has no parameters: there is nothing to train",
                  e->model->name),
         "use layers with parameters, such as 'linear', or declare one with 'param'");
}

/* Whether the node moves the buffer: the first operand alone is the buffer. */
static bool moves(const Node *n, int buffer) {
  bool moves = n->op->moves_by && n->in[0] == buffer;
  for (int i = 1; i < n->n_in; i++)
    moves &= n->in[i] != buffer;
  return moves;
}

/* A buffer must have one reader: the operation that updates it. */
static void check_buffer(const Graph *g, const Param *p) {
  bool moved = false;
  for (int i = 0; i < p->uses.n; i++) {
    const Node *n = &g->nodes.at[p->uses.at[i]];
    if (moves(n, p->value) && !moved) {
      moved = true;
      continue;
    }
    Diagnostic *d =
        error_at(g->values.at[n->out[0]].span, "PD0340",
                 moves(n, p->value) ? "two operations update the buffer '%s'"
                                    : "only 'running_average' and 'biased_top_k' can read the buffer '%s'",
                 p->name);
    note_at(d, p->span, "the declaration is here");
    return;
  }
  if (!moved)
    help(error_at(p->span, "PD0340", "no 'running_average' uses the buffer '%s'", p->name),
         "call 'running_average(%s, statistic, value)'; validation reads the buffer", p->name);
}

Graph *elaborate(const Ast *file, const ElaborateOptions *options) {
  int errors = error_count();
  Elaborator e = {.options = options, .errors = errors, .looked = file->span.file};
  const char *path = source_path(file->span.file);
  load_module(&e, file, path, true);
  read_defines(&e);
  if (!e.model) {
    help(error_at((Span){file->span.file, 0, 0, 0, 0}, "PD0109", "the file contains no model"),
         "add 'model NAME(...) { ... }'; a file with layers only is read by 'use'");
    return NULL;
  }
  e.g = graph_new(e.model->name);
  e.g->file = intern(path);
  e.g->inference = options->inference;
  Instance model = {.name = intern(""), .path = intern(""), .calls = 1};
  Layer as_layer = {.name = intern(""), .ast = e.model};
  model.layer = &as_layer;
  Frame f = {.instance = &model};
  f.doubtful = e.incomplete;
  f.scope = graph_scope(e.g, -1, model.path, e.model->name, e.model->span);
  bind_attributes(&e, &f);
  run_block(&e, &f, e.model->a);
  train_settings(&e);
  read_frozen(&e);
  check_defines(&e);
  if (error_count() == errors)
    check_model(&e);
  for (int i = graph_n_logged(e.g); i < e.g->figures.n; i++)
    push(&e.shown, e.g->figures.at[i].value);
  if (!e.g->inference) { /* outputs are only checked in training */
    e.g->figures.n -= e.g->n_outputs;
    e.g->n_outputs = 0;
  }
  bool whole = error_count() == errors;
  if (whole) {
    lora_finish(&e);
    freeze_parameters(&e);
    group_parameters(&e);
    find_hidden(&e);
  }
  for (int i = 0; i < e.g->params.n && whole; i++)
    if (e.g->params.at[i].buffer)
      check_buffer(e.g, &e.g->params.at[i]);
  if (error_count() > errors)
    return NULL;
  if (e.g->inference)
    warn_of_defines(&e);
  warn_of_model(&e);
  return make_bodies(e.g) ? e.g : NULL;
}

AstList elaborate_layers(const Ast *file, const ElaborateOptions *options) {
  Elaborator e = {.options = options, .errors = error_count(), .looked = -1};
  load_module(&e, file, source_path(file->span.file), true);
  AstList layers = {0};
  for (int i = 0; i < e.layers.n; i++)
    push(&layers, (Ast *)e.layers.at[i]->ast);
  return layers;
}

char *layer_text(const Ast *layer) { return layer_signature(&(Layer){.name = layer->name, .ast = layer}, true); }
