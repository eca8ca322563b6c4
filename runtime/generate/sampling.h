/* The choice of the next token from a model's logits. */
#ifndef PD_SAMPLING_H
#define PD_SAMPLING_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What Hugging Face's logits warpers do, in their order: temperature, then top-k, then top-p. */
struct pd_sampling {
  float temperature; /* logits are divided by it; 0: the largest logit is taken, and the rest is ignored */
  int64_t top_k;     /* only tokens whose logit is at least the k-th largest one; 0: all */
  float top_p;       /* of these the most probable ones, until their probabilities add up to p; 1: all */
};

/* The token chosen among n logits, [0, n); the lowest of equals when temperature is 0. The choice is Philox's,
 * keyed by seed and counted by sample and position: it depends on nothing else but the logits. -1: a logit is NaN
 * or +inf, or all are -inf. `order`: room for n numbers. */
int64_t pd_choose_token(const float *logits, int64_t n, const struct pd_sampling *s, uint64_t seed, int64_t sample,
                        int64_t position, int32_t *order);

#ifdef __cplusplus
}
#endif

#endif
