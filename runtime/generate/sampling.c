/* A heap of token numbers gives the most probable tokens in order, and only as many as top-k and top-p keep, so
 * that the vocabulary is not sorted for each token. Logits are not changed; probabilities are in double. */
#include "sampling.h"

#include "../kernels/pd_math.h"

#include <math.h>
#include <stdbool.h>

/* Tokens in the heap [0, n), followed by the tokens taken: the largest is last. */
struct heap {
  const float *logits;
  int32_t *at;
  int64_t n;
};

/* True if token a precedes b: larger logit, or equal logit and lower number. */
static bool comes_before(const struct heap *h, int32_t a, int32_t b) {
  float x = h->logits[a], y = h->logits[b];
  return x > y || (x == y && a < b);
}

static void sink(struct heap *h, int64_t i) {
  int32_t token = h->at[i];
  for (int64_t child; (child = 2 * i + 1) < h->n; i = child) {
    if (child + 1 < h->n && comes_before(h, h->at[child + 1], h->at[child])) child++;
    if (comes_before(h, token, h->at[child])) break;
    h->at[i] = h->at[child];
  }
  h->at[i] = token;
}

static void make_heap(struct heap *h) {
  for (int64_t i = h->n / 2 - 1; i >= 0; i--) sink(h, i);
}

/* Removes the next token from the heap, which is not empty. */
static int32_t take(struct heap *h) {
  int32_t token = h->at[0];
  h->at[0] = h->at[--h->n];
  h->at[h->n] = token;
  if (h->n) sink(h, 0);
  return token;
}

/* The index of the largest logit, the lowest of equals; -1: none. */
static int64_t largest(const float *logits, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; i++) {
    if (isnan(logits[i]) || logits[i] == INFINITY) return -1;
    if (logits[i] > (best < 0 ? -INFINITY : logits[best])) best = i;
  }
  return best;
}

/* In [0, 1), with 53 bits. */
static double uniform(uint64_t seed, int64_t sample, int64_t position) {
  static const uint64_t purpose = 0x746f6b656e730000u; /* a key that no other use of Philox has */
  pd_random r = pd_philox((uint32_t)position, (uint32_t)((uint64_t)position >> 32), (uint32_t)sample,
                          (uint32_t)((uint64_t)sample >> 32), pd_mix(seed, purpose));
  return (double)((uint64_t)r.word[0] << 21 | r.word[1] >> 11) * 0x1p-53;
}

/* Takes the first k tokens in order, and tokens equal to the last of them. */
static void keep_top_k(struct heap *h, int64_t k) {
  float least = 0;
  for (; h->n && (k > 0 || h->logits[h->at[0]] == least); k--) least = h->logits[take(h)];
}

int64_t pd_choose_token(const float *logits, int64_t n, const struct pd_sampling *s, uint64_t seed, int64_t sample,
                        int64_t position, int32_t *order) {
  int64_t best = largest(logits, n);
  if (best < 0 || !(s->temperature > 0)) return best;
  struct heap h = {logits, order, 0};
  for (int64_t i = 0; i < n; i++)
    if (logits[i] > -INFINITY) order[h.n++] = (int32_t)i;
  int64_t all = h.n, first = 0; /* order[first, all): remaining tokens, most probable last */
  bool some = s->top_k > 0 && s->top_k < all;
  if (some || s->top_p < 1) make_heap(&h);
  if (some) {
    keep_top_k(&h, s->top_k);
    first = h.n;
  }
  double top = logits[best], t = s->temperature, sum = 0;
  for (int64_t i = all - 1; i >= first; i--) sum += exp((logits[order[i]] - top) / t);
  if (s->top_p < 1) { /* keeps a token while the preceding ones have a total below p */
    double before = 0;
    int64_t i = all;
    do {
      if (!some) take(&h);
      before += exp((logits[order[--i]] - top) / t);
    } while (i > first && before < s->top_p * sum);
    first = i;
    sum = before;
  }
  double u = uniform(seed, sample, position) * sum;
  int64_t i = all - 1;
  for (double below = 0; i > first; i--)
    if (u < (below += exp((logits[order[i]] - top) / t))) break;
  return order[i];
}

/* Keeps the `most` largest logits of those before, in order; the lower token of equals first. */
static void keep(struct pd_logprobs *to, int32_t most, int32_t token, float logit) {
  int32_t at = to->n;
  while (at > 0 && logit > to->logprob[at - 1]) at--;
  if (at >= most) return;
  to->n += to->n < most;
  for (int32_t i = to->n - 1; i > at; i--) to->token[i] = to->token[i - 1], to->logprob[i] = to->logprob[i - 1];
  to->token[at] = token, to->logprob[at] = logit;
}

void pd_take_logprobs(const float *logits, int64_t n, int64_t chosen, int32_t most, struct pd_logprobs *to) {
  double top = -INFINITY, sum = 0;
  *to = (struct pd_logprobs){0};
  for (int64_t i = 0; i < n; i++) {
    top = fmax(top, logits[i]);
    keep(to, most, (int32_t)i, logits[i]);
  }
  for (int64_t i = 0; i < n; i++) sum += exp(logits[i] - top);
  double all = top + log(sum);
  to->chosen = (float)(logits[chosen] - all);
  for (int32_t i = 0; i < to->n; i++) to->logprob[i] = (float)(to->logprob[i] - all);
}
