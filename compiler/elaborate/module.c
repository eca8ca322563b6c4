/* Files and their layer definitions. */
#include "elaborate/internal.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *standard_directory(void) { return own_folder("stdlib_layers"); }

const Layer *layer_find(const Elaborator *e, Name name) { return table_find(&e->layer_of, &name); }

bool find_callable(const Elaborator *e, const Frame *f, Name name, const Layer **layer, const Op **op) {
  *layer = layer_find(e, name);
  *op = op_find(name);
  if (*op && (*op)->internal)
    *op = NULL;
  if (*layer && *op && *layer == f->layer)
    *layer = NULL; /* in a layer's own body its name means the primitive that it wraps */
  if (*layer)
    *op = NULL;
  return *layer || *op;
}

/* ---- definitions --------------------------------------------------------------------------- */

/* Checks the formal arguments and returns their numbers by name. */
static Table check_formals(const Ast *definition) {
  Table first = {.key_bytes = sizeof(Name)};
  for (int i = 0; i < definition->list.n; i++) {
    const Ast *formal = definition->list.at[i];
    const int number = table_number(&first, &formal->name);
    if (number < 0) {
      table_set_number(&first, &formal->name, i);
      continue;
    }
    const Ast *other = definition->list.at[number];
    Diagnostic *d = error_at(formal->span2, "PD0104", "'%s' already has an argument named '%s'", definition->name,
                             formal->name);
    note_at(d, other->span2, "the first one is here");
  }
  return first;
}

static void define_layer(Elaborator *e, const Ast *a, bool standard) {
  const Op *op = op_find(a->name);
  const Layer *other = layer_find(e, a->name);
  const Table formals = check_formals(a);
  if (other) {
    Diagnostic *d = error_at(a->span2, "PD0104", "a layer named '%s' is already defined", a->name);
    note_at(d, other->ast->span2, "the other layer is here");
    help(d, "layers of all used files share one name space; rename this layer");
  } else if (builtin_known(a->name) || predefined(a->name, &(Val){0}) || (op && !op->internal && !standard)) {
    help(error_at(a->span2, "PD0104", "'%s' is built into the language", a->name), "rename the layer");
  } else {
    Layer *l = alloc(sizeof *l);
    *l = (Layer){.name = a->name, .ast = a, .formals = formals, .standard = standard, .may_own_params = -1};
    push(&e->layers, l);
    e->layer_of.key_bytes = sizeof(Name);
    table_add(&e->layer_of, &l->name, l);
  }
}

static bool only_one(const Ast *had, const Ast *a, const char *what) {
  if (!had)
    return true;
  note_at(error_at(a->span2, "PD0109", "a file contains one %s, and this is the second", what), had->span2,
          "the first one is here");
  return false;
}

/* ---- files --------------------------------------------------------------------------------- */

/* Allocated in the arena; NULL if there is no such file. */
static char *real_path(const char *path) {
  char *real = realpath(path, NULL);
  char *kept = real ? format("%s", real) : NULL;
  free(real);
  return kept;
}

/* Whether `path` is another file than `user`: a file does not use itself, so bert.pdm may use the standard
 * bert.pdm. */
static bool is_other_file(const char *path, const char *user) {
  const char *real = real_path(path), *own = real_path(user);
  return real && !(own && strcmp(real, own) == 0);
}

static char *find_module(const Elaborator *e, const char *user, Name name) {
  const char *slash = strrchr(user, '/');
  char *path = format("%.*s%s.pdm", slash ? (int)(slash - user + 1) : 0, user, name);
  if (source_is_file(user) && is_other_file(path, user))
    return path;
  for (int i = 0; i < e->options->n_include; i++)
    if (is_other_file(path = format("%s/%s.pdm", e->options->include[i], name), user))
      return path;
  path = format("%s/%s.pdm", standard_directory(), name);
  return is_other_file(path, user) ? path : NULL;
}

