/* Continuation of a prompt, with the tokens and the bits of `generate` for one sample (generate/generate.c): a microbatch
 * has rows of the prompt, or one drawn token. */
#include "data/data.h"
#include "generate/sampling.h"
#include "kernels/pd_bf16.h"
#include "library/library.h"

#include <string.h>

/* A sequence under way: the prompt, then drawn tokens. */
struct sequence {
  struct pd_instance *x;
  const struct pd_generation *g;
  int32_t *tokens;
  int64_t n, fed; /* tokens that are known, and of these fed */
};

static bool cached(const struct sequence *s) { return s->g->position >= 0; }

/* Nothing may read an input; then it has no place. */
static void set_input(const struct sequence *s, int input, int64_t i, int32_t value) {
  const size_t at = s->x->model->inputs_at[input];
  if (at != PD_NOWHERE) ((int32_t *)(s->x->arena + at))[i] = value;
}

/* ---- the steps ------------------------------------------------------------------------------------------- */

/* An encoder's source, padded, and the inputs that are computed from it. */
static void load_source(struct pd_instance *x, const int32_t *source, int64_t n) {
  const struct pd_model *m = x->model;
  const struct pd_generation *g = m->generation;
  const struct pd_input *in = &m->inputs[g->source];
  int32_t *padded = x->source;
  for (int64_t i = 0; i < in->elements; i++) padded[i] = i < n ? source[i] : (int32_t)g->pad;
  for (int i = 0; i < m->n_inputs; i++) {
    char *to = x->arena + m->inputs_at[i];
    const bool step = i == g->tokens || (g->position >= 0 && (i == g->position || i == g->sequence));
    if (step || m->inputs_at[i] == PD_NOWHERE) continue;
    if (i == g->source) {
      memcpy(to, padded, (size_t)in->elements * sizeof *padded);
    } else {
      void *made = m->inputs[i].bf16 ? (void *)x->sample : (void *)to;
      pd_derive(m->inputs, i, padded, 0, 0, made);
      if (m->inputs[i].bf16) pd_write((pd_out){to, PD_BF16}, 0, made, m->inputs[i].elements);
    }
  }
}

/* The first tokens that caches have from an earlier prompt; the last token's logits are not kept. The cache of a window
 * holds the window's positions before a step and the step's rows: a step can begin a microbatch before the highest position. */
static int64_t in_caches(const struct sequence *s) {
  const struct pd_instance *x = s->x;
  int64_t n = 0, most = x->alike < s->n - 1 ? x->alike : s->n - 1;
  if (!cached(s)) return s->n - 1;
  if (s->g->encoder) return 0;
  while (n < most && x->held[n] == s->tokens[n]) n++;
  if (s->g->state) return n == x->end ? n : 0;
  return s->g->ring && x->end > s->g->ring && x->end - n > x->model->microbatch ? 0 : n;
}

/* Feeds tokens as rows; returns how many. */
static int64_t fill_rows(struct sequence *s, bool prompt) {
  struct pd_instance *x = s->x;
  const int64_t left = s->n - s->fed, rows = left < x->model->microbatch ? left : x->model->microbatch;
  for (int64_t r = 0; r < x->model->microbatch; r++) {
    const bool used = r < rows;
    set_input(s, s->g->tokens, r, used ? s->tokens[s->fed + r] : 0);
    set_input(s, s->g->position, r, used ? (int32_t)(s->fed + r) : 0);
    set_input(s, s->g->sequence, r, used ? 0 : 1);
  }
  memcpy(x->held + s->fed, s->tokens + s->fed, (size_t)rows * sizeof *x->held);
  if (prompt && x->alike >= s->fed) x->alike = s->fed + rows;
  if (!prompt && x->alike > s->fed) x->alike = s->fed;
  if (!s->fed) x->end = 0;
  s->fed += rows;
  if (x->end < s->fed) x->end = s->fed;
  return rows;
}

/* Without caches all known tokens are fed again. */
static void fill_window(struct sequence *s) {
  for (int64_t i = 0; i < s->g->context; i++) set_input(s, s->g->tokens, i, i < s->n ? s->tokens[i] : 0);
  s->fed = s->n;
}

