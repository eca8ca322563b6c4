/* Derives kinds and lifetimes of buffers from the passes that write and read them. */
#include "fuse/internal.h"

enum { NEVER = -1 };

/* First and last use of a buffer in each list; setup is the list before PASS_FORWARD. */
typedef struct Use {
  int first[PASS_KINDS + 1], last[PASS_KINDS + 1];
  int region;   /* of these kernels; -1: none */
  bool several; /* several regions use it */
} Use;

static Use *find_uses(const StageKernels *k) {
  const Kernels *lists[] = {&k->setup, &k->forward, &k->backward, &k->weights};
  Use *uses = alloc(sizeof *uses * (size_t)(k->buffers.n + 1));
  for (int i = 0; i < k->buffers.n; i++) {
    uses[i].region = -1;
    for (int list = 0; list <= PASS_KINDS; list++)
      uses[i].first[list] = uses[i].last[list] = NEVER;
  }
  for (int list = 0; list <= PASS_KINDS; list++)
    for (int i = 0; i < lists[list]->n; i++) {
      int region = lists[list]->at[i].region;
      for (Access a = {0}; next_access(&lists[list]->at[i], &a);) {
        Use *use = &uses[a.place->buffer];
        if (use->first[list] == NEVER)
          use->first[list] = i;
        use->last[list] = i;
        use->several |= use->region >= 0 && use->region != region;
        use->region = region;
      }
    }
  return uses;
}

/* The kind of a value local to the stage, by the pass that writes it and the last that reads it. */
static BufferKind local_kind(bool backward, PassKind last) {
  if (last == PASS_WEIGHTS)
    return backward ? BUFFER_DEFERRED : BUFFER_KEPT;
  return !backward && last == PASS_BACKWARD ? BUFFER_SAVED : BUFFER_TEMPORARY;
}

static int param_region(const StageKernels *k, Name name) {
  for (int r = 0; r < k->regions.n; r++)
    if (k->regions.at[r].path[0] && relative(name, k->regions.at[r].path) != name)
      return r;
  return -1;
}

void find_lifetimes(StageKernels *k) {
  const Use *uses = find_uses(k);
  for (int i = 0; i < k->buffers.n; i++) {
    Buffer *b = &k->buffers.at[i];
    const Use *use = &uses[i];
    int made = 0, last = PASS_KINDS;
    while (made < PASS_KINDS && use->first[made] == NEVER)
      made++;
    while (last > 0 && use->last[last] == NEVER)
      last--;
    b->first = use->first[made];
    b->last = use->last[last];
    b->late = use->last[1 + PASS_WEIGHTS] != NEVER;
    if (b->kind == BUFFER_TEMPORARY) {
      b->backward = made == 1 + PASS_BACKWARD;
      b->kind = local_kind(b->backward, (PassKind)(last - 1));
      b->region = use->several ? -1 : use->region;
    }
    if (is_parameter(b->kind) || b->kind == BUFFER_ACCUMULATOR)
      b->region = param_region(k, k->graph->params.at[b->param].name);
  }
}
