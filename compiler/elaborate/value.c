/* Compile-time values: their names in diagnostics, conversions and arithmetic. */
#include "elaborate/internal.h"

#include <math.h>
#include <string.h>

const Val POISON = {.kind = VAL_POISON};

Val val_number(double x) { return (Val){.kind = VAL_NUMBER, .number = x}; }
Val val_bool(bool x) { return (Val){.kind = VAL_BOOL, .number = x}; }
Val val_tensor(int value) { return (Val){.kind = VAL_TENSOR, .value = value}; }
Val val_list(ValKind kind, const Val *list, int n) {
  return (Val){.kind = kind, .n = n, .list = alloc_copy(list, (size_t)n * sizeof *list)};
}

const char *val_kind(const Elaborator *e, Val v) {
  switch (v.kind) {
  case VAL_NUMBER: return format("the number %.15g", v.number);
  case VAL_QUANTITY: return format("a quantity in %s", v.word);
  case VAL_BOOL: return v.number != 0 ? "'true'" : "'false'";
  case VAL_WORD: return format("the word '%s'", v.word);
  case VAL_STRING: return format("the string \"%s\"", v.word);
  case VAL_LIST: return format("a list of %d", v.n);
  case VAL_INIT: return "an initial value of parameters";
  case VAL_TENSOR: return format("a tensor of shape %s", shape_text(&e->g->values.at[v.value].shape));
  case VAL_INSTANCE: return format("the instance '%s'", v.instance->path);
  case VAL_LAYER: return v.layer ? format("the layer '%s'", v.word) : format("the function '%s'", v.word);
  case VAL_SEVERAL: return format("%d values", v.n);
  case VAL_POISON: break;
  }
  return "nothing";
}

bool val_equal(Val a, Val b) {
  if (a.kind != b.kind)
    return false;
  switch (a.kind) {
  case VAL_NUMBER:
  case VAL_BOOL: return a.number == b.number;
  case VAL_QUANTITY: return a.number == b.number && a.word == b.word;
  case VAL_WORD:
  case VAL_STRING:
  case VAL_LAYER: return a.word == b.word;
  case VAL_INIT: return a.init == b.init && a.number == b.number;
  case VAL_INSTANCE: return a.instance == b.instance;
  case VAL_TENSOR: return a.value == b.value;
  case VAL_LIST:
    for (int i = 0; i < a.n && a.n == b.n; i++)
      if (!val_equal(a.list[i], b.list[i]))
        return false;
    return a.n == b.n;
  default: return false;
  }
}

/* ---- diagnostics --------------------------------------------------------------------------- */

/* Reports an error in a standard layer at the call, because standard layers are correct. */
void note_calls(const Frame *f, Diagnostic *d) {
  const Frame *inner = f;
  Span call = NO_SPAN;
  for (; f->caller && f->layer->standard; f = f->caller)
    call = f->call;
  if (f != inner)
    note_at(d, diagnostic_move(d, call), "in the standard layer '%s', here", inner->layer->name);
  for (int shown = 0; f && f->caller && shown < 3; f = f->caller, shown++)
    note_at(d, f->call, "in '%s', called here", f->layer->name);
}

Diagnostic *fail(const Frame *f, Span where, const char *code, const char *pattern, ...) {
  va_list args, again;
  va_start(args, pattern);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, pattern, again);
  va_end(again);
  char *text = alloc((size_t)n + 1);
  vsnprintf(text, (size_t)n + 1, pattern, args);
  va_end(args);
  Diagnostic *d = error_at(where, code, "%s", text);
  note_calls(f, d);
  return d;
}

/* ---- conversions --------------------------------------------------------------------------- */

static bool is(Elaborator *e, const Frame *f, Val v, ValKind kind, Span where, const char *what,
               const char *wanted) {
  if (v.kind == kind)
    return true;
  if (v.kind != VAL_POISON)
    fail(f, where, "PD0207", "%s must be %s, but is %s", what, wanted, val_kind(e, v));
  return false;
}

bool want_number(Elaborator *e, const Frame *f, Val v, Span where, const char *what, double *x) {
  *x = v.number;
  return is(e, f, v, VAL_NUMBER, where, what, "a number");
}

bool want_whole(Elaborator *e, const Frame *f, Val v, Span where, const char *what, int64_t *x) {
  double number;
  if (!want_number(e, f, v, where, what, &number))
    return false;
  if (number != floor(number) || fabs(number) > 0x1p53) {
    fail(f, where, "PD0208", "%s must be a whole number, but is %.15g", what, number);
    return false;
  }
  *x = (int64_t)number;
  return true;
}

bool want_bool(Elaborator *e, const Frame *f, Val v, Span where, const char *what, bool *x) {
  *x = v.number != 0;
  if (is(e, f, v, VAL_BOOL, where, what, "'true' or 'false'"))
    return true;
  if (v.kind == VAL_TENSOR)
    help(diagnostic_last(),
         "conditions are evaluated at compile time; 'select(condition, a, b)' chooses by element");
  return false;
}

