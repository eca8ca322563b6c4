#include "shared/stacked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char experts[] = "experts.";

/* Mixtral's names, and those of Qwen's and most other models. */
static const struct form {
  const char *name, *part[2];
} forms[PD_STACKED_FORMS] = {{"gate_up_proj", {"w1.weight", "w3.weight"}},
                             {"gate_up_proj", {"gate_proj.weight", "up_proj.weight"}},
                             {"up_proj", {"up_proj.weight", NULL}},
                             {"down_proj", {"w2.weight", NULL}},
                             {"down_proj", {"down_proj.weight", NULL}}};

/* The bytes of a parameter's name up to the number of the expert; 0: it has no experts of this form. */
static size_t prefix_of(const char *name, const struct form *f) {
  const size_t n = strlen(name), end = strlen(f->name), of_experts = sizeof experts - 1;
  if (n < end + of_experts || strcmp(name + n - end, f->name)) return 0;
  const size_t prefix = n - end;
  if (strncmp(name + prefix - of_experts, experts, of_experts)) return 0;
  return prefix == of_experts || name[prefix - of_experts - 1] == '.' ? prefix : 0;
}

int pd_stacked_parts(const char *name, int form) {
  const struct form *f = &forms[form];
  return !prefix_of(name, f) ? 0 : f->part[1] ? 2 : 1;
}

int pd_stacked_usual(const char *name) {
  const bool mixtral = strstr(name, "block_sparse_moe.experts.");
  for (int form = 0; form < PD_STACKED_FORMS; form++)
    if (pd_stacked_parts(name, form) && mixtral == (forms[form].part[0][0] == 'w')) return form;
  return -1;
}

char *pd_stacked_name(const char *name, int form, int64_t expert, int part) {
  enum { NUMBER = 24 };
  const char *end = forms[form].part[part];
  const size_t prefix = prefix_of(name, &forms[form]), room = prefix + NUMBER + strlen(end);
  char *to = malloc(room);
  if (to) snprintf(to, room, "%.*s%lld.%s", (int)prefix, name, (long long)expert, end);
  return to;
}

int64_t pd_stacked_take(const char *name, int64_t experts, int form, pd_take_stacked *take, void *to) {
  const int parts = pd_stacked_parts(name, form);
  for (int64_t i = 0; i < experts * parts; i++) {
    char *of_part = pd_stacked_name(name, form, i / parts, (int)(i % parts));
    if (!of_part) return -1;
    const bool taken = take(to, i, of_part);
    free(of_part);
    if (!taken) return 0;
  }
  return experts * parts;
}

int64_t pd_stacked_find(const char *name, int64_t experts, pd_take_stacked *take, void *to) {
  int64_t n = 0;
  for (int form = 0; form < PD_STACKED_FORMS && !n; form++) n = pd_stacked_take(name, experts, form, take, to);
  return n;
}

void pd_stacked_shape(const int64_t *whole, int64_t n, int64_t part[2]) {
  part[0] = whole[0] * whole[1] / n;
  part[1] = whole[2];
}
