/* Sixteen lanes of float: the unit in which emitted loops and attention add up. Element j of a row
 * belongs to lane j % 16; lanes are added (or compared) by halves, 16 -> 8 -> 4 -> 2 -> 1, so that the
 * result does not depend on the machine's vector width. */
#ifndef PD_LANES_H
#define PD_LANES_H

#include "kernels/pd_math.h"

enum { PD_LANES = 16 };

static inline float pd_lanes_sum(const float lane[PD_LANES]) {
  float sum[PD_LANES / 2];
  for (int i = 0; i < 8; i++) sum[i] = lane[i] + lane[i + 8];
  for (int i = 0; i < 4; i++) sum[i] += sum[i + 4];
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

static inline float pd_lanes_max(const float lane[PD_LANES]) {
  float max[PD_LANES / 2];
  for (int i = 0; i < 8; i++) max[i] = pd_max(lane[i], lane[i + 8]);
  for (int i = 0; i < 4; i++) max[i] = pd_max(max[i], max[i + 4]);
  return pd_max(pd_max(max[0], max[2]), pd_max(max[1], max[3]));
}

#endif
