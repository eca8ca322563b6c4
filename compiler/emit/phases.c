/* Names and phases of a kernel, common to both dialects of loops. */
#include "emit/loops.h"

#include <inttypes.h>
#include <string.h>

/* ---- phases ---------------------------------------------------------------------------------- */

/* Marks the terms that `phase` must load, compute or read back for `term`. */
static void need(Printer *p, int term, int phase) {
  const Term *t = &p->kernel->terms.at[term];
  if (t->scalar || t->kind == TERM_CONSTANT || p->needed[term])
    return;
  p->needed[term] = true;
  if (p->cached[term] && phase > t->phase)
    return;
  for (int i = 0; i < t->n_in; i++)
    need(p, t->in[i], phase);
}

/* Marks the terms that a phase needs. Returns whether the phase has work; *reduces: whether it reduces. */
bool phase_needs(Printer *p, int phase, bool *reduces) {
  const Kernel *k = p->kernel;
  bool any = false;
  *reduces = false;
  memset(p->needed, 0, (size_t)k->terms.n);
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (p->shape->live[i] && t->kind == TERM_REDUCE && t->phase == phase) {
      any = *reduces = true;
      need(p, t->in[0], phase);
    } else if (p->shape->live[i] && p->cached[i] && t->phase == phase) {
      any = true;
      need(p, i, phase);
    }
  }
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    if (!p->shape->store[i].scalar && s->phase == phase) {
      any = true;
      need(p, s->term, phase);
    }
  }
  return any;
}

static bool one_line(const Text *body) {
  const char *first = body->n ? strchr(body->at, '\n') : NULL;
  return first && !first[1];
}

/* Prints a loop (or "" for none) around lines, with braces if needed. */
void print_block(Printer *p, const char *head, const Text *body) {
  bool bare = one_line(body);
  print_line(p, bare ? "%s" : head[0] ? "%s {" : "%s{", head);
  text_add(p->out, "%s", body->n ? body->at : "");
  if (!bare)
    print_line(p, "}");
}

/* Prints scalars and results of reductions that are computed before phase `slot`, and their stores. */
void scalar_lines(Printer *p, int slot) {
  const Kernel *k = p->kernel;
  count_references(p, slot, true);
  p->phase = slot;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->shape->live[i] || !t->scalar || t->kind == TERM_CONSTANT || scalar_slot(k, i) != slot)
      continue;
    if (t->kind == TERM_REDUCE) {
      p->dialect->reduced(p, i);
      p->named[i] = true;
    } else if (p->references[i] != 1) {
      name_term(p, i);
    }
  }
  Text *out = p->out, stores = {0};
  p->indent += p->lead ? 2 : 0;
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    if (!p->shape->store[i].scalar)
      continue;
    int known = scalar_slot(k, s->term);
    p->out = p->lead && !p->sum[i] ? &stores : out;
    if ((known > s->phase ? known : s->phase) == slot)
      p->dialect->store(p, i);
  }
  p->out = out;
  p->indent -= p->lead ? 2 : 0;
  if (stores.n)
    print_block(p, p->lead, &stores);
}

/* The lines for one element. */
void phase_lines(Printer *p, int phase) {
  const Kernel *k = p->kernel;
  p->phase = phase;
  count_references(p, phase, false);
  for (int i = 0; i < k->terms.n; i++)
    p->named[i] = p->named[i] && k->terms.at[i].scalar;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->needed[i] || p->references[i] == 1)
      continue;
    name_term(p, i);
    if (p->cached[i] && t->kind == TERM_OP && t->phase == phase)
      print_line(p, "%s = %s;", p->dialect->cached(p, i), p->term[i]);
  }
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->shape->live[i] || t->kind != TERM_REDUCE || t->phase != phase)
      continue;
    p->dialect->reduce(p, i, term_text(p, t->in[0]));
  }
  for (int i = 0; i < k->stores.n; i++)
    if (!p->shape->store[i].scalar && k->stores.at[i].phase == phase)
      p->dialect->store(p, i);
}

/* The indices of dims [first, end) from the linear index `from`. */
void unpack_index(Printer *p, const char *from, int first, int end) {
  const Kernel *k = p->kernel;
  for (int i = first; i < end; i++) {
    int64_t inner = product(k->dim, i + 1, end), outer = product(k->dim, first, i);
    if (k->dim[i] == 1 || p->index[i] == intern(from))
      continue;
    char *text = inner > 1 ? format("%s / %" PRId64, from, inner) : format("%s", from);
    if (outer > 1)
      text = format("%s %% %" PRId64, text, k->dim[i]);
    print_line(p, "const %s %s = %s;", p->dialect->integer, p->index[i], text);
  }
}

