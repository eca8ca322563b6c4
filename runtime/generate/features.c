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
  if (!(*unpacked = malloc((size_t)e.size + 1))) return pd_refuse(why, "'%s': out of memory", a->path);
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

static bool take(const struct pd_array *a, const struct pd_input *in, struct pd_features *to, char *why) {
  to->n = a->rows;
  if (!to->n) return pd_refuse(why, "'%s' has no source", a->path);
  to->at = malloc(sizeof(float) * (size_t)(to->n * in->elements));
  if (!to->at) return pd_refuse(why, "'%s': out of memory", a->path);
  pd_read_numbers(a, 0, to->n, to->at);
  for (int64_t i = 0; i < to->n * in->elements; i++)
    if (!isfinite(to->at[i]))
      return pd_refuse(why, "'%s': source %lld has the number %g", a->path, (long long)(i / in->elements),
                       (double)to->at[i]);
  return true;
}

bool pd_features_read(const char *path, struct pd_features *to, char *why) {
  const struct pd_input *in = &pd.stage->inputs[pd_generated()->source];
  struct pd_array a = {.path = path};
  char *unpacked = NULL;
  *to = (struct pd_features){0};
  a.map = pd_map_regular(path, &a.size, why);
  const bool ok = a.map && parse(&a, in->name, &unpacked, why) && (add_axis(&a, in), pd_array_fits(&a, in, why)) &&
                  take(&a, in, to, why);
  free(unpacked);
  return ok;
}
