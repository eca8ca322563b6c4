/* Addresses of weights. */
#include "update/update.h"

#include <stdlib.h>
#include <string.h>

/* ---- where weights stand ----------------------------------------------------------------------- */

char *pd_weights_at(const struct pd_parameter *p, int64_t t) {
  const struct pd_stage *s = pd.stage;
  if (p->frozen) return pd.arena + s->frozen + p->offset;
  return pd.arena + s->weights + (size_t)(t % s->versions) * s->weights_stride + p->offset;
}

static bool has_master(const struct pd_parameter *p) { return pd.stage->has_masters && !p->frozen; }

/* The newest weights in f32, or a frozen parameter as passes read it; with sharded masters this replica's part. */
static char *newest_at(const struct pd_parameter *p, int64_t t) {
  return has_master(p) ? pd_state_at(pd.stage->masters, p) : pd_weights_at(p, t);
}

/* True if the newest weights in f32 are sharded over replicas. */
static bool newest_in_parts(const struct pd_parameter *p) { return has_master(p) && pd.stage->shards; }

bool pd_provides(const struct pd_parameter *p) { return p->owner == pd.stage->stage && !pd.replica; }

static struct {
  /* By parameter: f32 weights of a frozen parameter whose working copy is rounded, on the rank that provides it for
   * files; NULL: not kept. */
  float **unrounded;
  /* The whole of a parameter with a sharded master, while it is filled. */
  float *in_parts;
} copies;

static void keep_unrounded(const struct pd_parameter *p, const float *w) {
  const struct pd_stage *s = pd.stage;
  const struct pd_options *o = &pd_options;
  if (!pd_provides(p) || !(o->save || o->save_raw || o->checkpoint)) return;
  if (!copies.unrounded) copies.unrounded = pd_allocate(sizeof *copies.unrounded * (size_t)s->n_parameters);
  float **to = &copies.unrounded[p - s->parameters];
  if (!*to) *to = pd_allocate(sizeof **to * (size_t)p->elements);
  memcpy(*to, w, sizeof *w * (size_t)p->elements);
}

/* True if only a rounded copy exists: a working copy without a master. */
static bool newest_is_rounded(const struct pd_parameter *p) {
  return p->bf16 && (p->frozen || !pd.stage->has_masters);
}

float *pd_fill_newest(const struct pd_parameter *p, int64_t t) {
  if (!newest_in_parts(p)) return pd_fill(newest_at(p, t), p->elements, newest_is_rounded(p));
  return copies.in_parts = pd_allocate(sizeof *copies.in_parts * (size_t)p->elements);
}

/* The address of an element in the working copy. */
static char *working_at(const struct pd_parameter *p, int64_t t, int64_t first) {
  return pd_weights_at(p, t) + (size_t)first * (p->bf16 ? 2 : sizeof(float));
}

static void fill_parts(const struct pd_parameter *p, int64_t t) {
  struct pd_slice own = pd_own_part(p);
  memcpy(pd_fill(pd_weights_at(p, t), p->elements, p->bf16), copies.in_parts, (size_t)p->elements * sizeof(float));
  pd_filled(pd_weights_at(p, t), p->elements, p->bf16);
  if (own.n) {
    float *master = (float *)newest_at(p, t) + own.first;
    memcpy(pd_fill(master, own.n, false), copies.in_parts + own.first, (size_t)own.n * sizeof(float));
    pd_filled(master, own.n, false);
  }
  free(copies.in_parts);
}

void pd_newest_filled(const struct pd_parameter *p, int64_t t, const float *w) {
  if (p->frozen && p->bf16) keep_unrounded(p, w);
  if (newest_in_parts(p)) {
    fill_parts(p, t);
  } else {
    pd_filled(newest_at(p, t), p->elements, newest_is_rounded(p));
    if (has_master(p)) pd_round(pd_weights_at(p, t), (const float *)newest_at(p, t), p->elements, p->bf16);
  }
  float *average = pd_average_at(p); /* until the first update */
  struct pd_slice own = pd_own_part(p);
  if (average && own.n) pd_round(average + own.first, (const float *)newest_at(p, t) + own.first, own.n, false);
}

void pd_clear_padding(void) {
  const struct pd_stage *s = pd.stage;
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    for (int v = 0; v < (p->frozen ? 1 : s->versions) && p->padding; v++) {
      char *at = working_at(p, v, p->elements);
      memset(pd_fill(at, p->padding, p->bf16), 0, (size_t)p->padding * sizeof(float));
      pd_filled(at, p->padding, p->bf16);
    }
  }
}

float *pd_average_at(const struct pd_parameter *p) {
  const struct pd_stage *s = pd.stage;
  return s->ema > 0 && !p->frozen ? (float *)pd_state_at(s->averages, p) : NULL;
}

void pd_read_averages(int64_t t, bool averages) {
  const struct pd_stage *s = pd.stage;
  if (!(s->ema > 0) || !(s->has_masters || s->shards)) return; /* passes read the averages themselves */
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    float *average = pd_average_at(p), *newest = (float *)newest_at(p, t);
    struct pd_slice own = pd_own_part(p);
    if (!average || !own.n) continue;
    if (s->has_masters)
      pd_round(working_at(p, t, own.first), (averages ? average : newest) + own.first, own.n, p->bf16);
    else
      pd_swap_part(average + own.first, newest + own.first, own.n);
  }
  if (s->shards) {
    pd_share_weights(t);
    pd_await_weights(t);
  }
}

const float *pd_view_newest(const struct pd_parameter *p, int64_t t) {
  const float *kept = copies.unrounded ? copies.unrounded[p - pd.stage->parameters] : NULL;
  if (newest_in_parts(p)) return pd_whole(p, (const float *)newest_at(p, t), p->elements);
  return kept ? kept : pd_view(newest_at(p, t), p->elements, newest_is_rounded(p));
}

void pd_file_shape(const struct pd_parameter *p, int64_t *dim) {
  bool swapped = p->stored_in_out && p->rank == 2;
  struct pd_shape whole = pd_whole_shape(p);
  for (int i = 0; i < p->rank; i++) dim[i] = whole.dim[swapped ? 1 - i : i];
}