/* The logits of the token behind the known ones; NULL after filling `why`. */
static const float *next_logits(struct sequence *s, bool prompt, char *why) {
  int64_t row = s->n - 1;
  const float *logits = (const float *)(s->x->arena + s->x->model->logits_at);
  while (s->fed < s->n) {
    if (cached(s))
      row = fill_rows(s, prompt) - 1;
    else
      fill_window(s);
    const bool forwards = pd_instance_forward(s->x, cached(s) && !prompt ? 1 : 0, why);
    s->x->encodes = false;
    if (!forwards) {
      s->x->alike = 0;
      return NULL;
    }
  }
  return logits + row * s->g->logits;
}

/* ---- the call -------------------------------------------------------------------------------------------- */

static bool check(const struct pd_instance *x, const int32_t *prompt, int64_t n, int64_t most,
                  const struct pd_drawing *how, char *why) {
  const struct pd_model *m = x->model;
  const struct pd_generation *g = m->generation;
  if (x->busy) return pd_refuse(why, "%s: this instance is generating", m->name);
  if (!x->loaded) return pd_refuse(why, "%s has no weights: load them first", m->name);
  const struct pd_input *source = g->encoder ? &m->inputs[g->source] : NULL;
  const int64_t room = source ? source->elements : g->context, least = source && g->pad < 0 ? room : 1,
                classes = source ? source->classes : g->classes;
  const char *what = source ? "source" : "prompt";
  if (n < least || n > room)
    return pd_refuse(why, "%s: the %s has %lld tokens, but the %s has %lld to %lld", m->name, what, (long long)n,
                     source ? "model" : "context", (long long)least, (long long)room);
  for (int64_t i = 0; i < n; i++)
    if (prompt[i] < 0 || prompt[i] >= classes)
      return pd_refuse(why, "%s: token %lld of the %s is %d, which is not 0 to %lld", m->name, (long long)i, what,
                       prompt[i], (long long)classes - 1);
  if (pd_padding_alone(g, prompt, n))
    return pd_refuse(why, "%s: the source has only the padding token %lld", m->name, (long long)g->pad);
  if (most < 0) return pd_refuse(why, "%s: %lld new tokens", m->name, (long long)most);
  if (!(how->temperature >= 0) || how->top_k < 0 || !(how->top_p >= 0 && how->top_p <= 1))
    return pd_refuse(why, "%s: temperature and top_k must be at least 0, top_p from 0 to 1", m->name);
  return true;
}

static int64_t draw(const struct sequence *s, const float *logits, const struct pd_drawing *how) {
  const struct pd_sampling sampling = {how->temperature, how->top_k, how->top_p > 0 ? how->top_p : 1};
  return pd_choose_token(logits, s->g->classes, &sampling, how->seed, 0, s->n, s->x->order);
}

static int64_t continue_it(struct sequence *s, int64_t most, const struct pd_drawing *how, pd_take_token *take,
                           void *context, char *why) {
  int64_t drawn = 0;
  for (; drawn < most && s->n <= s->g->context; drawn++) {
    const float *logits = next_logits(s, drawn == 0, why);
    if (!logits) return -1;
    const int64_t token = draw(s, logits, how);
    if (token < 0) {
      pd_refuse(why, "%s: the logits of token %lld are non-finite", s->x->model->name, (long long)s->n);
      return -1;
    }
    if (s->n < s->g->context) s->tokens[s->n] = (int32_t)token;
    s->n++;
    if ((take && take(context, (int32_t)token)) || s->x->ends) return drawn + 1;
  }
  return drawn;
}

int64_t pd_instance_generate(struct pd_instance *x, const int32_t *prompt, int64_t n, int64_t most,
                             const struct pd_drawing *how, pd_take_token *take, void *context, char *why) {
  static const struct pd_drawing greedy;
  char unseen[PD_WHY];
  why = PD_WHY_OR(why, unseen);
  if (!how) how = &greedy;
  if (!pd_instance_given(x, n > 0 ? (const void *)prompt : "", why)) return -1;
  if (!check(x, prompt, n, most, how, why)) return -1;
  struct sequence s = {.x = x, .g = x->model->generation, .tokens = x->tokens, .n = n};
  if (s.g->encoder) {
    load_source(x, prompt, n);
    x->encodes = true;
    s.n = 1;
    s.tokens[0] = (int32_t)s.g->start;
  } else {
    memcpy(s.tokens, prompt, (size_t)n * sizeof *prompt);
  }
  s.fed = in_caches(&s);
  x->busy = true;
  const int64_t drawn = continue_it(&s, most, how, take, context, why);
  x->busy = false;
  if (x->ends) pd_instance_free(x);
  return drawn;
}