/* Whether the function of one tile needs a buffer. It writes partial sums, not the accumulated buffers. */
bool tile_uses(const Printer *p, int buffer) {
  const Kernel *k = p->kernel;
  for (int i = 0; i < k->terms.n; i++)
    if (p->shape->live[i] && k->terms.at[i].kind == TERM_LOAD && k->terms.at[i].place.buffer == buffer)
      return true;
  for (int i = 0; i < k->stores.n; i++)
    if (!p->sum[i] && k->stores.at[i].place.buffer == buffer)
      return true;
  return false;
}

bool tile_uses_first(const Printer *p) {
  for (int i = 0; i < p->kernel->stores.n; i++)
    if (!p->sum[i] && p->shape->store[i].accumulator)
      return true;
  return false;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A name for a loaded value: a weight has its parameter's name. */
Name load_name(const Printer *p, const Term *t) {
  bool weight = is_parameter(p->k->buffers.at[t->place.buffer].kind);
  return weight ? parameter_of(p, t->place.buffer) : t->name;
}

static void name_parameters(Printer *p) {
  for (int i = 0; i < p->arguments->buffers.n; i++) {
    const Buffer *b = &p->k->buffers.at[p->arguments->buffers.at[i]];
    p->parameter[i] = unique_name(&p->taken, b->kind == BUFFER_ACCUMULATOR ? format("d_%s", b->name) : b->name);
  }
}

Printer printer_new(Text *out, const StageKernels *stage, const Lowered *lowered, const LoopDialect *dialect) {
  const Kernel *k = lowered->kernel;
  Printer p = {.dialect = dialect,
               .out = out,
               .k = stage,
               .kernel = k,
               .shape = lowered->shape,
               .arguments = &lowered->arguments};
  size_t terms = (size_t)k->terms.n + 1;
  for (int i = 0; dialect->reserved[i]; i++)
    push(&p.taken, intern(dialect->reserved[i]));
  p.parameter = alloc((size_t)(p.arguments->buffers.n + 1) * sizeof(Name));
  p.key = alloc((size_t)(p.arguments->keys.n + 1) * sizeof(Name));
  p.sum = alloc((size_t)(k->stores.n + 1) * sizeof(Name));
  p.term = alloc(terms * sizeof(Name));
  p.references = alloc(terms * sizeof *p.references);
  p.needed = alloc(terms);
  p.named = alloc(terms);
  p.cached = alloc(terms);
  for (int i = 0; i < k->terms.n; i++)
    p.cached[i] = k->terms.at[i].row_buffer;
  for (int i = 0; i < k->n_dims; i++) {
    p.index[i] = i == p.shape->row_dims ? intern("j") : p.shape->row_dims == 1 ? intern("i") : internf("i%d", i);
    push(&p.taken, p.index[i]);
  }
  name_parameters(&p);
  for (int i = 0; i < p.arguments->keys.n; i++)
    p.key[i] = unique_name(&p.taken, "key");
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    const char *wanted = t->name;
    if (!p.shape->live[i] || t->kind == TERM_CONSTANT)
      continue;
    if (t->kind == TERM_LOAD)
      wanted = format("%s_%s", load_name(&p, t), t->scalar ? "i" : "j");
    p.term[i] = unique_name(&p.taken, wanted);
  }
  for (int i = 0; i < k->stores.n; i++)
    if (p.shape->store[i].summed)
      p.sum[i] = unique_name(&p.taken, format("%s_sum", parameter_of(&p, k->stores.at[i].place.buffer)));
  return p;
}

/* The kernel's comment and shapes: "x, y: [512, 256]; weight: [256]" */
char *kernel_title(const Printer *p) {
  Text out = {0};
  text_add(&out, "%s. ", p->kernel->comment ? p->kernel->comment : p->kernel->name);
  for (int i = 0; i < p->arguments->buffers.n; i++) {
    const Buffer *b = &p->k->buffers.at[p->arguments->buffers.at[i]];
    const Buffer *next =
        i + 1 < p->arguments->buffers.n ? &p->k->buffers.at[p->arguments->buffers.at[i + 1]] : NULL;
    bool same = next && next->rank == b->rank && !memcmp(next->dim, b->dim, (size_t)b->rank * sizeof *b->dim);
    text_add(&out, "%s", p->parameter[i]);
    if (same)
      text_add(&out, ", ");
    else
      text_add(&out, " %s%s", dims_text(b->rank, b->dim), next ? "; " : "");
  }
  return out.at;
}
