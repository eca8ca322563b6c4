/* Prints kernels of kind CALL from their lowered description (ops/call.h). */
#include "emit/print.h"
#include "ops/call.h"

#include <inttypes.h>
#include <string.h>

/* ---- objects --------------------------------------------------------------------------------- */

static Name field_text(const Field *f) {
  Text list = {0};
  switch (f->kind) {
  case FIELD_INT: return internf(".%s = %" PRId64, f->name, f->value);
  case FIELD_BOOL: return internf(".%s = %s", f->name, f->value ? "true" : "false");
  case FIELD_FLOAT: return internf(".%s = %s", f->name, float_literal(f->number));
  case FIELD_NAME: return internf(".%s = %s", f->name, f->text);
  case FIELD_LIST:
    for (int i = 0; i < f->n; i++)
      text_add(&list, "%s%s%" PRId64, i ? ", " : "", f->member ? format(".%s = ", f->member[i]) : "", f->list[i]);
    return internf(".%s = {%s}", f->name, list.at);
  }
  BUG("a field of kind %d", f->kind);
}

static Names field_texts(const Call *c, bool lists) {
  Names texts = {0};
  for (int i = 0; i < c->fields.n; i++)
    if ((c->fields.at[i].kind == FIELD_LIST) == lists)
      push(&texts, field_text(&c->fields.at[i]));
  return texts;
}

/* Prints scalar fields before lists. */
static void print_fields(Text *out, int indent, const char *head, const Call *c, const char *tail) {
  Names plain = field_texts(c, false), lists = field_texts(c, true);
  text_list(out, indent, head, &plain, lists.n ? format(",\n%*s", indent, "") : tail);
  if (lists.n)
    text_list(out, indent, "", &lists, tail);
}

bool call_is_constructed(const Lowered *k) { return k->call && k->call->object && k->call->made; }

bool print_call_object(Text *out, const Lowered *k, const char *object, bool member) {
  const Call *c = k->call;
  const char *note = comment_text(c->note ? c->note : k->kernel->comment);
  if (!c->object)
    return false;
  if (c->made) {
    text_add(out, "%sstruct %s *%s%s; /* %s */\n", member ? "  " : "static ", c->object, object,
             c->twice ? "[2]" : "", note);
  } else {
    text_add(out, "static const struct %s %s = { /* %s */\n", c->object, object, note);
    print_fields(out, 2, "  ", c, ",\n};\n");
  }
  return true;
}

bool print_call_setup(Text *out, const Dialect *dialect, const Lowered *k, const char *object) {
  const Call *c = k->call;
  int indent = c->twice ? 4 : 2;
  if (!c->made)
    return false;
  if (c->twice)
    text_add(out, "  for (int first = 0; first < 2; first++)\n");
  const char *type = dialect->compound_literals ? format("(struct %s_shape)", c->object) : "";
  const char *head =
      format("%*s%s%s = %s_new(%s{", indent, "", object, c->twice ? "[first]" : "", c->object, type);
  print_fields(out, indent + 4, head, c, "});\n");
  return true;
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Loops over outer axes; "o0", "o1" are their indices. */
static int open_outer(Text *out, int indent, const Axes *a) {
  for (int i = 0; i < a->n; i++, indent += 2)
    text_add(out, "%*sfor (int64_t o%d = 0; o%d < %" PRId64 "; o%d++)\n", indent, "", i, i, a->count[i], i);
  return indent;
}

/* The pointer to a place's first element at the current outer indices. */
static Name pointer(const Argument *x, const Axes *outer, BufferText text, void *context) {
  Text out = {0};
  text_add(&out, "%s", text(context, x->place->buffer));
  if (x->place->offset != 0)
    text_add(&out, " + %" PRId64, x->place->offset);
  for (int i = 0; x->moves >= 0 && i < outer->n; i++)
    if (outer->stride[i][x->moves] != 0)
      text_add(&out, " + o%d * %" PRId64, i, outer->stride[i][x->moves]);
  return intern(out.at);
}

/* The condition under which the call overwrites its target: a batch's first microbatch, and the first iteration of
 * summing loops. */
static char *first_round(const Lowered *k) {
  const Call *c = k->call;
  Text out = {0};
  if (k->kernel->accumulate)
    text_add(&out, "first");
  for (int i = 0; c->sums && i < c->outer.n; i++)
    text_add(&out, "%so%d == 0", out.n ? " && " : "", i);
  return out.n ? out.at : format("true");
}

void print_call(Text *out, int indent, const Dialect *dialect, const Lowered *k, const char *object,
                BufferText text, void *context) {
  const Call *c = k->call;
  Names list = {0};
  for (int i = 0; i < c->arguments.n; i++) {
    const Argument *x = &c->arguments.at[i];
    switch (x->kind) {
    case ARGUMENT_OBJECT:
      push(&list, !c->made   ? internf("&%s", object)
                  : c->twice ? internf("%s[%s]", object, first_round(k))
                             : intern(object));
      break;
    case ARGUMENT_PLACE: push(&list, pointer(x, &c->outer, text, context)); break;
    case ARGUMENT_NULL: push(&list, intern(dialect->null)); break;
    case ARGUMENT_INT: push(&list, internf("%" PRId64, x->value)); break;
    case ARGUMENT_SHARD: push(&list, internf("pd.tensor_rank * %" PRId64, x->value)); break;
    case ARGUMENT_FIRST: push(&list, intern(first_round(k))); break;
    case ARGUMENT_SCRATCH: push(&list, intern("scratch")); break;
    }
  }
  int at = open_outer(out, indent, &c->outer);
  char *head = format("%*s%s(", at, "", c->function);
  text_list(out, at + (int)strlen(c->function) + 1, head, &list, ");\n");
}
