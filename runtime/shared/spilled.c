/* The order of a batch's steps with offload. */
#include "shared/spilled.h"

/* By group: the part whose backward pass completes its gradients; -1: none, or other stages send gradients. If the
 * host computes squares, the gradients are written during the next part's backward pass. */
static int *parts_before_squares(const struct pd_batch *b, const struct pd_block *block, int n,
                                 void *(*take)(size_t bytes)) {
  int *part = take((size_t)(b->groups + 1) * sizeof *part);
  for (int g = 0; g < b->groups; g++) part[g] = b->parts;
  for (int i = 0; i < n; i++) {
    const int g = block[i].group;
    if (g < 0 || block[i].kind != PD_BLOCK_GRADIENT) continue;
    const int first = __builtin_ctzll(block[i].parts), behind = b->at_home && first > 0 ? first - 1 : first;
    part[g] = behind < part[g] ? behind : part[g];
  }
  for (int i = 0; i < n; i++)
    if (block[i].group >= 0 && block[i].shared) part[block[i].group] = -1;
  for (int g = 0; g < b->groups; g++)
    if (part[g] == b->parts) part[g] = -1;
  return part;
}

static void add_unit(struct pd_batch *b, int unit) {
  const bool forward = unit < pd_forward_units(b);
  b->unit[unit] = b->steps;
  for (int64_t i = 0; i < b->microbatches; i++) /* they count from 1 */
    b->step[b->steps++] = (struct pd_step){.kind = forward ? PD_STEP_FORWARD : PD_STEP_BACKWARD,
                                           .part = forward ? unit : pd_batch_units(b) - 1 - unit,
                                           .slot = (int)((i + 1) % b->microbatches),
                                           .first = i == 0,
                                           .group = -1};
}

static void add_squares(struct pd_batch *b, const int *behind, int part) {
  for (int g = 0; g < b->groups; g++) {
    if (behind[g] != part) continue;
    b->square[g] = b->steps;
    b->step[b->steps++] =
        (struct pd_step){.kind = PD_STEP_SQUARE, .part = part, .group = g, .at_home = b->at_home};
  }
}

void pd_batch_order(struct pd_batch *b, const struct pd_block *block, int n, void *(*take)(size_t bytes)) {
  const int units = pd_batch_units(b), *behind = parts_before_squares(b, block, n, take);
  b->step = take((size_t)(units * b->microbatches + 2 * b->groups) * sizeof *b->step);
  b->unit = take((size_t)units * sizeof *b->unit);
  b->square = take((size_t)(b->groups + 1) * sizeof *b->square);
  b->steps = 0;
  for (int unit = 0; unit < units; unit++) {
    add_unit(b, unit);
    if (unit >= pd_forward_units(b)) add_squares(b, behind, units - 1 - unit);
  }
  add_squares(b, behind, -1);
  for (int g = 0; g < b->groups; g++)
    b->step[b->steps++] = (struct pd_step){.kind = PD_STEP_UPDATE, .group = g, .at_home = b->at_home};
}
