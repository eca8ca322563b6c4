/* Inputs and targets: read from files, or made by the loader, from another input's tokens or from random numbers. */
#include "elaborate/internal.h"

#include <math.h>
#include <string.h>

typedef enum {
  ARG_SOURCE = 1, /* an input or target of tokens, declared earlier; always the first argument */
  ARG_TOKEN,      /* a class of the source */
  ARG_IGNORED,    /* a class of the source, or a negative number such as PyTorch's -100, which files may then
                    hold */
  ARG_TOKENS,     /* a list of classes of the source, or a single one */
  ARG_SHARE,      /* a number from 0 to 1 */
  ARG_MEANS,      /* a number per channel, or one for all */
  ARG_DEVIATIONS, /* a positive number per channel, or one for all */
  ARG_CLASSES     /* the number of classes of the input */
} ArgumentKind;

typedef struct Argument {
  const char *name;
  ArgumentKind kind;
  bool required;
  double fallback;
} Argument;

typedef enum { SAME_TOKENS, SAME_NUMBERS, TWO_CLASSES, ONE_LENGTH } Result; /* of an origin with a source */

/* The arguments after the source become the Input's numbers, in this order. */
static const struct Origin {
  const char *name;
  OriginKind kind;
  Result result;
  bool any_rank; /* false: the source must be a sequence */
  const char *signature;
  Argument argument[4];
} origins[] = {
    /* clang-format off */
  {"image", ORIGIN_IMAGE, SAME_NUMBERS, true, "image(mean = 0, std = 1)",
   {{"mean", ARG_MEANS, false, 0}, {"std", ARG_DEVIATIONS, false, 1}}},
  {"lengths", ORIGIN_LENGTHS, ONE_LENGTH, false, "lengths(tokens, pad = 0)",
   {{"tokens", ARG_SOURCE, true, 0}, {"pad", ARG_TOKEN, false, 0}}},
  {"present", ORIGIN_PRESENT, SAME_NUMBERS, false, "present(tokens, pad = 0)",
   {{"tokens", ARG_SOURCE, true, 0}, {"pad", ARG_TOKEN, false, 0}}},
  {"counted", ORIGIN_COUNTED, SAME_NUMBERS, true, "counted(tokens, ignore = 0)",
   {{"tokens", ARG_SOURCE, true, 0}, {"ignore", ARG_IGNORED, false, 0}}},
  {"shifted", ORIGIN_SHIFTED, SAME_TOKENS, false, "shifted(tokens, first)",
   {{"tokens", ARG_SOURCE, true, 0}, {"first", ARG_TOKEN, true, 0}}},
  {"segments", ORIGIN_SEGMENTS, TWO_CLASSES, false, "segments(tokens, separator, pad = 0)",
   {{"tokens", ARG_SOURCE, true, 0}, {"separator", ARG_TOKEN, true, 0}, {"pad", ARG_TOKEN, false, 0}}},
  {"masked", ORIGIN_MASKED, SAME_TOKENS, true, "masked(tokens, mask, share = 0.15, special = [])",
   {{"tokens", ARG_SOURCE, true, 0},
    {"mask", ARG_TOKEN, true, 0},
    {"share", ARG_SHARE, false, 0.15},
    {"special", ARG_TOKENS, false, -1}}},
  {"chosen", ORIGIN_CHOSEN, SAME_NUMBERS, true, "chosen(masked)", {{"masked", ARG_SOURCE, true, 0}}},
  {"normal_noise", ORIGIN_NORMAL_NOISE, SAME_NUMBERS, true, "normal_noise", {{0}}},
  {"uniform_noise", ORIGIN_UNIFORM_NOISE, SAME_NUMBERS, true, "uniform_noise", {{0}}},
  {"random_int", ORIGIN_RANDOM_INT, SAME_NUMBERS, true, "random_int(classes)", {{"classes", ARG_CLASSES, true, 0}}},
    /* clang-format on */
};
enum { N_ORIGINS = sizeof origins / sizeof *origins, MAX_ARGUMENTS = 4 };

enum { MOST_CHANNELS = 65536 }; /* each channel stores its own numbers */

/* An input under declaration: its name, shape and type. */
typedef struct Declared {
  const struct Origin *origin; /* NULL: token(classes) or f32 */
  const Ast *ast;
  Shape shape;
  bool shaped;     /* false: the shape was already reported */
  int64_t classes; /* 0: numbers */
  int from;
  Vec(double) numbers;
} Declared;

static bool has_source(const struct Origin *o) { return o->argument[0].kind == ARG_SOURCE; }

