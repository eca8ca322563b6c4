/* --audit K: detects changes in memory between two updates. After every Kth update each parameter's weights, of
 * all versions still in use, and its moments, masters and averages get a checksum, which is verified before the
 * next update: a flipped bit is reported before it spreads to other weights. An update that runs twice
 * (updates_twice.c) takes the checksums itself, tile by tile: of its copy of the elements before the update, and
 * of the first run's results, which the second run confirmed. A bit that flips during an update is in one of these
 * copies, or differs from it later. */
#include "shared/checksum.h"
#include "update/update.h"
#include "watch/watch.h"

#include <stdlib.h>

/* By parameter and array, all versions together: elements and sums of the current update. */
enum { N_ARRAYS = PD_ARRAY_WEIGHTS + 1 };
struct given {
  int64_t n_before, n_after;
  uint64_t before, after;
};
/* The results of a completed update whose two runs agree. */
struct left {
  uint64_t sum;
  bool there;
};
static struct {
  /* The sum of the checksums of an array's tiles, which threads can add in any order; a tile's seed is the index of
   * its first element. */
  uint64_t *sums; /* [parameter][array] */
  int64_t summed; /* updates before the checksums were taken; -1: not taken */
  struct given *given;
  struct left *left;
} audit;

static const char *const names[N_ARRAYS] = {
    [PD_ARRAY_MOMENTS] = "first moments",      [PD_ARRAY_MOMENTS + 1] = "second moments",
    [PD_ARRAY_MOMENTS + 2] = "second moments", [PD_ARRAY_MASTERS] = "masters",
    [PD_ARRAY_AVERAGES] = "averages",          [PD_ARRAY_WEIGHTS] = "weights"};
const char *pd_array_name(int array) { return array < N_ARRAYS ? names[array] : names[PD_ARRAY_WEIGHTS]; }

struct array {
  const char *at;
  int64_t n;
  bool bf16;
};

static int n_arrays(void) { return PD_ARRAY_WEIGHTS + pd.stage->versions; }
static uint64_t *sum_at(const struct pd_parameter *p, int array) {
  return &audit.sums[(p - pd.stage->parameters) * n_arrays() + array];
}

/* This replica's part of a tensor, from the address of element 0; NULL: none. */
static struct array part_of(const struct pd_parameter *p, const float *at, int64_t elements) {
  struct pd_slice part = pd_part_of_tensor(p, elements, pd.replica);
  if (!at || !part.n) return (struct array){NULL, 0, false};
  return (struct array){(const char *)(at + part.first), part.n, false};
}

static struct array array_of(const struct pd_parameter *p, int array, int64_t updates) {
  const struct pd_stage *s = pd.stage;
  const int version = array - PD_ARRAY_WEIGHTS;
  struct array none = {NULL, 0, false};
  if (version >= 0) {
    if (version > updates || (version && p->frozen)) return none;
    return (struct array){pd_weights_at(p, updates - version), p->elements, p->bf16};
  }
  if (!pd_is_trained(p) && !p->buffer) return none;
  if (array == PD_ARRAY_MASTERS)
    return part_of(p, s->has_masters ? (float *)pd_state_at(s->masters, p) : NULL, p->elements);
  if (array == PD_ARRAY_AVERAGES) return part_of(p, pd_average_at(p), p->elements);
  if (p->buffer || array - PD_ARRAY_MOMENTS >= s->n_moments) return none;
  return part_of(p, pd_moment_at(p, array - PD_ARRAY_MOMENTS),
                 pd_moment_shape(p, array - PD_ARRAY_MOMENTS).elements);
}

/* ---- sums ---------------------------------------------------------------------------------------- */

static size_t size_of(bool bf16) { return bf16 ? sizeof(uint16_t) : sizeof(float); }

static uint64_t sum_of(const struct array *a) {
  const size_t size = size_of(a->bf16), floats = ((size_t)a->n * size + sizeof(float) - 1) / sizeof(float);
  const char *at = (const char *)pd_view(a->at, (int64_t)floats, false);
  uint64_t sum = 0;
  for (int64_t i = 0; i < a->n; i += PD_TILE)
    sum += pd_seeded_checksum(at + (size_t)i * size, (size_t)(a->n - i < PD_TILE ? a->n - i : PD_TILE) * size,
                              (uint64_t)i);
  return sum;
}

static _Noreturn void tell(const struct pd_parameter *p, int array, int64_t updates) {
  pd_fail(
      "--audit: step %lld: %s%s of '%s' changed after update %lld: this host's memory corrupts data. help: test "
      "this host's memory",
      (long long)(updates + 1), array < N_ARRAYS ? "the " : "an older version of the ", pd_array_name(array),
      p->name, (long long)updates);
}

/* ---- what an update gives -------------------------------------------------------------------------- */

