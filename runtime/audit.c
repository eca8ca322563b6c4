/* --audit K: what stands in memory between two updates does not change there. After every K-th update each parameter's weights,
 * of all versions that are still read, and its moments, masters and averages have a checksum, which is verified before
 * the next one: a bit that flipped is found before it gets into other weights, and named. */
#include "checksum.h"
#include "internal.h"

#include <stdlib.h>

static uint64_t *sums; /* [parameter][kind] */
static int64_t summed; /* updates after which they were taken; -1: not yet */

/* A parameter's arrays, by kind: versions of its weights, moments, master, average; at NULL: there is none. */
struct array {
  const char *at, *what;
  int64_t n;
  bool bf16;
};

static int n_kinds(void) { return pd.stage->versions + pd.stage->n_moments + 2; }

/* What this replica has of a tensor whose element 0 is there, or would be; NULL: there is none. */
static struct array part_of(const struct pd_parameter *p, const float *at, const char *what, int64_t elements) {
  struct pd_slice part = pd_part_of_tensor(p, elements, pd.replica);
  if (!at || !part.n) return (struct array){NULL, NULL, 0, false};
  return (struct array){(const char *)(at + part.first), what, part.n, false};
}

static struct array array_of(const struct pd_parameter *p, int kind, int64_t updates) {
  const struct pd_stage *s = pd.stage;
  struct array none = {NULL, NULL, 0, false};
  if (kind < s->versions) {
    if (kind > updates || (kind && p->frozen)) return none;
    return (struct array){pd_weights_at(p, updates - kind),
                          kind ? "an older version of the weights" : "the weights", p->elements, p->bf16};
  }
  if (!pd_is_trained(p) && !p->buffer) return none;
  kind -= s->versions;
  if (kind < s->n_moments) {
    if (p->buffer) return none;
    return part_of(p, pd_moment_at(p, kind), kind ? "the second moments" : "the first moments",
                   pd_moment_shape(p, kind).elements);
  }
  if (kind == s->n_moments)
    return part_of(p, s->has_masters ? (float *)pd_state_at(s->masters, p) : NULL, "the masters", p->elements);
  return part_of(p, pd_average_at(p), "the averages", p->elements);
}

static uint64_t sum_of(const struct array *a) {
  return pd_checksum(pd_view(a->at, a->n, a->bf16), (size_t)a->n * sizeof(float));
}

void pd_audit_start(void) {
  summed = -1;
  if (pd_options.audit && !pd_only_evaluates())
    sums = pd_allocate(sizeof *sums * (size_t)(pd.stage->n_parameters * n_kinds()));
}

void pd_audit_take(int64_t updates) {
  if (!sums || updates % pd_options.audit) return;
  pd_await_weights(updates);
  for (int i = 0; i < pd.stage->n_parameters; i++)
    for (int kind = 0; kind < n_kinds(); kind++) {
      struct array a = array_of(&pd.stage->parameters[i], kind, updates);
      if (a.at) sums[i * n_kinds() + kind] = sum_of(&a);
    }
  summed = updates;
}

void pd_audit_verify(int64_t updates) {
  if (!sums || summed != updates) return;
  for (int i = 0; i < pd.stage->n_parameters; i++)
    for (int kind = 0; kind < n_kinds(); kind++) {
      const struct pd_parameter *p = &pd.stage->parameters[i];
      struct array a = array_of(p, kind, updates);
      if (a.at && sums[i * n_kinds() + kind] != sum_of(&a))
        pd_fail("--audit: step %lld: %s of '%s' are not what update %lld left: this host's memory changes bits",
                (long long)(updates + 1), a.what, p->name, (long long)updates);
    }
}
