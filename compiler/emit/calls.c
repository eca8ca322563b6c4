/* Kernels of kind CALL: prints what the node's op says about its call (ops/call.h). */
#include "emit/print.h"
#include "ops/call.h"

#include <inttypes.h>
#include <string.h>

static Site site_of(const StageKernels *stage, const Kernel *k) {
  return (Site){.node = k->node, .in = k->in.at, .n_in = k->in.n, .out = k->out.at, .n_out = k->out.n,
                .bias = k->bias, .accumulate = k->accumulate, .threads = stage->threads, .cuda = stage->cuda};
}

static Call describe(const StageKernels *stage, const Kernel *k) {
  Site site = site_of(stage, k);
  Call c = {0};
  if (!k->node->op->call)
    BUG("no call computes '%s'", k->node->op->name);
  k->node->op->call(&site, &c);
  return c;
}

/* Made for rounds that overwrite the result and for rounds that add to it. */
static bool two_forms(const Kernel *k, const Call *c) {
  return c->made && (k->accumulate || (c->sums && c->outer.n > 0));
}

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
      text_add(&list, "%s%" PRId64, i ? ", " : "", f->list[i]);
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

/* The fields of one value, then the lists. */
static void print_fields(Text *out, int indent, const char *head, const Call *c, const char *tail) {
  Names plain = field_texts(c, false), lists = field_texts(c, true);
  text_list(out, indent, head, &plain, lists.n ? format(",\n%*s", indent, "") : tail);
  if (lists.n)
    text_list(out, indent, "", &lists, tail);
}

bool print_call_object(Text *out, const StageKernels *stage, const Kernel *k, const char *object) {
  Call c = describe(stage, k);
  const char *note = comment_text(c.note ? c.note : k->comment);
  if (!c.object)
    return false;
  if (c.made) {
    text_add(out, "static struct %s *%s%s; /* %s */\n", c.object, object, two_forms(k, &c) ? "[2]" : "", note);
  } else {
    text_add(out, "static const struct %s %s = { /* %s */\n", c.object, object, note);
    print_fields(out, 2, "  ", &c, ",\n};\n");
  }
  return true;
}

bool print_call_setup(Text *out, const StageKernels *stage, const Kernel *k, const char *object) {
  Call c = describe(stage, k);
  bool two = two_forms(k, &c);
  int indent = two ? 4 : 2;
  if (!c.made)
    return false;
  if (two) {
    field_name(&c, "accumulate", "!first");
    text_add(out, "  for (int first = 0; first < 2; first++)\n");
  }
  const char *type = dialect_of(stage)->compound_literals ? format("(struct %s_shape)", c.object) : "";
  const char *head = format("%*s%s%s = %s_new(%s{", indent, "", object, two ? "[first]" : "", c.object, type);
  print_fields(out, indent + 4, head, &c, "});\n");
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

/* Whether this round overwrites: a batch's first microbatch, and the first round of loops that add up. */
static char *first_round(const Kernel *k, const Call *c) {
  Text out = {0};
  if (k->accumulate)
    text_add(&out, "first");
  for (int i = 0; c->sums && i < c->outer.n; i++)
    text_add(&out, "%so%d == 0", out.n ? " && " : "", i);
  return out.n ? out.at : format("true");
}

void print_call(Text *out, int indent, const StageKernels *stage, const Kernel *k, const char *object,
                BufferText text, void *context) {
  Call c = describe(stage, k);
  Names list = {0};
  for (int i = 0; i < c.arguments.n; i++) {
    const Argument *x = &c.arguments.at[i];
    switch (x->kind) {
    case ARGUMENT_OBJECT:
      push(&list, !c.made             ? internf("&%s", object)
                  : two_forms(k, &c) ? internf("%s[%s]", object, first_round(k, &c))
                                     : intern(object));
      break;
    case ARGUMENT_PLACE: push(&list, pointer(x, &c.outer, text, context)); break;
    case ARGUMENT_NULL: push(&list, intern(dialect_of(stage)->null)); break;
    case ARGUMENT_INT: push(&list, internf("%" PRId64, x->value)); break;
    case ARGUMENT_FIRST: push(&list, intern(first_round(k, &c))); break;
    case ARGUMENT_SCRATCH: push(&list, intern("scratch")); break;
    }
  }
  int at = open_outer(out, indent, &c.outer);
  char *head = format("%*s%s(", at, "", c.function);
  text_list(out, at + (int)strlen(c.function) + 1, head, &list, ");\n");
}

/* ---- what it needs --------------------------------------------------------------------------- */

KernelCall call_buffers(const Kernel *k) {
  KernelCall c = {.first = k->accumulate, .scratch = k->node->op->scratch != NULL};
  for (int i = 0; i < k->in.n; i++)
    push(&c.buffers, k->in.at[i].buffer);
  for (int i = 0; i < k->out.n; i++)
    push(&c.buffers, k->out.at[i].buffer);
  return c;
}

int64_t call_scratch(const StageKernels *stage, const Kernel *k) {
  Site site = site_of(stage, k);
  return k->node->op->scratch ? k->node->op->scratch(&site) : 0;
}
