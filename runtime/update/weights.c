/* Addresses of weights, and writing them to a safetensors file with every parameter of all stages, tied parameters
 * once. Rank 0 writes tensor by tensor; the first replica of a parameter's owner stage sends it in pieces. */
#include "shared/checksum.h"
#include "data/load.h"
#include "messages/messages.h"
#include "update/update.h"
#include "shared/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where weights stand ----------------------------------------------------------------------- */

char *pd_weights_at(const struct pd_parameter *p, int64_t t) {
  const struct pd_stage *s = pd.stage;
  if (p->frozen) return pd.arena + s->frozen + p->offset;
  return pd.arena + s->weights + (size_t)(t % s->versions) * s->weights_stride + p->offset;
}

static bool has_master(const struct pd_parameter *p) { return pd.stage->has_masters && !p->frozen; }

/* The newest weights in f32, or a frozen parameter as passes read it; with sharded masters this replica's part. */
static char *newest_at(const struct pd_parameter *p, int64_t t) {
  return has_master(p) ? pd_state_at(pd.stage->masters, p) : pd_weights_at(p, t);
}

/* True if the newest weights in f32 are sharded over replicas. */
static bool newest_in_parts(const struct pd_parameter *p) { return has_master(p) && pd.stage->shards; }

/* True if this rank provides p for files. */
static bool writes(const struct pd_parameter *p) { return p->owner == pd.stage->stage && !pd.replica; }

/* By parameter: f32 weights of a frozen parameter whose working copy is rounded, on the rank that provides it for
 * files; NULL: not kept. */
static float **unrounded;

static void keep_unrounded(const struct pd_parameter *p, const float *w) {
  const struct pd_stage *s = pd.stage;
  const struct pd_options *o = &pd_options;
  if (!writes(p) || !(o->save || o->save_raw || o->checkpoint)) return;
  if (!unrounded) unrounded = pd_allocate(sizeof *unrounded * (size_t)s->n_parameters);
  float **to = &unrounded[p - s->parameters];
  if (!*to) *to = pd_allocate(sizeof **to * (size_t)p->elements);
  memcpy(*to, w, sizeof *w * (size_t)p->elements);
}

/* True if only a rounded copy exists: a working copy without a master. */
static bool newest_is_rounded(const struct pd_parameter *p) {
  return p->bf16 && (p->frozen || !pd.stage->has_masters);
}

/* The whole of a parameter with a sharded master, while it is filled. */
static float *in_parts;

float *pd_fill_newest(const struct pd_parameter *p, int64_t t) {
  if (!newest_in_parts(p)) return pd_fill(newest_at(p, t), p->elements, newest_is_rounded(p));
  return in_parts = pd_allocate(sizeof *in_parts * (size_t)p->elements);
}

/* The address of an element in the working copy. */
static char *working_at(const struct pd_parameter *p, int64_t t, int64_t first) {
  return pd_weights_at(p, t) + (size_t)first * (p->bf16 ? 2 : sizeof(float));
}

static void fill_parts(const struct pd_parameter *p, int64_t t) {
  struct pd_slice own = pd_own_part(p);
  memcpy(pd_fill(pd_weights_at(p, t), p->elements, p->bf16), in_parts, (size_t)p->elements * sizeof(float));
  pd_filled(pd_weights_at(p, t), p->elements, p->bf16);
  if (own.n) {
    float *master = (float *)newest_at(p, t) + own.first;
    memcpy(pd_fill(master, own.n, false), in_parts + own.first, (size_t)own.n * sizeof(float));
    pd_filled(master, own.n, false);
  }
  free(in_parts);
}

void pd_newest_filled(const struct pd_parameter *p, int64_t t, const float *w) {
  if (p->frozen && p->bf16) keep_unrounded(p, w);
  if (newest_in_parts(p)) {
    fill_parts(p, t);
  } else {
    pd_filled(newest_at(p, t), p->elements, newest_is_rounded(p));
    if (has_master(p)) pd_round(pd_weights_at(p, t), (const float *)newest_at(p, t), p->elements, p->bf16);
  }
  float *average = pd_average_at(p); /* until the first update */
  struct pd_slice own = pd_own_part(p);
  if (average && own.n) pd_round(average + own.first, (const float *)newest_at(p, t) + own.first, own.n, false);
}

void pd_clear_padding(void) {
  const struct pd_stage *s = pd.stage;
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    for (int v = 0; v < (p->frozen ? 1 : s->versions) && p->padding; v++) {
      char *at = working_at(p, v, p->elements);
      memset(pd_fill(at, p->padding, p->bf16), 0, (size_t)p->padding * sizeof(float));
      pd_filled(at, p->padding, p->bf16);
    }
  }
}

