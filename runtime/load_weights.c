/* W(0) from --init's files: every rank opens them all, and reads what it holds. */
#include "internal.h"
#include "sources.h"

#include <stdlib.h>
#include <string.h>

static char **read_paths; /* of every file that was opened, and NULL */

const char *pd_init_path(int i) { return read_paths ? read_paths[i] : NULL; }

static void keep_paths(const struct pd_sources *s) {
  read_paths = pd_allocate(sizeof *read_paths * (size_t)(s->n_files + 1));
  for (int f = 0; f < s->n_files; f++) read_paths[f] = strdup(s->file[f].path);
}

/* ---- one parameter --------------------------------------------------------------------------- */

/* What became of a parameter, by order of declaration; the same on every rank that holds it. */
enum outcome { NOT_HERE, READ, MISSING };

static void print_shape(char *to, size_t room, int rank, const int64_t *dim) {
  size_t n = (size_t)snprintf(to, room, "[");
  for (int i = 0; i < rank && n < room; i++)
    n += (size_t)snprintf(to + n, room - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
  if (n < room) snprintf(to + n, room - n, "]");
}

static void copy_in(const struct pd_parameter *p, const struct pd_entry *e, bool swapped, float *to) {
  if (swapped) {
    int64_t rows = p->dim[0], columns = p->dim[1];
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) to[i * columns + j] = pd_entry_float(e, j * rows + i);
  } else if (e->dtype == PD_F32)
    memcpy(to, e->data, (size_t)p->elements * sizeof(float));
  else
    for (int64_t i = 0; i < p->elements; i++) to[i] = pd_entry_float(e, i);
}

static bool has_shape(const struct pd_entry *e, int rank, const int64_t *dim) {
  bool same = e->rank == rank;
  for (int i = 0; same && i < rank; i++) same = e->dim[i] == dim[i];
  return same;
}

static bool refuse_shape(const char *path, const struct pd_entry *e, int rank, const int64_t *dim, char *why) {
  char found[160], needed[160];
  print_shape(found, sizeof found, e->rank, e->dim);
  print_shape(needed, sizeof needed, rank, dim);
  return pd_refuse(why, "'%s': tensor '%s' has shape %s, the model needs %s", path, e->name, found, needed);
}

static bool load_one(const struct pd_sources *s, const struct pd_parameter *p, unsigned char *used,
                     unsigned char *outcome, char *why) {
  const struct pd_source *x = pd_sources_find(s, p->name);
  *outcome = MISSING; /* unless it is read below; all of them are reported together */
  if (!x) return true;
  const struct pd_source_file *file = &s->file[x->file];
  int64_t dim[PD_MAX_RANK] = {0};
  pd_file_shape(p, dim);
  const int64_t *needed = file->is_shard ? p->dim : dim;
  if (!has_shape(x->entry, p->rank, needed)) return refuse_shape(file->path, x->entry, p->rank, needed, why);
  if (x->entry->dtype == PD_OTHER)
    return pd_refuse(why, "'%s': tensor '%s' is not of type F32, F16, BF16 or F64", file->path, x->entry->name);
  char *at = pd_newest_at(p, 0);
  copy_in(p, x->entry, !file->is_shard && p->stored_in_out && p->rank == 2, pd_fill(at, p->elements));
  pd_filled(at, p->elements, false);
  pd_newest_written(p, 0);
  used[x - s->at] = 1;
  *outcome = READ;
  return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Names for a message, the first few of them. */
enum { FEW = 5 };
struct names {
  char text[PD_WHY / 2];
  int n;
};

static void add_name(struct names *x, const char *name) {
  size_t length = strlen(x->text);
  if (x->n++ < FEW) snprintf(x->text + length, sizeof x->text - length, "%s'%.80s'", length ? ", " : "", name);
}

static void end_names(struct names *x) {
  size_t length = strlen(x->text);
  if (x->n > FEW) snprintf(x->text + length, sizeof x->text - length, " and %d more", x->n - FEW);
}

/* "'FILE' holds", or "the 3 files of --init hold". */
static void name_files(const struct pd_sources *s, char *to, size_t room) {
  if (s->n_files == 1)
    snprintf(to, room, "'%.300s' holds", s->file[0].path);
  else
    snprintf(to, room, "the %d files of --init hold", s->n_files);
}

/* The largest on any rank of each of n bytes. */
static void merge(unsigned char *bytes, int n) {
  unsigned char *mine = pd_allocate((size_t)n);
  memcpy(mine, bytes, (size_t)n);
  MPI_Request request;
  MPI_Iallreduce(mine, bytes, n, MPI_UNSIGNED_CHAR, MPI_MAX, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to read the weights", -1, NULL, -1);
  free(mine);
}

/* Rank 0 reports all parameters that no file has. */
static void check_missing(const struct pd_sources *s, const unsigned char *outcome, char *why) {
  int n = pd.stage->n_model_parameters;
  if (!memchr(outcome, MISSING, (size_t)n)) return;
  struct pd_entry *entries = pd_gather_entries(NULL);
  struct names missing = {0};
  char files[400];
  for (int i = 0; i < n; i++)
    if (outcome[i] == MISSING && entries[i].name) add_name(&missing, entries[i].name);
  end_names(&missing);
  name_files(s, files, sizeof files);
  if (!pd.rank) pd_refuse(why, "%s no tensor%s %s", files, missing.n == 1 ? "" : "s", missing.text);
  pd_free_entries(entries);
}

/* A count of microbatches that PyTorch's batch norm has in its files, and that nothing here reads. */
static bool is_count(const char *name) {
  static const char count[] = "num_batches_tracked";
  size_t n = strlen(name), m = sizeof count - 1;
  return n >= m && !strcmp(name + n - m, count);
}

/* One note names the tensors that no stage reads: attention masks, say, or a second name of tied weights. */
static void note_unused(const struct pd_sources *s, const unsigned char *used) {
  struct names unused = {0};
  for (int i = 0; i < s->n; i++)
    if (!used[i] && !is_count(s->at[i].name)) add_name(&unused, s->at[i].entry->name);
  end_names(&unused);
  char files[400];
  name_files(s, files, sizeof files);
  if (unused.n)
    pd_note("%s %d tensor%s that the model does not have, ignored: %s", files, unused.n, unused.n == 1 ? "" : "s",
            unused.text);
}

void pd_load_weights(void) {
  char why[PD_WHY] = "";
  struct pd_sources s;
  pd_sources_open(&s, pd_options.init, pd_options.n_init, why);
  pd_agree(why);
  keep_paths(&s);
  unsigned char *used = pd_allocate((size_t)s.n), *outcome = pd_allocate((size_t)pd.stage->n_model_parameters);
  for (int i = 0; i < pd.stage->n_parameters && !*why; i++) {
    const struct pd_parameter *p = &pd.stage->parameters[i];
    load_one(&s, p, used, &outcome[p->order], why);
  }
  pd_agree(why);
  merge(used, s.n);
  merge(outcome, pd.stage->n_model_parameters);
  check_missing(&s, outcome, why);
  pd_agree(why);
  note_unused(&s, used);
  free(used);
  free(outcome);
  pd_sources_close(&s);
}
