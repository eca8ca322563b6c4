/* Weights from and to safetensors files. One file holds every parameter of all stages, a tied one once.
 * Ranks read what they hold; rank 0 writes, tensor by tensor, what the others send in pieces: of a stage's
 * replicas the first, of a tied parameter's stages its owner. */
#include "internal.h"
#include "safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where weights stand ----------------------------------------------------------------------- */

char *pd_weights_at(const struct pd_parameter *p, int64_t t) {
  const struct pd_stage *s = pd.stage;
  return pd.arena + s->weights + (size_t)(t % s->versions) * s->weights_stride + p->offset;
}

char *pd_newest_at(const struct pd_parameter *p, int64_t t) {
  return pd.stage->has_masters ? pd.arena + pd.stage->masters + p->state : pd_weights_at(p, t);
}

void pd_newest_written(const struct pd_parameter *p, int64_t t) {
  if (pd.stage->has_masters)
    pd_round(pd_weights_at(p, t), (const float *)pd_newest_at(p, t), p->elements, p->bf16);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A parameter's shape in a file. */
static void file_shape(const struct pd_parameter *p, int64_t *dim) {
  bool swapped = p->stored_in_out && p->rank == 2;
  for (int i = 0; i < p->rank; i++) dim[i] = p->dim[swapped ? 1 - i : i];
}

static void print_shape(char *to, size_t room, int rank, const int64_t *dim) {
  size_t n = (size_t)snprintf(to, room, "[");
  for (int i = 0; i < rank && n < room; i++)
    n += (size_t)snprintf(to + n, room - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
  if (n < room) snprintf(to + n, room - n, "]");
}

static void copy_in(const struct pd_parameter *p, const struct pd_entry *e, float *to) {
  if (p->stored_in_out && p->rank == 2) {
    int64_t rows = p->dim[0], columns = p->dim[1];
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) to[i * columns + j] = pd_entry_float(e, j * rows + i);
  } else if (e->dtype == PD_F32)
    memcpy(to, e->data, (size_t)p->elements * sizeof(float));
  else
    for (int64_t i = 0; i < p->elements; i++) to[i] = pd_entry_float(e, i);
}

static bool load_one(const char *path, const struct pd_safetensors *s, const struct pd_parameter *p,
                     unsigned char *used, char *why) {
  const struct pd_entry *e = pd_safetensors_find(s, p->name);
  if (!e) return pd_refuse(why, "'%s' holds no tensor '%s'", path, p->name);
  int64_t dim[PD_MAX_RANK] = {0};
  file_shape(p, dim);
  bool same = e->rank == p->rank;
  for (int i = 0; same && i < p->rank; i++) same = e->dim[i] == dim[i];
  if (!same) {
    char found[160], needed[160];
    print_shape(found, sizeof found, e->rank, e->dim);
    print_shape(needed, sizeof needed, p->rank, dim);
    return pd_refuse(why, "'%s': tensor '%s' has shape %s, the model needs %s", path, e->name, found, needed);
  }
  if (e->dtype == PD_OTHER)
    return pd_refuse(why, "'%s': tensor '%s' is not of type F32, F16, BF16 or F64", path, e->name);
  char *at = pd_newest_at(p, 0);
  copy_in(p, e, pd_fill(at, p->elements));
  pd_filled(at, p->elements, false);
  pd_newest_written(p, 0);
  used[e - s->at] = 1;
  return true;
}

/* A count of microbatches that PyTorch's batch norm has in its files, and that nothing here reads. */
static bool is_count(const char *name) {
  static const char count[] = "num_batches_tracked";
  size_t n = strlen(name), m = sizeof count - 1;
  return n >= m && !strcmp(name + n - m, count);
}

/* One note names the tensors that no stage reads: attention masks, say, or a second name of tied weights. */
static void note_unused(const char *path, const struct pd_safetensors *s, unsigned char *used) {
  unsigned char *by_any = pd_allocate((size_t)s->n);
  MPI_Request request;
  MPI_Iallreduce(used, by_any, s->n, MPI_UNSIGNED_CHAR, MPI_MAX, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to read the weights", -1, NULL, -1);
  int unused = 0, first = -1;
  for (int i = s->n - 1; i >= 0; i--)
    if (!by_any[i] && !is_count(s->at[i].name)) {
      unused++;
      first = i;
    }
  if (unused)
    pd_note("'%s': ignored %d tensor%s that the model does not have: '%s'%s", path, unused, unused == 1 ? "" : "s",
            s->at[first].name, unused == 1 ? "" : ", ...");
  free(by_any);
}

void pd_load_weights(const char *path) {
  char why[PD_WHY] = "";
  struct pd_safetensors s = {0};
  pd_safetensors_open(path, &s, why);
  unsigned char *used = pd_allocate((size_t)s.n);
  for (int i = 0; i < pd.stage->n_parameters && !*why; i++)
    load_one(path, &s, &pd.stage->parameters[i], used, why);
  pd_agree(why);
  note_unused(path, &s, used);
  free(used);
  pd_safetensors_close(&s);
}

/* ---- what rank 0 knows of the others' parameters --------------------------------------------- */

struct description {
  int32_t order, writer, rank, name_at; /* writer: of MPI's ranks; rank: of the tensor */
  int64_t dim[PD_MAX_RANK], elements;
};

/* Whether this rank is the one that writes p. */
static bool writes(const struct pd_parameter *p) { return p->owner == pd.stage->stage && !pd.replica; }

/* The parameters this rank writes, described one after another, then their names. */
static char *describe(int32_t *bytes) {
  const struct pd_stage *s = pd.stage;
  size_t n = 0, names = 0;
  for (int i = 0; i < s->n_parameters; i++)
    if (writes(&s->parameters[i])) {
      n++;
      names += strlen(s->parameters[i].name) + 1;
    }
  size_t head = n * sizeof(struct description);
  *bytes = (int32_t)(sizeof(int64_t) + head + (names + 7) / 8 * 8);
  char *all = pd_allocate((size_t)*bytes), *name = all + sizeof(int64_t) + head;
  *(int64_t *)all = (int64_t)n;
  struct description *d = (struct description *)(all + sizeof(int64_t));
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    if (!writes(p)) continue;
    *d = (struct description){.order = p->order,
                              .writer = pd.rank,
                              .rank = p->rank,
                              .name_at = (int32_t)(name - all),
                              .elements = p->elements};
    file_shape(p, d->dim);
    d++;
    name = stpcpy(name, p->name) + 1;
  }
  return all;
}

/* On rank 0: entries by order of declaration, and the rank that holds each. A parameter that nothing uses
 * stands on no rank: its entry has no name. */
static struct pd_entry *gather_entries(int *writer) {
  int n = pd.stage->n_model_parameters, total = 0;
  int32_t mine_bytes, *bytes = pd_allocate(sizeof *bytes * (size_t)pd.ranks),
                      *at = pd_allocate(sizeof *at * (size_t)pd.ranks);
  char *mine = describe(&mine_bytes);
  MPI_Request request;
  MPI_Iallgather(&mine_bytes, 1, MPI_INT32_T, bytes, 1, MPI_INT32_T, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to describe their weights", -1, NULL, -1);
  for (int r = 0; r < pd.ranks; r++) {
    at[r] = total;
    total += bytes[r];
  }
  char *all = pd_allocate((size_t)total);
  MPI_Igatherv(mine, mine_bytes, MPI_BYTE, all, bytes, at, MPI_BYTE, 0, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to describe their weights", -1, NULL, -1);
  free(mine);
  struct pd_entry *entries = pd_allocate(sizeof *entries * (size_t)n);
  for (int r = 0; r < pd.ranks && !pd.rank; r++) {
    const char *from = all + at[r];
    const struct description *d = (const struct description *)(from + sizeof(int64_t));
    for (int64_t i = *(const int64_t *)from; i > 0; i--, d++) {
      struct pd_entry *e = &entries[d->order];
      *e = (struct pd_entry){.name = strdup(from + d->name_at), .rank = d->rank, .elements = d->elements};
      memcpy(e->dim, d->dim, sizeof d->dim);
      writer[d->order] = d->writer;
    }
  }
  free(all);
  free(bytes);
  free(at);
  return entries;
}

/* ---- writing --------------------------------------------------------------------------------- */

enum { PIECE = 1 << 18 }; /* floats */

/* Elements [first, first + n) in the file's order of a parameter whose newest weights are w. */
static void copy_out(const struct pd_parameter *p, const float *w, int64_t first, int64_t n, float *to) {
  if (!(p->stored_in_out && p->rank == 2)) {
    memcpy(to, w + first, (size_t)n * sizeof *to);
    return;
  }
  int64_t rows = p->dim[0], columns = p->dim[1];
  for (int64_t i = 0; i < n; i++) to[i] = w[(first + i) % rows * columns + (first + i) / rows];
}

static const float *view_newest(const struct pd_parameter *p) {
  return pd_view(pd_newest_at(p, pd.steps), p->elements, false);
}

static const struct pd_parameter *parameter_of_order(int order) {
  for (int i = 0; i < pd.stage->n_parameters; i++)
    if (pd.stage->parameters[i].order == order) return &pd.stage->parameters[i];
  pd_fail("internal: parameter %d is not held here", order);
}

static void send_pieces(const struct pd_parameter *p, float *piece) {
  const float *w = view_newest(p);
  for (int64_t first = 0; first < p->elements; first += PIECE) {
    int64_t n = p->elements - first < PIECE ? p->elements - first : PIECE;
    MPI_Request request;
    copy_out(p, w, first, n, piece);
    MPI_Isend(piece, (int)n, MPI_FLOAT, 0, p->order, pd_comm_control, &request);
    pd_wait(1, &request, "weights", -1, "to be taken by", 0);
  }
}

static bool write_tensor(FILE *out, int order, int writer, int64_t elements, float *piece) {
  const struct pd_parameter *p = writer == 0 ? parameter_of_order(order) : NULL;
  const float *w = p ? view_newest(p) : NULL;
  for (int64_t first = 0; first < elements; first += PIECE) {
    int64_t n = elements - first < PIECE ? elements - first : PIECE;
    if (p)
      copy_out(p, w, first, n, piece);
    else {
      MPI_Request request;
      MPI_Irecv(piece, (int)n, MPI_FLOAT, writer, order, pd_comm_control, &request);
      pd_wait(1, &request, "weights", -1, "from", writer);
    }
    if (fwrite(piece, sizeof *piece, (size_t)n, out) != (size_t)n) return false;
  }
  return true;
}

static void write_file(const char *path, const struct pd_entry *entries, const int *writer, float *piece) {
  static const char *const metadata[][2] = {{"format", "pt"}};
  int n = pd.stage->n_model_parameters, n_present = 0;
  size_t bytes = 0;
  struct pd_entry *present = pd_allocate(sizeof *present * (size_t)n);
  for (int i = 0; i < n; i++)
    if (entries[i].name) present[n_present++] = entries[i];
  unsigned char *header = pd_safetensors_header(present, n_present, metadata, 1, &bytes);
  free(present);
  struct pd_output out;
  bool ok = header && pd_output_open(&out, path) && fwrite(header, 1, bytes, out.file) == bytes;
  for (int i = 0; ok && i < n; i++)
    ok = !entries[i].name || write_tensor(out.file, i, writer[i], entries[i].elements, piece);
  free(header);
  if (!header || !pd_output_close(&out, ok)) pd_fail("cannot write '%s': %s", path, strerror(errno));
}

void pd_save_weights(const char *path) {
  const struct pd_stage *s = pd.stage;
  int *writer = pd_allocate(sizeof *writer * (size_t)s->n_model_parameters);
  struct pd_entry *entries = gather_entries(writer);
  float *piece = pd_allocate(PIECE * sizeof *piece);
  if (!pd.rank)
    write_file(path, entries, writer, piece);
  else
    for (int order = 0; order < s->n_model_parameters; order++)
      for (int i = 0; i < s->n_parameters; i++)
        if (s->parameters[i].order == order && writes(&s->parameters[i])) send_pieces(&s->parameters[i], piece);
  for (int i = 0; i < s->n_model_parameters; i++) free(entries[i].name);
  free(entries);
  free(writer);
  free(piece);
}