float *pd_average_at(const struct pd_parameter *p) {
  const struct pd_stage *s = pd.stage;
  return s->ema > 0 && !p->frozen ? (float *)pd_state_at(s->averages, p) : NULL;
}

void pd_read_averages(int64_t t, bool averages) {
  const struct pd_stage *s = pd.stage;
  if (!(s->ema > 0) || !(s->has_masters || s->shards)) return; /* passes read the averages themselves */
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    float *average = pd_average_at(p), *newest = (float *)newest_at(p, t);
    struct pd_slice own = pd_own_part(p);
    if (!average || !own.n) continue;
    if (s->has_masters)
      pd_round(working_at(p, t, own.first), (averages ? average : newest) + own.first, own.n, p->bf16);
    else
      pd_swap_part(average + own.first, newest + own.first, own.n);
  }
  if (s->shards) {
    pd_share_weights(t);
    pd_await_weights(t);
  }
}

const float *pd_view_newest(const struct pd_parameter *p, int64_t t) {
  const float *kept = unrounded ? unrounded[p - pd.stage->parameters] : NULL;
  if (newest_in_parts(p)) return pd_whole(p, (const float *)newest_at(p, t), p->elements);
  return kept ? kept : pd_view(newest_at(p, t), p->elements, newest_is_rounded(p));
}

void pd_file_shape(const struct pd_parameter *p, int64_t *dim) {
  bool swapped = p->stored_in_out && p->rank == 2;
  struct pd_shape whole = pd_whole_shape(p);
  for (int i = 0; i < p->rank; i++) dim[i] = whole.dim[swapped ? 1 - i : i];
}

/* ---- what rank 0 knows of the others' parameters --------------------------------------------- */

struct description {
  int32_t order, writer, rank, name_at; /* writer: of MPI's ranks; rank: of the tensor */
  int64_t dim[PD_MAX_RANK], elements;
};

/* Descriptions of the parameters that this rank provides, followed by their names. */
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
                              .elements = pd_whole_shape(p).elements};
    pd_file_shape(p, d->dim);
    d++;
    name = stpcpy(name, p->name) + 1;
  }
  return all;
}

struct pd_entry *pd_gather_entries(int *writer) {
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
      *e = (struct pd_entry){.name = pd_copy_text(from + d->name_at), .rank = d->rank, .elements = d->elements};
      memcpy(e->dim, d->dim, sizeof d->dim);
      if (writer) writer[d->order] = d->writer;
    }
  }
  free(all);
  free(bytes);
  free(at);
  return entries;
}

void pd_free_entries(struct pd_entry *entries) {
  for (int i = 0; i < pd.stage->n_model_parameters; i++) free(entries[i].name);
  free(entries);
}

/* ---- writing --------------------------------------------------------------------------------- */

enum { PIECE = 1 << 18 }; /* floats */

/* Elements [first, first + n) in the file's order of a parameter whose newest weights are w. */
static void copy_out(const struct pd_parameter *p, const float *w, int64_t first, int64_t n, float *to) {
  if (!(p->stored_in_out && p->rank == 2)) {
    memcpy(to, w + first, (size_t)n * sizeof *to);
    return;
  }
  struct pd_shape whole = pd_whole_shape(p);
  int64_t rows = whole.dim[0], columns = whole.dim[1];
  for (int64_t i = 0; i < n; i++) to[i] = w[(first + i) % rows * columns + (first + i) / rows];
}

static bool saves_raw;

/* Collective among the replicas and the shard group that have parts of the parameter: joins it on the first. */
static const float *view_saved(const struct pd_parameter *p) {
  const float *average = saves_raw ? NULL : pd_average_at(p), *own;
  if (average)
    own = pd.stage->shards ? pd_whole(p, average, p->elements) : pd_view(average, p->elements, false);
  else
    own = pd_view_newest(p, pd.steps);
  return pd.replica ? NULL : pd_join(p, own);
}

/* True if this rank has a part of the tensor. */
static bool takes_part(const struct pd_parameter *p) {
  return writes(p) || (p->owner == pd.stage->stage && pd.stage->shards);
}

static const struct pd_parameter *parameter_of_order(int order) {
  for (int i = 0; i < pd.stage->n_parameters; i++)
    if (pd.stage->parameters[i].order == order) return &pd.stage->parameters[i];
  pd_fail("internal: this rank does not hold parameter %d", order);
}

/* Parameters without updates are written as they were read, finite or not. */
static void check_piece(const struct pd_parameter *p, int64_t first, const float *piece, int64_t n) {
  if (!p->frozen)
    pd_check_finite(p->name, first, piece, n, pd.steps, saves_raw ? pd_options.save_raw : pd_options.save);
}

/* Floats of the checksum after a piece, with --check-messages. */
enum { SUM = sizeof(uint64_t) / sizeof(float) };

