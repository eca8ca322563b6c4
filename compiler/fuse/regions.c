/* Regions: runs of forward nodes of one indexed instance ("h.3"), or of consecutive other nodes, and their
 * kernels. */
#include <stdlib.h>
#include <string.h>

#include "fuse/internal.h"

const char *index_in(const char *path) {
  for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
    size_t digits = strspn(dot + 1, "0123456789");
    if (digits > 0 && (dot[1 + digits] == 0 || dot[1 + digits] == '.'))
      return dot + 1;
  }
  return NULL;
}

const char *relative(const char *path, const char *region) {
  size_t n = strlen(region);
  if (n == 0 || strncmp(path, region, n) || (path[n] && path[n] != '.'))
    return path;
  return path[n] ? path + n + 1 : "";
}

Name region_path(Name path) {
  const char *index = index_in(path);
  return intern_n(path, index ? (size_t)(index - path) + strspn(index, "0123456789") : 0);
}

int region_at(StageKernels *k, Name path, bool once) {
  const char *index = index_in(path);
  size_t before = index ? (size_t)(index - path) : 0;
  Name key = region_path(path);
  const Region *last = k->regions.n ? &k->regions.at[k->regions.n - 1] : NULL;
  if (!last || last->path != key || last->once != once) {
    Region r = {
        .path = key, .index = index ? (int)strtol(index, NULL, 10) : -1, .like = k->regions.n, .once = once};
    r.family = index ? intern_n(path, before - 1) : key;
    push(&k->regions, r);
  }
  return k->regions.n - 1;
}

void find_region_ranges(StageKernels *k) {
  for (int r = 0; r < k->regions.n; r++) {
    Region *region = &k->regions.at[r];
    for (PassKind pass = 0; pass < PASS_KINDS; pass++) {
      const Kernels *kernels = pass_kernels(k, pass);
      int first = 0, end;
      while (first < kernels->n && kernels->at[first].region != r)
        first++;
      for (end = first; end < kernels->n && kernels->at[end].region == r;)
        end++;
      region->first[pass] = first;
      region->end[pass] = end;
    }
  }
}

/* The last kernel of the kernel's region if that is one call, because nothing can be printed within it. */
static int end_of_call(const StageKernels *k, int kernel) {
  const int r = k->backward.at[kernel].region;
  return r >= 0 && k->regions.at[r].index >= 0 ? k->regions.at[r].end[PASS_BACKWARD] - 1 : kernel;
}

/* A buffer that backward does not use is complete before the pass, and joins the first completed buffers. */
void find_completions(StageKernels *k) {
  for (int i = 0; i < k->buffers.n && k->backward.n; i++)
    k->buffers.at[i].complete = end_of_call(k, 0);
  for (int i = 0; i < k->backward.n; i++)
    for (Access a = {0}; next_access(&k->backward.at[i], &a);)
      k->buffers.at[a.place->buffer].complete = end_of_call(k, i);
}
