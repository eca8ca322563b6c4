#include "checkpoint/stacks.h"

#include "checkpoint/checkpoint.h"
#include "messages/messages.h"
#include "shared/stacked.h"
#include "update/update.h"

#include <stdlib.h>

struct search {
  const struct pd_sources *in;
  struct pd_stack *to;
};

static bool take(void *search, int64_t i, const char *name) {
  const struct search *s = search;
  s->to->part[i] = pd_sources_find(s->in, name);
  return s->to->part[i];
}

bool pd_stack_find(const struct pd_sources *s, const char *name, int64_t experts, struct pd_stack *to) {
  struct search search = {s, to};
  to->part = pd_allocate(sizeof *to->part * 2 * (size_t)experts);
  const int64_t n = pd_stacked_find(name, experts, take, &search);
  if (n < 0) pd_fail("out of memory");
  to->n = (int)n;
  if (!n) pd_stack_free(to);
  return n > 0;
}

void pd_stack_free(struct pd_stack *x) {
  free(x->part);
  *x = (struct pd_stack){0};
}

const struct pd_source *pd_stack_misfit(const struct pd_stack *x, const int64_t *whole, int64_t part[2]) {
  pd_stacked_shape(whole, x->n, part);
  for (int i = 0; i < x->n; i++) {
    const struct pd_entry *e = x->part[i]->entry;
    if (e->rank != 2 || e->dim[0] != part[0] || e->dim[1] != part[1] || e->dtype == PD_DTYPE_OTHER)
      return x->part[i];
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