static int sum_floats(void) { return pd_options.check_messages ? SUM : 0; }

static void add_sum(float *piece, int64_t n) {
  if (!pd_options.check_messages) return;
  uint64_t sum = pd_checksum(piece, (size_t)n * sizeof *piece);
  memcpy(piece + n, &sum, sizeof sum);
}

static void compare_sum(const float *piece, int64_t n, int writer) {
  if (!pd_options.check_messages) return;
  uint64_t sum;
  memcpy(&sum, piece + n, sizeof sum);
  if (sum != pd_checksum(piece, (size_t)n * sizeof *piece))
    pd_fail(
        "--check-messages: the weights from rank %d arrived with a different checksum: a link, or the memory of "
        "either host, corrupts data",
        writer);
}

static void send_pieces(const struct pd_parameter *p, float *piece) {
  const float *w = view_saved(p);
  int64_t elements = pd_whole_shape(p).elements;
  for (int64_t first = 0; first < elements; first += PIECE) {
    int64_t n = elements - first < PIECE ? elements - first : PIECE;
    MPI_Request request;
    copy_out(p, w, first, n, piece);
    check_piece(p, first, piece, n);
    add_sum(piece, n);
    MPI_Isend(piece, (int)n + sum_floats(), MPI_FLOAT, 0, p->order, pd_comm_control, &request);
    pd_wait(1, &request, "weights", -1, "to be received by", 0);
  }
}

static bool write_tensor(FILE *out, int order, int writer, int64_t elements, float *piece) {
  const struct pd_parameter *p = writer == 0 ? parameter_of_order(order) : NULL;
  const float *w = p ? view_saved(p) : NULL;
  for (int64_t first = 0; first < elements; first += PIECE) {
    int64_t n = elements - first < PIECE ? elements - first : PIECE;
    if (p) {
      copy_out(p, w, first, n, piece);
      check_piece(p, first, piece, n);
    } else {
      MPI_Request request;
      MPI_Irecv(piece, (int)n + sum_floats(), MPI_FLOAT, writer, order, pd_comm_control, &request);
      pd_wait(1, &request, "weights", -1, "from", writer);
      compare_sum(piece, n, writer);
    }
    if (fwrite(piece, sizeof *piece, (size_t)n, out) != (size_t)n) return false;
  }
  return true;
}

static void write_file(const char *path, const struct pd_entry *entries, const int *writer, float *piece) {
  char *classes = pd_classes_text(pd_training_data);
  const char *const metadata[][2] = {{"format", "pt"}, {"classes", classes}};
  int n = pd.stage->n_model_parameters, n_present = 0;
  size_t bytes = 0;
  struct pd_entry *present = pd_allocate(sizeof *present * (size_t)n);
  for (int i = 0; i < n; i++)
    if (entries[i].name) present[n_present++] = entries[i];
  unsigned char *header = pd_safetensors_header(present, n_present, metadata, classes ? 2 : 1, &bytes);
  free(classes);
  free(present);
  struct pd_output out;
  bool ok = header && pd_output_open(&out, path) && fwrite(header, 1, bytes, out.file) == bytes;
  for (int i = 0; ok && i < n; i++)
    ok = !entries[i].name || write_tensor(out.file, i, writer[i], entries[i].elements, piece);
  free(header);
  if (!header || !pd_output_close(&out, ok)) pd_fail("cannot write '%s': %s", path, strerror(errno));
}

/* Sends the parts of a parallel pipeline to the first pipeline, which writes them. */
static void join_saved(void) {
  for (int order = 0; order < pd.stage->n_model_parameters; order++)
    for (int i = 0; i < pd.stage->n_parameters; i++)
      if (pd.stage->parameters[i].order == order && takes_part(&pd.stage->parameters[i]))
        view_saved(&pd.stage->parameters[i]);
}

void pd_save_weights(const char *path, bool raw) {
  saves_raw = raw;
  const struct pd_stage *s = pd.stage;
  if (pd.tensor_rank) {
    join_saved();
    return;
  }
  int *writer = pd_allocate(sizeof *writer * (size_t)s->n_model_parameters);
  struct pd_entry *entries = pd_gather_entries(writer);
  float *piece = pd_allocate((PIECE + SUM) * sizeof *piece);
  if (!pd.rank)
    write_file(path, entries, writer, piece);
  else
    for (int order = 0; order < s->n_model_parameters; order++)
      for (int i = 0; i < s->n_parameters; i++)
        if (s->parameters[i].order == order && writes(&s->parameters[i]))
          send_pieces(&s->parameters[i], piece);
        else if (s->parameters[i].order == order && takes_part(&s->parameters[i]))
          view_saved(&s->parameters[i]);
  pd_free_entries(entries);
  free(writer);
  free(piece);
}
