/* Queries on kernels. */
#include "fuse/kernel.h"

bool next_access(const Kernel *k, Access *a) {
  int reads = k->in.n + k->terms.n, all = reads + k->out.n + k->stores.n;
  for (a->place = NULL; !a->place && a->next < all; a->next++) {
    int i = a->next < reads ? a->next : a->next - reads;
    bool call = i < (a->next < reads ? k->in.n : k->out.n);
    a->write = a->next >= reads;
    a->index = call ? i : i - (a->write ? k->out.n : k->in.n);
    if (call)
      a->place = a->write ? &k->out.at[i] : &k->in.at[i];
    else if (a->write)
      a->place = &k->stores.at[a->index].place;
    else if (k->terms.at[a->index].kind == TERM_LOAD)
      a->place = &k->terms.at[a->index].place;
  }
  return a->place;
}

static void mark(const Kernel *k, bool *live, int term) {
  if (live[term])
    return;
  live[term] = true;
  for (int i = 0; i < k->terms.at[term].n_in; i++)
    mark(k, live, k->terms.at[term].in[i]);
}

bool *live_terms(const Kernel *k) {
  bool *live = alloc((size_t)k->terms.n + 1);
  for (int i = 0; i < k->stores.n; i++)
    mark(k, live, k->stores.at[i].term);
  return live;
}

bool kernels_conflict(const Kernel *a, const Kernel *b) {
  for (Access x = {0}; next_access(a, &x);)
    for (Access y = {0}; next_access(b, &y);)
      if (x.place->buffer == y.place->buffer && (x.write || y.write))
        return true;
  return false;
}

bool kernel_is_collective(const Kernel *k) { return k->kind == KERNEL_CALL && k->node->op->collective; }

bool kernel_touches(const Kernel *k, int buffer) {
  for (Access a = {0}; next_access(k, &a);)
    if (a.place->buffer == buffer)
      return true;
  return false;
}

Ints chunk_buffers(const StageKernels *k, const Ints *buffers, int chunk) {
  Ints list = {0};
  for (int i = 0; i < buffers->n; i++)
    if (k->buffers.at[buffers->at[i]].chunk == chunk)
      push(&list, buffers->at[i]);
  return list;
}