static int by_name(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void standard_files(Words *names) {
  DIR *d = opendir(standard_directory());
  for (struct dirent *entry; d && (entry = readdir(d));) {
    size_t n = strlen(entry->d_name);
    if (n > 4 && strcmp(entry->d_name + n - 4, ".pdm") == 0)
      push(names, format("%.*s", (int)n - 4, entry->d_name));
  }
  if (d)
    closedir(d);
  if (names->n)
    qsort(names->at, (size_t)names->n, sizeof *names->at, by_name);
}

static void use_module(Elaborator *e, const Ast *use, const char *user) {
  char *path = find_module(e, user, use->name);
  if (!path) {
    e->incomplete = true;
    Diagnostic *d = error_at(use->span2, "PD0108", "cannot find '%s.pdm'", use->name);
    Words names = {0};
    standard_files(&names);
    const char *like = nearest(use->name, names.at, names.n);
    if (like)
      help(d, "did you mean the standard file '%s'?", like);
    const char *beside = source_is_file(user) ? format("the folder of '%s', ", user) : "";
    help(d, "searched: %sthe folders of -I, and %s", beside, standard_directory());
    return;
  }
  Name real = intern(real_path(path));
  for (int i = 0; i < e->files.n; i++)
    if (e->files.at[i] == real)
      return;
  const Ast *file = e->options->read ? e->options->read(e->options->read_context, path) : parse_file(path);
  if (file)
    load_module(e, file, path, false);
  else
    e->incomplete = true;
}

void load_module(Elaborator *e, const Ast *file, const char *path, bool main) {
  char *real = real_path(path), *standard = real_path(standard_directory());
  if (real)
    push(&e->files, intern(real));
  bool is_standard =
      real && standard && strncmp(real, standard, strlen(standard)) == 0 && real[strlen(standard)] == '/';
  Table used = {.key_bytes = sizeof(Name)};
  for (int i = 0; i < file->list.n; i++) {
    Ast *a = file->list.at[i];
    if (a->kind == AST_USE) {
      if (table_find(&used, &a->name))
        continue; /* a repeated 'use' */
      table_add(&used, &a->name, a);
      use_module(e, a, path);
    } else if (a->kind == AST_LAYER)
      define_layer(e, a, is_standard);
    else if (a->kind == AST_MODEL) {
      const Table formals = check_formals(a);
      if (main && only_one(e->model, a, "model")) {
        e->model = a;
        e->formals = formals;
      }
    } else if (a->kind == AST_TRAIN && main && only_one(e->train, a, "training"))
      e->train = a;
  }
}

/* ---- layers that own parameters ------------------------------------------------------------- */

static bool owns(const Elaborator *e, const Ast *a) {
  if (!a)
    return false;
  if (a->kind == AST_PARAM || a->kind == AST_BUFFER)
    return true;
  if (a->kind == AST_CALL && a->a->kind == AST_NAME) {
    const Layer *l = layer_find(e, a->a->name);
    if (l && layer_owns_params(e, l))
      return true;
  }
  if (owns(e, a->a) || owns(e, a->b) || owns(e, a->c))
    return true;
  for (int i = 0; i < a->list.n; i++)
    if (owns(e, a->list.at[i]))
      return true;
  return false;
}

static bool default_owns(const Elaborator *e, const Ast *a) {
  const Layer *l = a && a->kind == AST_NAME ? layer_find(e, a->name) : NULL;
  return l ? layer_owns_params(e, l) : owns(e, a);
}

/* Whether any branch declares parameters, or calls a layer that owns some, or an argument's default does. */
bool layer_owns_params(const Elaborator *e, const Layer *layer) {
  Layer *l = (Layer *)layer;
  if (l->may_own_params == -1) {
    l->may_own_params = -2;
    bool may = owns(e, l->ast->a);
    for (int i = 0; i < l->ast->list.n; i++)
      may = may || default_owns(e, l->ast->list.at[i]->a);
    l->may_own_params = may;
  }
  return l->may_own_params == 1;
}

/* ---- advice -------------------------------------------------------------------------------- */

static const char *standard_module_of(Name layer) {
  Words names = {0};
  standard_files(&names);
  for (int i = 0; i < names.n; i++) {
    char *text = read_file(format("%s/%s.pdm", standard_directory(), names.at[i]), NULL);
    if (text && strstr(text, format("\nlayer %s(", layer)))
      return names.at[i];
  }
  return NULL;
}

void suggest_callable(const Elaborator *e, const Frame *f, Diagnostic *d, Name name) {
  Name snake = snake_case(name);
  const char *module = standard_module_of(snake);
  if (layer_find(e, snake) && snake != name) {
    help(d, "layers have lower-case names: '%s'", snake);
    return;
  }
  if (module) {
    help(d, "the standard file '%s' defines %s: 'use %s;'", module, snake == name ? "it" : format("'%s'", snake),
         module);
    return;
  }
  if (advise(d, name))
    return;
  if (input_origin(name)) {
    help(d, "use it as the type of an input: 'input x[..] : %s;'", input_origin(name));
    return;
  }
  Words names = {0};
  for (int i = 0; i < e->layers.n; i++)
    push(&names, e->layers.at[i]->name);
  int n_layers = names.n;
  for (int i = 0; i < n_ops; i++)
    if (!all_ops[i]->internal)
      push(&names, all_ops[i]->name);
  for (int i = 0; builtin_names[i]; i++)
    push(&names, builtin_names[i]);
  for (int i = 0; i < f->instance->children.n; i++)
    if (f->instance->children.at[i]->named_by != NAMED_BY_LAYER)
      push(&names, f->instance->children.at[i]->name);
  const char *like = nearest(snake, names.at, names.n);
  for (int i = 0; like && i < names.n; i++)
    if (names.at[i] == like) {
      help(d, "%s with a similar name exists: '%s'", i < n_layers ? "a layer" : "an operation", like);
      return;
    }
}
