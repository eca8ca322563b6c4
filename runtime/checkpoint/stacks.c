#include "checkpoint/stacks.h"

#include "checkpoint/checkpoint.h"
#include "messages/messages.h"
#include "shared/stacked.h"
#include "update/update.h"

#include <stdlib.h>

struct search {
  const struct pd_sources *in;
  struct pd_stack found;
};

static bool note_part(void *to, int64_t i, const char *name) {
  struct search *s = to;
  struct pd_stack *x = &s->found;
  const struct pd_source *part = x->part[i] = pd_sources_find(s->in, name);
  x->n++;
  if (part && !x->some) x->some = part;
  if (!part && !x->missing) x->missing = pd_copy_text(name);
  return true;
}

static struct pd_stack find_form(const struct pd_sources *in, const char *name, int64_t experts, int form) {
  const int parts = pd_stacked_parts(name, form);
  struct search s = {.in = in};
  if (!parts) return s.found;
  s.found.part = pd_allocate(sizeof *s.found.part * (size_t)(experts * parts));
  if (pd_stacked_take(name, experts, form, note_part, &s) < 0) pd_fail("out of memory");
  return s.found;
}

bool pd_stack_find(const struct pd_sources *s, const char *name, int64_t experts, struct pd_stack *to) {
  *to = (struct pd_stack){0};
  for (int form = 0; form < PD_STACKED_FORMS; form++) {
    struct pd_stack x = find_form(s, name, experts, form);
    if (x.some && !to->some) {
      *to = x;
      continue;
    }
    if (x.some) to->other = x.some;
    pd_stack_free(&x);
  }
  return to->some;
}

void pd_stack_free(struct pd_stack *x) {
  free(x->part);
  free(x->missing);
  *x = (struct pd_stack){0};
}

const struct pd_source *pd_stack_misfit(const struct pd_stack *x, const int64_t *whole, int64_t part[2]) {
  pd_stacked_shape(whole, x->n, part);
  for (int i = 0; i < x->n; i++) {
    const struct pd_entry *e = x->part[i]->entry;
    if (e->rank != 2 || e->dim[0] != part[0] || e->dim[1] != part[1]) return x->part[i];
  }
  return NULL;
}

void pd_stack_copy(const struct pd_stack *x, const struct pd_parameter *p, float *to) {
  const int64_t own = pd_own_elements(p), each = x->part[0]->entry->elements;
  for (int64_t i = 0; i < own; i++) {
    const int64_t at = p->runs ? pd_whole_element(p, i) : i;
    to[i] = pd_entry_float(x->part[at / each]->entry, at % each);
  }
  for (int64_t i = own; i < p->elements; i++) to[i] = 0;
}