/* ---- arguments ----------------------------------------------------------------------------- */

static int count_arguments(const struct Origin *o) {
  int n = 0;
  while (n < MAX_ARGUMENTS && o->argument[n].name)
    n++;
  return n;
}

/* Assigns the call's arguments to `given`, indexed as the origin's arguments; NULL: absent. */
static bool deal_arguments(Frame *f, const struct Origin *o, const Ast *call, const Ast **given) {
  const char *names[MAX_ARGUMENTS];
  int n = count_arguments(o);
  for (int i = 0; i < n; i++)
    names[i] = o->argument[i].name;
  const int n_given = call->kind == AST_CALL ? call->list.n : 0;
  for (int i = 0; i < n_given; i++) {
    const Ast *a = call->list.at[i];
    int which = a->name ? 0 : i;
    while (a->name && which < n && strcmp(names[which], a->name) != 0)
      which++;
    if (which < n && !given[which]) {
      given[which] = a->a;
      continue;
    }
    Diagnostic *d = which < n ? fail(f, a->span, "PD0206", "'%s' is given twice", names[which])
                    : a->name ? fail(f, a->span2, "PD0203", "'%s' has no argument '%s'", o->name, a->name)
                              : fail(f, a->span, "PD0204", "too many arguments for '%s'", o->name);
    const char *like = a->name && which >= n ? nearest(a->name, names, n) : NULL;
    if (like)
      help(d, "did you mean '%s'?", like);
    help(d, "its signature is '%s'", o->signature);
    return false;
  }
  for (int i = 0; i < n; i++) {
    if (given[i] || !o->argument[i].required)
      continue;
    help(fail(f, call->span, "PD0205", "'%s' needs '%s'", o->name, o->argument[i].name), "its signature is '%s'",
         o->signature);
    return false;
  }
  return true;
}

static int input_of(const Graph *g, Val v) {
  for (int i = 0; i < g->inputs.n; i++)
    if (v.kind == VAL_TENSOR && g->inputs.at[i].value == v.value)
      return i;
  return -1;
}

static bool read_source(Elaborator *e, Frame *f, Declared *d, const Ast *a) {
  Val v = evaluate(e, f, a);
  if (v.kind == VAL_POISON)
    return false;
  d->from = input_of(e->g, v);
  const struct Origin *o = d->origin;
  const Value *x = d->from < 0 ? NULL : &e->g->values.at[v.value];
  if (!x || x->type != TYPE_TOKEN) {
    fail(f, a->span, "PD0217", "'%s' needs an input or target of tokens that is declared above, not %s", o->name,
         val_kind(e, v));
    return false;
  }
  if (o->kind == ORIGIN_CHOSEN && e->g->inputs.at[d->from].origin != ORIGIN_MASKED) {
    help(fail(f, a->span, "PD0217",
              "'chosen' needs an input that 'masked' computes, and '%s' is not computed by 'masked'", x->name),
         "use 'counted(tokens, ignore)' to count all positions without the token 'ignore'");
    return false;
  }
  if (o->any_rank || x->shape.rank == 1)
    return true;
  fail(f, a->span, "PD0217", "'%s' needs a sequence, but '%s' has shape %s", o->name, x->name,
       shape_text(&x->shape));
  return false;
}

static bool read_token(Elaborator *e, Frame *f, Declared *d, const char *name, Val v, Span where) {
  int64_t token, classes = e->g->values.at[e->g->inputs.at[d->from].value].classes;
  if (!want_whole(e, f, v, where, format("'%s'", name), &token))
    return false;
  push(&d->numbers, (double)token);
  if (token >= 0 && token < classes)
    return true;
  fail(f, where, "PD0208", "'%s' must be one of the %lld tokens of '%s', but is %lld", name, (long long)classes,
       e->g->inputs.at[d->from].name, (long long)token);
  return false;
}

static bool read_ignored(Elaborator *e, Frame *f, Declared *d, const char *name, Val v, Span where) {
  const Input *from = &e->g->inputs.at[d->from];
  if (v.kind != VAL_NUMBER || v.number >= 0 || v.number < INT32_MIN || v.number != floor(v.number))
    return read_token(e, f, d, name, v, where);
  push(&d->numbers, v.number);
  if (from->origin == ORIGIN_FILE)
    return true;
  Diagnostic *wrong =
      fail(f, where, "PD0208", "'%s' is %.15g, but '%s' is computed and no file can contain that token", name,
           v.number, from->name);
  if (from->from >= 0)
    help(wrong, "count the tokens of '%s'", e->g->inputs.at[from->from].name);
  return false;
}