bool want_size(Elaborator *e, const Frame *f, Val v, Span where, int64_t *x) {
  if (!want_whole(e, f, v, where, "a size", x))
    return false;
  if (*x >= 1 && *x <= (int64_t)1 << 40)
    return true;
  fail(f, where, "PD0208", "a size must be from 1 to 2^40, but is %lld", (long long)*x);
  return false;
}

int want_tensor(Elaborator *e, const Frame *f, Val v, Span where, const char *what) {
  if (v.kind == VAL_NUMBER)
    return graph_constant(e->g, v.number, f->scope, where);
  return is(e, f, v, VAL_TENSOR, where, what, "a tensor") ? v.value : -1;
}

/* ---- operators ----------------------------------------------------------------------------- */

static Val arithmetic(const Frame *f, const Ast *at, double a, double b) {
  double x = 0;
  switch (at->name[0]) {
  case '+': x = a + b; break;
  case '-': x = a - b; break;
  case '*': x = a * b; break;
  case '/': x = at->name[1] ? floor(a / b) : a / b; break;
  case '%': x = a - b * floor(a / b); break;
  default: BUG("no arithmetic: %s", at->name);
  }
  if (isfinite(x))
    return val_number(x);
  if (b == 0)
    fail(f, at->span2, "PD0213", "division by zero");
  else
    fail(f, at->span2, "PD0213", "the result is too large");
  return POISON;
}

static Val compare(const Ast *at, Val a, Val b) {
  bool orequal = at->name[1] == '=';
  switch (at->name[0]) {
  case '=': return val_bool(val_equal(a, b));
  case '!': return val_bool(!val_equal(a, b));
  case '<': return val_bool(a.number < b.number || (orequal && a.number == b.number));
  default: return val_bool(a.number > b.number || (orequal && a.number == b.number));
  }
}

/* Whether the model may allocate this many more bytes for values during elaboration. */
static bool may_build(Elaborator *e, const Frame *f, const Ast *at, size_t bytes) {
  if (e->built <= MAX_BUILT && (e->built += (int64_t)bytes) > MAX_BUILT)
    fail(f, at->span2, "PD0220", "the model's lists and texts need more than %s", bytes_text(MAX_BUILT));
  return e->built <= MAX_BUILT;
}

static bool may_join(Elaborator *e, const Frame *f, const Ast *at, size_t length) {
  if (length <= MAX_TEXT)
    return may_build(e, f, at, length);
  fail(f, at->span2, "PD0220", "a text of %zu characters is too long: the limit is %d", length, MAX_TEXT);
  return false;
}

Val val_operator(Elaborator *e, const Frame *f, const Ast *at, Val a, Val b) {
  bool numbers = a.kind == VAL_NUMBER && b.kind == VAL_NUMBER,
       quantities = a.kind == VAL_QUANTITY && a.word == b.word;
  bool equality = strcmp(at->name, "==") == 0 || strcmp(at->name, "!=") == 0;
  if (equality || ((numbers || quantities) && strchr("<>", at->name[0])))
    return compare(at, a, b);
  if (numbers && strchr("+-*/%", at->name[0]))
    return arithmetic(f, at, a.number, b.number);
  if (a.kind == VAL_LIST && b.kind == VAL_LIST && at->name[0] == '+') {
    if (a.n + b.n > MAX_LIST) {
      fail(f, at->span2, "PD0322", "a list of %d is too long", a.n + b.n);
      return POISON;
    }
    if (!may_build(e, f, at, (size_t)(a.n + b.n) * sizeof(Val)))
      return POISON;
    Val both = {.kind = VAL_LIST, .n = a.n + b.n, .list = alloc((size_t)(a.n + b.n) * sizeof(Val))};
    for (int i = 0; i < both.n; i++)
      both.list[i] = i < a.n ? a.list[i] : b.list[i - a.n];
    return both;
  }
  bool text = a.kind == VAL_STRING && at->name[0] == '+';
  if (text && (b.kind == VAL_STRING || b.kind == VAL_NUMBER) &&
      !may_join(e, f, at, strlen(a.word) + (b.kind == VAL_STRING ? strlen(b.word) : 0)))
    return POISON;
  if (text && b.kind == VAL_STRING)
    return (Val){.kind = VAL_STRING, .word = internf("%s%s", a.word, b.word)};
  if (text && b.kind == VAL_NUMBER && b.number == floor(b.number))
    return (Val){.kind = VAL_STRING, .word = internf("%s%.0f", a.word, b.number)};
  Diagnostic *d =
      fail(f, at->span2, "PD0207", "'%s' cannot combine %s and %s", at->name, val_kind(e, a), val_kind(e, b));
  underline(d, at->a->span);
  underline(d, at->b->span);
  return POISON;
}
