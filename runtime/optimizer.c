/* Learning rates and the optimizers' constants; how a stage's parameters are dealt into chunks and where their
 * gradients stand. What is done with every element is the target's (host/optimizer.c, cuda/optimizer.cu). */
#include "internal.h"
#include "kernels/pd_math.h"

#include <math.h>

struct pd_chunk *pd_chunks;
int pd_n_chunks;

/* nanoGPT's rule: (t + 1) / (warmup + 1) of the rate while t < warmup, then down to the floor, which is
 * reached at t = total and kept. */
double pd_learning_rate(const struct pd_stage *s, int64_t t) {
  if (t < s->lr_warmup) return s->lr * (double)(t + 1) / (double)(s->lr_warmup + 1);
  if (s->rate == PD_LR_CONSTANT) return s->lr;
  if (t >= s->lr_total) return s->lr_floor;
  double part = (double)(t - s->lr_warmup) / (double)(s->lr_total - s->lr_warmup);
  double left = s->rate == PD_LR_LINEAR ? 1 - part : 0.5 * (1 + cos(M_PI * part));
  return s->lr_floor + left * (s->lr - s->lr_floor);
}

/* ---- constants ------------------------------------------------------------------------------- */

/* torch.optim.AdamW: w = w keep; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g;
 * w -= step_size m / (sqrt(v) / root2 + eps), with bias corrections in step_size and root2. */
struct pd_adamw_step pd_adamw_constants(const struct pd_stage *s, int64_t t, float scale, bool decays) {
  double lr = pd_learning_rate(s, t), step = (double)(t + 1);
  return (struct pd_adamw_step){
    .scale = scale,
    .keep = decays ? (float)(1 - lr * s->weight_decay) : 1.0f,
    .beta1 = (float)s->beta1,
    .rest1 = (float)(1 - s->beta1),
    .beta2 = (float)s->beta2,
    .rest2 = (float)(1 - s->beta2),
    .step_size = (float)(lr / (1 - pow(s->beta1, step))),
    .root2 = (float)sqrt(1 - pow(s->beta2, step)),
    .eps = (float)s->eps,
  };
}

/* ---- over a stage's parameters --------------------------------------------------------------- */

void pd_deal_chunks(void) {
  const struct pd_stage *s = pd.stage;
  for (int p = 0; p < s->n_parameters; p++)
    pd_n_chunks += (int)((s->parameters[p].elements + PD_CHUNK - 1) / PD_CHUNK);
  pd_chunks = pd_allocate(sizeof *pd_chunks * (size_t)pd_n_chunks);
  struct pd_chunk *next = pd_chunks;
  for (int p = 0; p < s->n_parameters; p++)
    for (int64_t first = 0, all = s->parameters[p].elements; first < all; first += PD_CHUNK)
      *next++ = (struct pd_chunk){p, first, all - first < PD_CHUNK ? all - first : PD_CHUNK};
}

float *pd_use_at(const struct pd_parameter *p, int use, int64_t t, void *gradient) {
  const struct pd_use *u = &p->uses[use];
  bool here = u->stage == pd.stage->stage;
  return (float *)((here ? (char *)gradient : pd.arena + pd_exchange_set(t)) + u->offset);
}

float *pd_gradient_at(const struct pd_parameter *p, int64_t t, void *gradient) {
  return p->n_uses ? pd_use_at(p, p->n_uses - 1, t, gradient) : NULL;
}

bool pd_in_norm(const struct pd_parameter *p) {
  return p->n_uses && p->owner == pd.stage->stage && !pd.replica && !p->buffer;
}

int64_t pd_following(int64_t first_sample) {
  const struct pd_stage *s = pd.stage;
  return s->microbatches - 1 - (first_sample - pd_sample_base) / s->microbatch % s->microbatches;
}