static bool read_tokens(Elaborator *e, Frame *f, Declared *d, const char *name, Val v, Span where) {
  if (v.kind != VAL_LIST)
    return read_token(e, f, d, name, v, where);
  for (int i = 0; i < v.n; i++)
    if (!read_token(e, f, d, name, v.list[i], where))
      return false;
  return true;
}

static bool read_share(Elaborator *e, Frame *f, Declared *d, const char *name, Val v, Span where) {
  double x;
  if (!want_number(e, f, v, where, format("'%s'", name), &x))
    return false;
  push(&d->numbers, x);
  if (x >= 0 && x <= 1)
    return true;
  fail(f, where, "PD0202", "'%s' must be from 0 to 1, but is %.15g", name, x);
  return false;
}

static bool read_channels(Elaborator *e, Frame *f, Declared *d, const Argument *to, Val v, Span where) {
  int64_t channels = d->shape.dim[0];
  if (v.kind == VAL_LIST && v.n != channels) {
    fail(f, where, "PD0217", "'%s' has %d number%s for %lld channel%s", to->name, v.n, v.n == 1 ? "" : "s",
         (long long)channels, channels == 1 ? "" : "s");
    return false;
  }
  const char *what = format("'%s'", to->name);
  for (int i = 0; i < channels; i++) {
    double x;
    if (!want_number(e, f, v.kind == VAL_LIST ? v.list[i] : v, where, what, &x))
      return false;
    push(&d->numbers, x);
    if (to->kind != ARG_DEVIATIONS || x > 0)
      continue;
    fail(f, where, "PD0202", "'%s' must be above 0, but is %.15g", to->name, x);
    return false;
  }
  return true;
}

static bool read_classes(Elaborator *e, Frame *f, Declared *d, Val v, Span where) {
  if (!want_size(e, f, v, where, &d->classes))
    return false;
  if (d->classes <= INT32_MAX)
    return true;
  fail(f, where, "PD0208", "tokens are 32-bit: at most %d classes", INT32_MAX);
  return false;
}

static bool read_argument(Elaborator *e, Frame *f, Declared *d, const Argument *to, const Ast *a) {
  if (to->kind == ARG_SOURCE)
    return read_source(e, f, d, a);
  if (to->kind == ARG_TOKENS && !a)
    return true;
  Val v = a ? evaluate(e, f, a) : val_number(to->fallback);
  Span where = a ? a->span : d->ast->a->span;
  switch (to->kind) {
  case ARG_TOKEN: return read_token(e, f, d, to->name, v, where);
  case ARG_IGNORED: return read_ignored(e, f, d, to->name, v, where);
  case ARG_TOKENS: return read_tokens(e, f, d, to->name, v, where);
  case ARG_SHARE: return read_share(e, f, d, to->name, v, where);
  case ARG_CLASSES: return read_classes(e, f, d, v, where);
  default: return read_channels(e, f, d, to, v, where);
  }
}

/* ---- types --------------------------------------------------------------------------------- */

/* Checks the declared shape against the origin's result, and finds the classes. */
static bool check_result(Elaborator *e, Frame *f, Declared *d) {
  const struct Origin *o = d->origin;
  const Input *from = &e->g->inputs.at[d->from];
  const Value *x = &e->g->values.at[from->value];
  Shape want = x->shape;
  if (o->result == ONE_LENGTH)
    want = (Shape){.batched = true, .rank = 1, .dim = {1}};
  d->classes = o->result == SAME_TOKENS   ? x->classes
               : o->result == TWO_CLASSES ? 2
               : o->result == ONE_LENGTH  ? x->shape.dim[0] + 1
                                          : 0;
  if (shape_equal(&d->shape, &want))
    return true;
  note_at(fail(f, d->ast->span, "PD0217", "'%s' of '%s' has shape %s, but '%s' is declared with %s", o->name,
               from->name, shape_text(&want), d->ast->name, shape_text(&d->shape)),
          from->span, "'%s' is declared here", from->name);
  return false;
}

