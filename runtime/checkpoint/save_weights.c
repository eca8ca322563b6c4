/* --save and --save-raw: a safetensors file, or a Hugging Face folder, with every parameter of all stages, tied
 * parameters once. Rank 0 writes tensor by tensor; the first replica of a parameter's owner stage sends it in
 * pieces. */
#include "checkpoint/checkpoint.h"
#include "checkpoint/save_folder.h"
#include "data/load.h"
#include "messages/messages.h"
#include "checkpoint/sources.h"
#include "shared/adapters.h"
#include "shared/pattern.h"
#include "shared/checksum.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Of a model with adapters only those are saved. */
static bool is_saved_name(const char *name) {
  const char *only = pd_options.save_only;
  return (!pd.stage->adapter_config || pd_of_adapter(name)) && (!only || pd_pattern_matches(only, name));
}

static bool is_saved(const struct pd_parameter *p) { return is_saved_name(p->name); }

/* True if this rank has a part of the tensor. */
static bool takes_part(const struct pd_parameter *p) {
  return is_saved(p) && (pd_provides(p) || (p->owner == pd.stage->stage && pd.stage->shards));
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

/* ---- rank 0 ---------------------------------------------------------------------------------- */

/* The tensors of a save, by order of declaration; one without a name is on no rank. */
struct save {
  int n;
  struct pd_entry *entries; /* with the names and the type in files */
  int *writer;
  float *piece;
  void *rounded; /* a piece in the type of files */
  bool folder;
};

/* Rounds elements [first, first + n) of a tensor to the type of files. */
static const void *rounded(const struct save *s, const struct pd_entry *e, int64_t first, int64_t n) {
  if (e->dtype == PD_DTYPE_F32) return s->piece;
  const int64_t beyond = pd_dtype_round(e->dtype, s->piece, n, s->rounded);
  if (beyond >= 0)
    pd_fail("element %lld of '%s' is %g, beyond the range of %s: nothing is written. help: --save-dtype f32",
            (long long)(first + beyond), e->name, (double)s->piece[beyond], pd_dtype_name(e->dtype));
  return s->rounded;
}

static bool write_tensor(FILE *out, const struct save *s, int order) {
  const struct pd_entry *e = &s->entries[order];
  const size_t bytes = (size_t)pd_dtype_bytes(e->dtype);
  const int writer = s->writer[order];
  const struct pd_parameter *p = writer == 0 ? parameter_of_order(order) : NULL;
  const float *w = p ? view_saved(p) : NULL;
  for (int64_t first = 0; first < e->elements; first += PIECE) {
    int64_t n = e->elements - first < PIECE ? e->elements - first : PIECE;
    if (p) {
      copy_out(p, w, first, n, s->piece);
      check_piece(p, first, s->piece, n);
    } else {
      MPI_Request request;
      MPI_Irecv(s->piece, (int)n + sum_floats(), MPI_FLOAT, writer, order, pd_comm_control, &request);
      pd_wait(1, &request, "weights", -1, "from", writer);
      compare_sum(s->piece, n, writer);
    }
    if (fwrite(rounded(s, e, first, n), bytes, (size_t)n, out) != (size_t)n) return false;
  }
  return true;
}

/* The tensors of a folder's or a file's parameter: itself, or those of each expert. Adds them to `to` of n. */
static int add_entries(const struct save *s, int order, struct pd_entry *to, int n) {
  const struct pd_entry *whole = &s->entries[order];
  char *const *names = NULL;
  const int parts = s->folder ? pd_folder_parts(order, &names) : 0;
  if (!whole->name) return n;
  if (!parts) to[n++] = *whole;
  for (int i = 0; i < parts; i++) {
    struct pd_entry *e = &to[n++];
    *e =
        (struct pd_entry){.name = names[i], .dtype = whole->dtype, .rank = 2, .elements = whole->elements / parts};
    e->dim[0] = e->elements / whole->dim[2], e->dim[1] = whole->dim[2];
  }
  return n;
}

/* The tensors of parameters [first, end), malloc'd. */
static struct pd_entry *entries_between(const struct save *s, int first, int end, int *n) {
  char *const *names;
  int most = end - first;
  for (int i = first; i < end; i++) most += s->folder ? pd_folder_parts(i, &names) : 0;
  struct pd_entry *all = pd_allocate(sizeof *all * (size_t)most);
  *n = 0;
  for (int i = first; i < end; i++) *n = add_entries(s, i, all, *n);
  return all;
}

/* Writes tensors [first, end) as one file. */
static bool write_tensors(FILE *out, const struct save *s, int first, int end) {
  char *classes = pd_classes_text(pd_training_data);
  const char *const metadata[][2] = {{"format", "pt"}, {"classes", classes}};
  int n = 0;
  size_t bytes = 0;
  struct pd_entry *present = entries_between(s, first, end, &n);
  unsigned char *header = pd_safetensors_header(present, n, metadata, classes ? 2 : 1, &bytes);
  free(classes);
  free(present);
  bool ok = header && fwrite(header, 1, bytes, out) == bytes;
  free(header);
  for (int i = first; i < end && ok; i++) ok = !s->entries[i].name || write_tensor(out, s, i);
  return ok;
}

static void write_file(const char *path, const struct save *s) {
  struct pd_output out;
  bool ok = pd_output_open(&out, path) && write_tensors(out.file, s, 0, s->n);
  if (!pd_output_close(&out, ok)) pd_fail("cannot write '%s': %s", path, strerror(errno));
}

/* ---- a folder's files ------------------------------------------------------------------------ */

static int64_t bytes_of(const struct pd_entry *e) { return e->name ? e->elements * pd_dtype_bytes(e->dtype) : 0; }

/* The end of each file of at most --save-shard bytes, or of one tensor; returns the number of files. */
static int divide(const struct save *s, int *ends) {
  int files = 0;
  int64_t bytes = 0;
  for (int i = 0; i < s->n; i++) {
    const int64_t more = bytes_of(&s->entries[i]);
    if (bytes && bytes + more > pd_options.save_shard && !pd.stage->adapter_config) {
      ends[files++] = i;
      bytes = 0;
    }
    bytes += more;
  }
  ends[files++] = s->n;
  return files;
}

static void name_file(char *to, size_t room, int i, int files) {
  if (files == 1)
    snprintf(to, room, "%s", pd.stage->adapter_config ? PD_ADAPTER_FILE : "model.safetensors");
  else
    snprintf(to, room, "model-%05d-of-%05d.safetensors", i + 1, files);
}

static bool write_index(struct pd_output_folder *to, const struct save *s, const int *ends, int files) {
  char name[64];
  double total = 0;
  cJSON *root = cJSON_CreateObject(), *metadata = cJSON_AddObjectToObject(root, "metadata"),
        *map = cJSON_AddObjectToObject(root, "weight_map");
  for (int file = 0; file < files; file++) {
    int n;
    struct pd_entry *present = entries_between(s, file ? ends[file - 1] : 0, ends[file], &n);
    name_file(name, sizeof name, file, files);
    for (int i = 0; i < n; i++) {
      cJSON_AddStringToObject(map, present[i].name, name);
      total += (double)bytes_of(&present[i]);
    }
    free(present);
  }
  cJSON_AddNumberToObject(metadata, "total_size", total);
  char *text = cJSON_Print(root);
  cJSON_Delete(root);
  FILE *out = text ? pd_output_folder_file(to, "model.safetensors.index.json") : NULL;
  bool ok = out && pd_output_folder_file_close(out, fputs(text, out) >= 0);
  free(text);
  return ok;
}

static bool write_shards(struct pd_output_folder *to, const struct save *s) {
  char name[64];
  int *ends = pd_allocate(sizeof *ends * (size_t)(s->n + 1)), files = divide(s, ends);
  bool ok = true;
  for (int i = 0; i < files && ok; i++) {
    name_file(name, sizeof name, i, files);
    FILE *out = pd_output_folder_file(to, name);
    ok = out && pd_output_folder_file_close(out, write_tensors(out, s, i ? ends[i - 1] : 0, ends[i]));
  }
  ok = ok && (files == 1 || write_index(to, s, ends, files));
  free(ends);
  return ok;
}

/* A folder that got other files during the run is not replaced: the weights then have another name. */
static void write_folder(const char *path, const struct save *s) {
  char why[PD_WHY] = "";
  struct pd_output_folder out;
  if (!pd_output_folder_open(&out, path)) pd_fail("cannot write '%s': %s", path, strerror(errno));
  bool ok = write_shards(&out, s) && pd_folder_copy(&out);
  const bool free_path = pd_folder_may_replace(path, why);
  if (!free_path) snprintf(out.self.path, sizeof out.self.path, "%.4000s.%d", path, (int)getpid());
  if (!pd_output_folder_close(&out, ok))
    pd_fail("cannot write '%s': %s%s%s", path, strerror(errno), *out.kept ? "; the weights are in " : "",
            out.kept);
  if (!free_path) pd_fail("%.900s; the weights are in '%s'", why, out.self.path);
}

/* ---- all ranks ------------------------------------------------------------------------------- */

/* Sends the parts of a parallel pipeline to the first pipeline, which writes them. */
static void join_saved(void) {
  for (int order = 0; order < pd.stage->n_model_parameters; order++)
    for (int i = 0; i < pd.stage->n_parameters; i++)
      if (pd.stage->parameters[i].order == order && takes_part(&pd.stage->parameters[i]))
        view_saved(&pd.stage->parameters[i]);
}

static void send_all(float *piece) {
  const struct pd_stage *s = pd.stage;
  for (int order = 0; order < s->n_model_parameters; order++)
    for (int i = 0; i < s->n_parameters; i++)
      if (s->parameters[i].order == order && pd_provides(&s->parameters[i]) && is_saved(&s->parameters[i]))
        send_pieces(&s->parameters[i], piece);
      else if (s->parameters[i].order == order && takes_part(&s->parameters[i]))
        view_saved(&s->parameters[i]);
}

static void write_all(const char *path, bool folder, struct save *s) {
  const enum pd_dtype given = pd_options.save_dtype ? pd_dtype_of(pd_options.save_dtype) : PD_DTYPE_F32;
  for (int i = 0; i < s->n; i++) {
    if (pd_options.save_only && s->entries[i].name && !is_saved_name(s->entries[i].name)) {
      free(s->entries[i].name);
      s->entries[i].name = NULL;
    }
    s->entries[i].dtype = folder ? pd_folder_dtype() : given;
    if ((folder || pd.stage->adapter_config) && s->entries[i].name) pd_folder_rename(i, &s->entries[i].name);
  }
  s->rounded = pd_allocate(PIECE * sizeof(uint16_t));
  s->folder = folder;
  (folder ? write_folder : write_file)(path, s);
  free(s->rounded);
}

void pd_save_weights(const char *path, bool raw) {
  saves_raw = raw;
  if (pd.tensor_rank) {
    join_saved();
    return;
  }
  struct save s = {.n = pd.stage->n_model_parameters};
  s.writer = pd_allocate(sizeof *s.writer * (size_t)s.n);
  s.entries = pd_gather_entries(s.writer);
  s.piece = pd_allocate((PIECE + SUM) * sizeof *s.piece);
  if (pd.rank)
    send_all(s.piece);
  else
    write_all(path, raw ? pd_options.save_raw_folder : pd_options.save_folder, &s);
  pd_free_entries(s.entries);
  free(s.writer);
  free(s.piece);
}

static bool link_leads(const char *path, char *why) {
  struct stat own, target;
  return !path || lstat(path, &own) || !S_ISLNK(own.st_mode) || !stat(path, &target) ||
         pd_refuse(why, "--save '%.500s' is a link to nothing. help: remove it, or create what it names", path);
}

/* On rank 0. */
static bool check_only(const struct pd_entry *entries, char *why) {
  const struct pd_options *o = &pd_options;
  struct pd_range part;
  bool some = false;
  if (o->save_folder || o->save_raw_folder)
    return pd_refuse(why, "--save-only writes a part of the weights, and a folder has all. help: --save FILE");
  for (const char *pattern = o->save_only; pd_pattern_next(&pattern, &part);) {
    bool any = false;
    for (int i = 0; i < pd.stage->n_model_parameters; i++)
      any |= entries[i].name && pd_alternative_matches(part, entries[i].name);
    if (!any) pd_warn("--save-only: no parameter matches '%.*s'", (int)part.n, part.at);
  }
  for (int i = 0; i < pd.stage->n_model_parameters; i++) some |= entries[i].name && is_saved_name(entries[i].name);
  return some || pd_refuse(why, "--save-only '%.300s' matches no parameter of the model", o->save_only);
}

void pd_save_start(char *why) {
  const struct pd_options *o = &pd_options;
  if (!link_leads(o->save, why) || !link_leads(o->save_raw, why)) return;
  if (!(o->save || o->save_raw) || pd.tensor_rank) return;
  struct pd_entry *entries = pd_gather_entries(NULL);
  if (!pd.rank && o->save_only && !check_only(entries, why)) {
    pd_free_entries(entries);
    return;
  }
  if (!pd.rank && (o->save_folder || o->save_raw_folder || pd.stage->adapter_config))
    pd_folder_start(entries, why);
  else if (!pd.rank && o->save_config)
    pd_refuse(why, "--save-config has no effect on a file. help: --save DIR/ writes a folder");
  pd_free_entries(entries);
}
