/* --features: sources of numbers, such as spectrograms, from a .npy or .npz array. */
#include "data/data.h"
#include "generate/internal.h"
#include "shared/read_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads the array of a mapped file; *unpacked is malloc'd for one that is deflated. */
static bool parse(struct pd_array *a, const char *name, char **unpacked, char *why) {
  struct pd_zip_entry e;
  if (!pd_is_zip(a)) return pd_parse_npy(a, why);
  if (!pd_npz_find(a, name, true, &e, why) || !pd_npz_open(a, &e, why)) return false;
  if (e.packed == e.size) return pd_parse_npy(a, why);
  *unpacked = pd_own(NULL, (size_t)e.size);
  return pd_npz_unpack(a, &e, *unpacked, why) && pd_parse_npy(a, why);
}

/* An array of one source, without an axis of sources. */
static void add_axis(struct pd_array *a, const struct pd_input *in) {
  if (a->rank + 1 != in->rank || a->rows != in->dim[0]) return;
  for (int i = 0; i < a->rank; i++)
    if (a->dim[i] != in->dim[i + 1]) return;
  memcpy(a->dim, in->dim, sizeof *a->dim * (size_t)in->rank);
  a->rank = in->rank;
  a->row *= a->rows;
  a->stride *= a->rows;
  a->rows = 1;
}

static bool take(const struct pd_array *a, const struct pd_input *in, const int32_t *tokens, int64_t n,
                 char *why) {
  const size_t bytes = sizeof(float) * (size_t)in->elements;
  for (int64_t row = 0; row < a->rows; row++) {
    float *x = pd_own(NULL, bytes);
    pd_read_numbers(a, row, 1, x);
    for (int64_t i = 0; i < in->elements; i++)
      if (!isfinite(x[i]))
        return pd_refuse(why, "'%s': source %lld has the number %g", a->path, (long long)row, (double)x[i]);
    const size_t room = sizeof *tokens * (size_t)n;
    pd_request_add_features(x, memcpy(pd_own(NULL, room), tokens, room), n);
  }
  return a->rows > 0 || pd_refuse(why, "'%s' has no source", a->path);
}

bool pd_features_read(const char *path, const int32_t *tokens, int64_t n, char *why) {
  const struct pd_input *in = &pd.stage->inputs[pd_generated()->source];
  struct pd_array a = {.path = path};
  char *unpacked = NULL;
  a.map = pd_map_regular(path, &a.size, why);
  const bool ok = a.map && parse(&a, in->name, &unpacked, why) && (add_axis(&a, in), pd_array_fits(&a, in, why)) &&
                  take(&a, in, tokens, n, why);
  free(unpacked);
  return ok;
}
