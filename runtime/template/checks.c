/* Jinja's tests: `is defined` and others. */
#include "internal.h"

#include <string.h>

enum check {
  DEFINED,
  UNDEFINED,
  NONE,
  STRING,
  NUMBER,
  INTEGER,
  FLOAT,
  BOOLEAN,
  MAPPING,
  SEQUENCE,
  ITERABLE,
  TRUE,
  FALSE,
  ODD,
  EVEN,
  DIVISIBLE,
  EQUAL,
  UNEQUAL,
  IN
};
static const struct {
  const char *name;
  enum check check;
  int arguments;
} checks[] = {{"defined", DEFINED, 0},   {"undefined", UNDEFINED, 0},
              {"none", NONE, 0},         {"string", STRING, 0},
              {"number", NUMBER, 0},     {"integer", INTEGER, 0},
              {"float", FLOAT, 0},       {"boolean", BOOLEAN, 0},
              {"mapping", MAPPING, 0},   {"sequence", SEQUENCE, 0},
              {"iterable", ITERABLE, 0}, {"true", TRUE, 0},
              {"false", FALSE, 0},       {"odd", ODD, 0},
              {"even", EVEN, 0},         {"divisibleby", DIVISIBLE, 1},
              {"equalto", EQUAL, 1},     {"eq", EQUAL, 1},
              {"==", EQUAL, 1},          {"ne", UNEQUAL, 1},
              {"!=", UNEQUAL, 1},        {"in", IN, 1}};

static int find(struct pd_text name) {
  for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
    if (pd_text_is(name, checks[i].name)) return (int)i;
  return -1;
}

bool pd_is_check(struct pd_text name) { return find(name) >= 0; }

/* Whether a whole number is divisible. */
static bool divides(struct pd_rendering *r, const struct pd_value *v, const struct pd_value *by) {
  if (v->kind != PD_INT || by->kind != PD_INT)
    return pd_stop(r, "divisibility needs whole numbers, not %s", pd_kind_name(v->kind == PD_INT ? by : v)), false;
  if (!by->whole) return pd_stop(r, "a division by zero"), false;
  return by->whole == -1 || v->whole % by->whole == 0;
}

static bool holds(struct pd_rendering *r, enum check check, const struct pd_value *v,
                  const struct pd_value *other) {
  const struct pd_value two = pd_int(2);
  const bool number = v->kind == PD_BOOL || v->kind == PD_INT || v->kind == PD_LARGE || v->kind == PD_FLOAT;
  const bool items = v->kind == PD_TEXT || v->kind == PD_LIST || v->kind == PD_DICT || v->kind == PD_UNDEFINED;
  switch (check) {
  case DEFINED: return v->kind != PD_UNDEFINED;
  case UNDEFINED: return v->kind == PD_UNDEFINED;
  case NONE: return v->kind == PD_NONE;
  case STRING: return v->kind == PD_TEXT;
  case NUMBER: return number;
  case INTEGER: return v->kind == PD_INT || v->kind == PD_LARGE;
  case FLOAT: return v->kind == PD_FLOAT;
  case BOOLEAN: return v->kind == PD_BOOL;
  case MAPPING: return v->kind == PD_DICT;
  case SEQUENCE:
  case ITERABLE: return items; /* Jinja counts an undefined value */
  case TRUE: return v->kind == PD_BOOL && v->truth;
  case FALSE: return v->kind == PD_BOOL && !v->truth;
  case ODD: return !divides(r, v, &two);
  case EVEN: return divides(r, v, &two);
  case DIVISIBLE: return divides(r, v, other);
  case EQUAL: return pd_equal(v, other, 0);
  case UNEQUAL: return !pd_equal(v, other, 0);
  default: return pd_contains(r, other, v);
  }
}

bool pd_check(struct pd_rendering *r, struct pd_text name, const struct pd_value *v,
              const struct pd_arguments *args) {
  const int i = find(name);
  if (i < 0)
    return pd_stop(r, "this test is not supported: %.*s", (int)(name.n > 60 ? 60 : name.n), name.at), false;
  if (args->n != checks[i].arguments)
    return pd_stop(r, "the test '%s' takes %d argument%s", checks[i].name, checks[i].arguments,
                   checks[i].arguments == 1 ? "" : "s"),
           false;
  return holds(r, checks[i].check, v, args->n ? &args->at[0] : NULL);
}
