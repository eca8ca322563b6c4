/* The table of optimizers, and the common part of updates: tiles of a stage's parameters, addresses of gradients
 * and moments, arguments of whole-tensor rules. The targets update the elements (host/optimizer.c,
 * cuda/optimizer.cu). */
#include "data/load.h"
#include "run/upward.h"
#include "update/update.h"

struct pd_tile *pd_tiles;
int pd_n_tiles;

double pd_learning_rate(const struct pd_stage *s, int64_t t) { return s->lr_schedule(s->lr_arguments, s->lr, t); }

struct pd_rate pd_group_rate(const struct pd_stage *s, int group, int64_t t) {
  double lr = pd_learning_rate(s, t);
  if (group && s->groups[group - 1].lr != s->lr) lr *= s->groups[group - 1].lr / s->lr;
  return (struct pd_rate){.lr = lr, .ahead = s->ahead, .damping = s->damping};
}

/* W(t - 1); NULL: steps are not damped. */
static const void *weights_before(int64_t t) {
  const struct pd_stage *s = pd.stage;
  if (!(s->damping > 0) || t == 0) return NULL;
  return pd.arena + s->weights + (size_t)((t - 1) % s->versions) * s->weights_stride;
}

const void *pd_group_arguments(const struct pd_stage *s, int group) {
  return group ? s->groups[group - 1].arguments : s->arguments;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define MEMBER(rule, optimizer, moments) struct pd_##optimizer##_step rule;
union step {
  PD_ELEMENT_RULES(MEMBER)
};

/* Compiled once for both targets, so that both use bit-identical constants. */
#define OPTIMIZER(rule, optimizer, moments)                                                                     \
  static void rule##_constants(const void *arguments, struct pd_rate rate, int64_t t, float scale, bool decays, \
                               void *to) {                                                                      \
    *(struct pd_##optimizer##_step *)to = pd_##optimizer##_constants(arguments, rate, t, scale, decays);        \
  }                                                                                                             \
  const struct pd_optimizer pd_##rule = {.name = #rule,                                                         \
                                         .by_elements = PD_RULE_##rule,                                         \
                                         .constants = rule##_constants};
PD_ELEMENT_RULES(OPTIMIZER)

/* ---- updates --------------------------------------------------------------------------------- */

/* With masters, the update changes the masters, and the working copies follow. */
static void update_tensor(const struct pd_rules *rules, const struct pd_update_arrays *u,
                          const struct pd_parameter *p, float scale) {
  const struct pd_stage *s = pd.stage;
  char *master = pd_state_at(s->masters, p);
  struct pd_tensor_update x = {
      .parameter = p,
      .arguments = pd_group_arguments(s, p->group),
      .t = u->t,
      .rate = pd_group_rate(s, p->group, u->t),
      .scale = scale,
      .from = (const float *)(s->has_masters ? master : (const char *)u->from + p->offset),
      .to = (float *)(s->has_masters ? master : (char *)u->to + p->offset),
      .gradient = pd_gradient_at(p, u->t, u->gradient),
      .scratch = s->scratch ? pd.arena + s->scratch : NULL,
  };
  for (int i = 0; i < s->n_moments; i++) x.moment[i] = pd_moment_at(p, i);
  (rules->tensor ? rules->tensor : s->optimizer->tensor)(&x);
}

static void update_tensors(const struct pd_rules *rules, const struct pd_update_arrays *u, float scale) {
  const struct pd_stage *s = pd.stage;
  for (int i = u->first; i < u->end; i++)
    if (s->parameters[i].n_uses && !s->parameters[i].buffer && pd_own_part(&s->parameters[i]).n)
      update_tensor(rules, u, &s->parameters[i], scale);
  rules->after_tensors(u);
}

static void update_elements(const struct pd_rules *rules, struct pd_update_arrays *u, float scale) {
  const struct pd_stage *s = pd.stage;
  union step step[PD_GROUP_STEPS];
  u->n_steps = 2 * (s->n_groups + 1);
  for (int i = 0; i < u->n_steps; i++) {
    const struct pd_rate rate = pd_group_rate(s, i / 2, u->t);
    s->optimizer->constants(pd_group_arguments(s, i / 2), rate, u->t, scale, i % 2, &step[i]);
    u->step[i] = &step[i];
  }
  rules->by_elements[s->optimizer->by_elements](u);
}

void pd_update_with(const struct pd_rules *rules, int64_t t, float scale, const void *from, void *to,
                    void *gradient) {
  struct pd_update_arrays u = {.t = t, .from = from, .to = to, .gradient = gradient, .before = weights_before(t)};
  for (int group = 0; rules->next_group(group, &u.first, &u.end); group++) {
    if (pd.stage->optimizer->tensor)
      update_tensors(rules, &u, scale);
    else
      update_elements(rules, &u, scale);
    if (pd.stage->ema > 0) rules->average(&u);
  }
}

static bool one_group(int group, int *first, int *end) {
  *first = 0;
  *end = pd.stage->n_parameters;
  return group == 0;
}

bool pd_next_updated(int group, int *first, int *end) {
  return (pd_spills() ? pd_spill_next_updated : one_group)(group, first, end);
}

void pd_update(int64_t t, float scale, const void *from, void *to, void *gradient) {
  pd_update_with(&pd_rules, t, scale, from, to, gradient);
}

/* ---- over a stage's parameters --------------------------------------------------------------- */

static struct pd_slice updated_elements(const struct pd_parameter *p) {
  return p->frozen ? (struct pd_slice){0, 0} : pd_own_part(p);
}

void pd_deal_tiles(void) {
  const struct pd_stage *s = pd.stage;
  for (int p = 0; p < s->n_parameters; p++)
    pd_n_tiles += (int)((updated_elements(&s->parameters[p]).n + PD_TILE - 1) / PD_TILE);
  pd_tiles = pd_allocate(sizeof *pd_tiles * (size_t)pd_n_tiles);
  struct pd_tile *next = pd_tiles;
  for (int p = 0; p < s->n_parameters; p++) {
    struct pd_slice all = updated_elements(&s->parameters[p]);
    for (int64_t i = 0; i < all.n; i += PD_TILE)
      *next++ = (struct pd_tile){p, all.first + i, all.n - i < PD_TILE ? all.n - i : PD_TILE};
  }
}

int pd_first_tile(int parameter) {
  int low = 0, high = pd_n_tiles;
  while (low < high) {
    int middle = (low + high) / 2;
    if (pd_tiles[middle].parameter < parameter)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void pd_start_rule(void) {
  const struct pd_stage *s = pd.stage;
  for (int i = 0; i < s->n_parameters && s->optimizer->start; i++)
    if (s->parameters[i].n_uses && pd_is_trained(&s->parameters[i]) && pd_own_part(&s->parameters[i]).n)
      s->optimizer->start(&s->parameters[i]);
}

float *pd_use_at(const struct pd_parameter *p, int use, int64_t t, void *gradient) {
  const struct pd_use *u = &p->uses[use];
  bool here = u->stage == pd.stage->stage;
  return (float *)((here ? (char *)gradient : pd.arena + pd_exchange_set(t)) + u->offset);
}

float *pd_gradient_at(const struct pd_parameter *p, int64_t t, void *gradient) {
  return p->n_uses ? pd_use_at(p, p->n_uses - 1, t, gradient) : NULL;
}

static const struct pd_moment *own_moment(const struct pd_parameter *p, int i) {
  const struct pd_stage *s = pd.stage;
  return s->own_moments ? &s->own_moments[(p - s->parameters) * s->n_moments + i] : NULL;
}

float *pd_moment_at(const struct pd_parameter *p, int i) {
  const struct pd_stage *s = pd.stage;
  const struct pd_moment *own = own_moment(p, i);
  if (own && !pd_moment_shape(p, i).elements) return NULL;
  if (own) return (float *)(pd.arena + own->offset);
  return (float *)pd_state_at(s->moments + (size_t)i * s->moments_stride, p);
}

struct pd_shape pd_moment_shape(const struct pd_parameter *p, int i) {
  const struct pd_moment *own = own_moment(p, i);
  struct pd_shape shape = {.rank = own ? own->rank : p->rank, .elements = 1};
  for (int j = 0; j < shape.rank; j++) {
    shape.dim[j] = own ? own->dim[j] : p->dim[j];
    shape.elements *= shape.dim[j];
  }
  return shape;
}

size_t pd_moments_bytes(void) {
  const struct pd_stage *s = pd.stage;
  size_t bytes = (size_t)s->n_moments * s->moments_stride;
  if (!s->own_moments) return bytes;
  bytes = 0;
  for (int p = 0; p < s->n_parameters; p++)
    for (int i = 0; i < s->n_moments && pd_is_trained(&s->parameters[p]); i++) {
      size_t size = (size_t)pd_moment_shape(&s->parameters[p], i).elements * sizeof(float);
      if (!size) continue;
      size_t end = (size_t)((char *)pd_moment_at(&s->parameters[p], i) - pd.arena) - s->moments + size;
      bytes = end > bytes ? end : bytes;
    }
  return bytes;
}

/* ---- what an update writes at once, for --audit ------------------------------------------------- */

/* A tile's weights, moments, and the working copy or the average. */
size_t pd_update_tile_copy_bytes(void) { return (size_t)(2 + pd.stage->n_moments) * PD_TILE * sizeof(float); }

size_t pd_update_copy_bytes(void) {
  const struct pd_stage *s = pd.stage;
  int tiles = pd_rules.at_once ? pd_rules.at_once : s->threads > 0 ? s->threads : 1;
  size_t most = pd_update_tile_copy_bytes() * (size_t)tiles;
  for (int i = 0; i < s->n_parameters && s->optimizer->tensor; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    size_t elements = pd_is_trained(p) ? (size_t)p->elements : 0;
    for (int j = 0; j < s->n_moments && elements; j++)
      elements += pd_moment_at(p, j) ? (size_t)pd_moment_shape(p, j).elements : 0;
    if (elements * sizeof(float) > most) most = elements * sizeof(float);
  }
  return most;
}

bool pd_in_norm(const struct pd_parameter *p) {
  return p->n_uses && p->owner == pd.stage->stage && (!pd.replica || pd.stage->shards) && !p->buffer &&
         (p->runs || !pd.tensor_rank);
}

int64_t pd_following(int64_t first_sample) {
  const struct pd_stage *s = pd.stage;
  return s->microbatches - 1 - (first_sample - pd_sample_base) / s->microbatch % s->microbatches;
}