static bool evaluate_origin(Elaborator *e, Frame *f, Declared *d) {
  const struct Origin *o = d->origin;
  const Ast *given[MAX_ARGUMENTS] = {NULL};
  if (!deal_arguments(f, o, d->ast->a, given) || !d->shaped)
    return false;
  if (o->kind == ORIGIN_IMAGE && d->shape.rank != 3) {
    fail(f, d->ast->span, "PD0217", "an image has the shape [channels, height, width], but '%s' has %s",
         d->ast->name, shape_text(&d->shape));
    return false;
  }
  if (o->kind == ORIGIN_IMAGE && d->shape.dim[0] > MOST_CHANNELS) {
    fail(f, d->ast->span, "PD0217", "an image has at most %d channels, but '%s' has %lld", MOST_CHANNELS,
         d->ast->name, (long long)d->shape.dim[0]);
    return false;
  }
  for (int i = 0; i < count_arguments(o); i++)
    if (!read_argument(e, f, d, &o->argument[i], given[i]))
      return false;
  return !has_source(o) || check_result(e, f, d);
}

/* The name of a type: "token" of "token(classes)", "image" of "image" and "image(mean = 0)"; "" if there is
 * none. */
static Name type_name(const Ast *type) {
  const Ast *name = type->kind == AST_CALL ? type->a : type;
  return name->kind == AST_NAME ? name->name : "";
}

static void tell_types(Frame *f, const Ast *type) {
  Diagnostic *d = fail(f, type->span, "PD0111", "'%s' is not a type of an input", ast_text(type));
  const char *names[N_ORIGINS];
  Text known = {0}, random = {0};
  for (int i = 0; i < N_ORIGINS; i++)
    names[i] = origins[i].name;
  const char *like = nearest(type_name(type), names, N_ORIGINS);
  if (like) {
    help(d, "did you mean '%s'?", like);
    return;
  }
  help(d, "types are 'token(classes)', 'f32' and 'image(mean, std)'");
  for (int i = 1; i < N_ORIGINS; i++) {
    Text *t = has_source(&origins[i]) ? &known : &random;
    const bool last = i + 1 == N_ORIGINS || has_source(&origins[i]) != has_source(&origins[i + 1]);
    text_add(t, "%s'%s'", !t->at ? "" : last ? " and " : ", ", names[i]);
  }
  help(d, "these compute an input from another: %s", known.at);
  help(d, "these make random numbers: %s", random.at);
}

static bool evaluate_type(Elaborator *e, Frame *f, Declared *d) {
  const Ast *type = d->ast->a;
  if (!type || (type->kind == AST_NAME && strcmp(type->name, "f32") == 0))
    return true;
  if (type->kind == AST_CALL && strcmp(type_name(type), "token") == 0 && type->list.n == 1 &&
      !type->list.at[0]->name) {
    const Ast *classes = type->list.at[0]->a;
    return read_classes(e, f, d, evaluate(e, f, classes), classes->span);
  }
  for (int i = 0; i < N_ORIGINS; i++)
    if (strcmp(type_name(type), origins[i].name) == 0) {
      d->origin = &origins[i];
      return evaluate_origin(e, f, d);
    }
  tell_types(f, type);
  return false;
}

const char *input_origin(Name name) {
  for (int i = 0; i < N_ORIGINS; i++)
    if (strcmp(origins[i].name, name) == 0)
      return origins[i].signature;
  return NULL;
}

/* ---- declarations -------------------------------------------------------------------------- */

static Val declare(Elaborator *e, const Declared *d) {
  const Ast *a = d->ast;
  int index = graph_input(e->g, a->name, a->kind == AST_TARGET, d->classes ? TYPE_TOKEN : TYPE_F32, d->classes,
                          d->shape, a->span);
  Input *in = &e->g->inputs.at[index];
  e->inputs.key_bytes = sizeof(Name);
  table_add(&e->inputs, &a->name, (Ast *)a);
  if (d->origin) {
    in->origin = d->origin->kind;
    in->from = d->from;
    for (int i = 0; i < d->numbers.n; i++)
      push(&in->numbers, d->numbers.at[i]);
  }
  return val_tensor(in->value);
}

void run_input(Elaborator *e, Frame *f, const Ast *a) {
  Declared d = {.ast = a, .from = -1};
  if (!only_in_model(f, a, a->kind == AST_TARGET ? "'target'" : "'input'"))
    return;
  const Ast *first = table_find(&e->inputs, &a->name);
  if (first) {
    note_at(fail(f, a->span2, "PD0104", "an input or target named '%s' is already declared", a->name), first->span,
            "the first one is here");
    return;
  }
  d.shaped = evaluate_shape(e, f, a, &d.shape);
  d.shape.batched = true;
  bool good = evaluate_type(e, f, &d) && d.shaped;
  const Variable *had = variable_find(f, a->name);
  if (good || !had || had->val.kind != VAL_POISON) /* report once, even in a loop of thousands of passes */
    variable_declare(f, a->name, good ? declare(e, &d) : POISON, false, a->span);
}
