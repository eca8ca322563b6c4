/* The stage of chain.c: its sizes, its arena, and the passes over it, which chain_work.c does on the host and
 * tests/cuda/transfers/chain_work.cu on a device. Pointers are to the arena. */
#ifndef CHAIN_H
#define CHAIN_H

#include "pd_runtime.h"

#include <stddef.h>

enum { WIDTH = 8, B = 2, N = B * WIDTH };
enum { HEAD = STAGE == 0, TAIL = STAGE == STAGES - 1, MIDDLE = STAGES == 1 || STAGE == 1 };

/* Microbatches that a replica has in flight, from the last stage to the first (docs/guide/schedules.md). */
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define FLIGHT(n, w, before) (((n) * (w) + MAX(w, before) - 1 + (before)) / (before))
enum { N1 = STAGES == 3 ? FLIGHT(1, W2, W1) : 1, N0 = STAGES > 1 ? FLIGHT(N1, W1, W0) : 1 };
enum { IN_FLIGHT = TAIL ? 1 : HEAD ? N0 : N1, REPLICAS = HEAD ? W0 : STAGE == 1 ? W1 : W2 };
/* Own microbatches: a batch's; by which updates follow. The last stage goes on until those before it can meet
 * it. */
enum { LAG_IF_DELAYED = HEAD ? 0 : STAGE == 1 ? 1 : (W1 + W2 - 1) / W2 + 1 };
enum { OWN = M / REPLICAS, LAG = DELAY ? LAG_IF_DELAYED : 0, SETS = 1 + LAG, VERSIONS = 1 + DELAY };
enum { ACTIVATION_SLOTS = IN_FLIGHT + 1, SENT_SLOTS = IN_FLIGHT, GRADIENT_SLOTS = 2 };

struct weights {
  float first[16], shared[16], middle[16], last[16];
}; /* 64-byte members */
struct accumulators {
  float first[16], shared_0[16], middle[16], shared_1[16], last[16];
};
enum { LINES = sizeof(struct accumulators) / 64, SHARD = (LINES + REPLICAS - 1) / REPLICAS * 16 };
#ifndef PADDING
#define PADDING 0 /* floats that make messages larger */
#endif
struct slot {
  float padding[PADDING], x[N];
};
struct exchange {
  float remote[16]; /* the other stage's gradient of `shared` */
  float shards[REPLICAS - 1][SHARD];
};

struct arena {
  struct weights weights[VERSIONS], moment1, moment2;
  struct accumulators accumulators[SETS], part[MAX(P0, MAX(P1, P2))];
  struct exchange exchange[SETS];
  struct slot received[ACTIVATION_SLOTS], sent[SENT_SLOTS], gradient_in[GRADIENT_SLOTS],
      gradient_out[GRADIENT_SLOTS];
  struct slot input[IN_FLIGHT], target[IN_FLIGHT], product[IN_FLIGHT], between[IN_FLIGHT], y[IN_FLIGHT], loss;
  struct slot validated[5]; /* input, target, product, what is between, y */
};

#ifdef __cplusplus
extern "C" {
#endif

/* The microbatch's forward pass; reads x, or `in` where it was received; leaves y, or `out` to be sent. */
void chain_forward(const struct weights *w, const float *x, const float *in, float *product, float *out, float *y);
void chain_losses(const float *y, const float *target, float *losses);
/* From the slots of a microbatch, and g where it was received; adds to the parts of the three stages' gradients
 * and leaves g_out where it is sent. */
struct chain_microbatch {
  const float *input, *target, *product, *between, *y, *g;
};
void chain_backward(const struct weights *w, struct chain_microbatch m, struct accumulators *part0,
                    struct accumulators *part1, struct accumulators *part2, float *g_out);
void chain_copy(float *to, const float *from); /* N floats */
void chain_clear(struct accumulators *parts, int n);
/* to[0 ... 15] = the sum of w parts' in their order: the first's are at `parts`. */
void chain_add_parts(float *to, const float *parts, int w);

#ifdef __cplusplus
}
#endif

#endif