static uint64_t sum_of_copy(const struct pd_written *w, const void *copy, int parameter, int64_t first) {
  static _Thread_local char tile[PD_TILE * sizeof(float)];
  const size_t most = PD_TILE * size_of(w->bf16);
  uint64_t sum = 0;
  first -= pd_own_part(&pd.stage->parameters[parameter]).first;
  for (size_t done = 0, n; done < w->bytes; done += n, first += PD_TILE) {
    n = w->bytes - done < most ? w->bytes - done : most;
    pd_read_bytes(tile, (const char *)copy + done, n);
    sum += pd_seeded_checksum(tile, n, (uint64_t)first);
  }
  return sum;
}

static int64_t n_elements(const struct pd_written *w) { return (int64_t)(w->bytes / size_of(w->bf16)); }
static struct given *given_of(int parameter, int array) { return &audit.given[parameter * N_ARRAYS + array]; }

void pd_audit_before(const struct pd_written *w, const void *copy, int parameter, int64_t first) {
  if (!audit.sums) return;
  struct given *g = given_of(parameter, w->array);
  __atomic_fetch_add(&g->before, sum_of_copy(w, copy, parameter, first), __ATOMIC_RELAXED);
  __atomic_fetch_add(&g->n_before, n_elements(w), __ATOMIC_RELAXED);
}

void pd_audit_after(const struct pd_written *w, const void *copy, int parameter, int64_t first) {
  if (!audit.sums) return;
  struct given *g = given_of(parameter, w->array);
  __atomic_fetch_add(&g->after, sum_of_copy(w, copy, parameter, first), __ATOMIC_RELAXED);
  __atomic_fetch_add(&g->n_after, n_elements(w), __ATOMIC_RELAXED);
}

/* An update overwrites the oldest version of weights. A whole-tensor rule writes some arrays twice. */
static void settle(const struct pd_parameter *p, int array, struct given *g, struct left *l, int64_t t) {
  const int oldest = array == PD_ARRAY_WEIGHTS ? array + pd.stage->versions - 1 : array;
  const bool whole = g->n_before == array_of(p, oldest, t).n, known = l->there || audit.summed == t;
  if (whole && known && g->before != (l->there ? l->sum : *sum_at(p, oldest))) tell(p, oldest, t);
  *l = (struct left){g->after, g->n_after == array_of(p, array, t).n};
  *g = (struct given){0, 0, 0, 0};
}

void pd_audit_settle(int64_t t) {
  if (!audit.sums) return;
  for (int i = 0; i < pd.stage->n_parameters; i++)
    for (int array = 0; array < N_ARRAYS; array++) {
      struct given *g = given_of(i, array);
      if (g->n_after) settle(&pd.stage->parameters[i], array, g, &audit.left[i * N_ARRAYS + array], t);
    }
}

/* ---- between updates --------------------------------------------------------------------------------- */

void pd_audit_start(void) {
  const size_t n = (size_t)pd.stage->n_parameters;
  audit.summed = -1;
  if (!pd_options.audit || pd_only_evaluates()) return;
  audit.sums = pd_allocate(sizeof *audit.sums * n * (size_t)n_arrays());
  audit.given = pd_allocate(sizeof *audit.given * n * N_ARRAYS);
  audit.left = pd_allocate(sizeof *audit.left * n * N_ARRAYS);
}

/* Keeps the previous sum of arrays without updates, because a new sum would hide a change. */
static const uint64_t *sum_before(const struct pd_parameter *p, int array, int64_t updates) {
  if (audit.summed < 0 || audit.summed != updates - 1) return NULL;
  if (array > PD_ARRAY_WEIGHTS) return sum_at(p, array - 1);
  return p->frozen ? sum_at(p, array) : NULL;
}

static void take(const struct pd_parameter *p, int array, int64_t updates) {
  const struct array a = array_of(p, array, updates);
  if (!a.at) return;
  const uint64_t *before = sum_before(p, array, updates);
  struct left *l = array < N_ARRAYS ? &audit.left[(p - pd.stage->parameters) * N_ARRAYS + array] : NULL;
  const bool known = before || (l && l->there);
  const uint64_t sum = before ? *before : known ? l->sum : sum_of(&a);
  if (before && sum != sum_of(&a)) tell(p, array, updates);
  *sum_at(p, array) = sum;
  if (l) l->there = false;
}

void pd_audit_take(int64_t updates) {
  if (!audit.sums || updates % pd_options.audit) return;
  pd_await_weights(updates);
  for (int i = 0; i < pd.stage->n_parameters; i++)
    for (int array = n_arrays() - 1; array >= 0; array--) /* a version's sum becomes the next older version's */
      take(&pd.stage->parameters[i], array, updates);
  audit.summed = updates;
}

void pd_audit_verify(int64_t updates) {
  if (!audit.sums || audit.summed != updates) return;
  for (int i = 0; i < pd.stage->n_parameters; i++)
    for (int array = 0; array < n_arrays(); array++) {
      const struct pd_parameter *p = &pd.stage->parameters[i];
      struct array a = array_of(p, array, updates);
      if (a.at && *sum_at(p, array) != sum_of(&a)) tell(p, array, updates);
    }
}
