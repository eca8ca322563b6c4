/* The choice of the next token from a model's logits. */
#ifndef PD_SAMPLING_H
#define PD_SAMPLING_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Hugging Face's logits warpers, in their order: temperature, top-k, top-p. */
struct pd_sampling {
  float temperature; /* divisor of the logits; 0: choose the largest logit, ignore top_k and top_p */
  int64_t top_k;     /* keep tokens whose logit is at least the kth largest; 0: all */
  float top_p;       /* then keep the most probable tokens up to a total probability of p; 1: all */
};

/* Chooses a token in [0, n) from n logits; the lowest of equals at temperature 0. The random number is Philox's,
 * keyed by seed and counted by sample and position, so that the choice depends only on these and the logits. -1: a
 * logit is NaN or +inf, or all are -inf. `order`: room for n numbers. */
int64_t pd_choose_token(const float *logits, int64_t n, const struct pd_sampling *s, uint64_t seed, int64_t sample,
                        int64_t position, int32_t *order);

/* Natural logarithms of probabilities, those of the logits at temperature 1: of the chosen token, and of the n most
 * probable ones in order. */
enum { PD_MOST_LOGPROBS = 20 };
struct pd_logprobs {
  float chosen;
  int32_t n, token[PD_MOST_LOGPROBS];
  float logprob[PD_MOST_LOGPROBS];
};
void pd_take_logprobs(const float *logits, int64_t n, int64_t chosen, int32_t most, struct pd_logprobs *to);

#ifdef __cplusplus
}
#endif

#endif
