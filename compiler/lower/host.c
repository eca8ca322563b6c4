/* Maps a loop to a processor's threads, from its shape alone: sums are equal at any number of threads. */
#include "lower/internal.h"
#include "pd_kernels.h"

enum {
  PARALLEL_ELEMENTS = 32768, /* least elements for which a second thread pays */
  TASK_ELEMENTS = 16384,     /* least elements of a share */
  STACK_FLOATS = 4096        /* most floats of partial sums on the stack */
};

/* Whether threads can share rows, groups or columns of a loop without tiles, with a benefit. */
static bool worth_sharing(const Kernel *k, const LoopShape *s) {
  if (k->n_dims == 0 || s->elements < PARALLEL_ELEMENTS)
    return false;
  return k->n_dims == 1 ? k->phases == 1 && s->sums == 0 && !s->reduces : s->groups > 1;
}

static void place_sums(const Lowered *l, HostLoop *h) {
  int64_t at = 0;
  h->sum_at = alloc((size_t)(l->kernel->stores.n + 1) * sizeof *h->sum_at);
  for (int i = l->shape->group_dims - 1; i >= 0; i--)
    h->sum_stride[i] = product(l->kernel->dim, i + 1, l->shape->group_dims) * l->shape->sums;
  for (int i = 0; i < l->kernel->stores.n; i++)
    if (l->shape->store[i].summed) {
      h->sum_at[i] = at;
      at += (l->shape->store[i].sums + LANES - 1) / LANES * LANES;
    }
}

static void lower_loop(const StageKernels *stage, Lowered *l) {
  const Kernel *k = l->kernel;
  const LoopShape *s = l->shape;
  HostLoop *h = alloc(sizeof *h);
  (void)stage;
  h->tiled = s->group_dims == 0 && k->tiles > 1 && s->sums > 0;
  h->parallel = h->tiled && s->elements >= PARALLEL_ELEMENTS;
  h->ranged = h->tiled || worth_sharing(k, s);
  if (h->ranged && !h->tiled) {
    h->ways = k->n_dims == 1 ? s->columns : s->groups;
    int64_t each = s->elements / h->ways;
    h->share = (TASK_ELEMENTS + each - 1) / each;
  }
  h->in_scratch = h->tiled || s->sums > STACK_FLOATS;
  place_sums(l, h);
  if (h->in_scratch)
    l->scratch_bytes = (h->tiled ? k->tiles : s->groups) * s->sums * 4;
  l->host = h;
}

/* ---- calls: the runtime's own kernels are linked into pdc for queries --------------------------- */

static int64_t matmul(const struct pd_matmul_shape *s) { return (int64_t)pd_matmul_scratch(pd_matmul_new(*s)); }
static int64_t convolution(const struct pd_convolution_shape *s) {
  return (int64_t)pd_convolution_scratch(pd_convolution_new(*s));
}
static int64_t attention(const struct pd_attention *a, int threads, const Workspaces *planned) {
  (void)planned;
  return (int64_t)pd_attention_scratch(a, threads);
}
static int64_t lstm(const struct pd_lstm *l) { return (int64_t)pd_lstm_scratch(l); }
static int64_t lstm_backward(const struct pd_lstm *l) { return (int64_t)pd_lstm_backward_scratch(l); }

static int64_t experts(const struct pd_experts *e, int threads) {
  return (int64_t)pd_expert_linear_scratch(e, threads);
}
static int64_t experts_weights(const struct pd_experts *e, int threads) {
  return (int64_t)pd_expert_linear_weights_scratch(e, threads);
}

static const Library library = {.matmul = matmul,
                                .convolution = convolution,
                                .attention = attention,
                                .attention_backward = attention,
                                .lstm = lstm,
                                .lstm_backward = lstm_backward,
                                .experts = experts,
                                .experts_weights = experts_weights,
                                .told_types = true,
                                .sees_others = true};

const Lowering host_lowering = {.loop = lower_loop,
                                .library = &library,
                                .now_words = 1u << WORD_SAMPLE | 1u << WORD_FOLLOWING};
