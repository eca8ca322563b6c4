/* W(0) from --init's files or fresh. Every rank opens all files and reads its own parameters. */
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "messages/messages.h"
#include "update/update.h"
#include "shared/adapters.h"
#include "shared/pattern.h"
#include "checkpoint/sources.h"
#include "checkpoint/stacks.h"

#include <stdlib.h>
#include <string.h>

static char **read_paths; /* paths of all opened files, NULL-terminated */

const char *pd_init_path(int i) { return read_paths ? read_paths[i] : NULL; }

static void keep_paths(const struct pd_sources *s) {
  read_paths = pd_allocate(sizeof *read_paths * (size_t)(s->n_files + 1));
  for (int f = 0; f < s->n_files; f++) read_paths[f] = pd_copy_text(s->file[f].path);
}

/* ---- one parameter --------------------------------------------------------------------------- */

/* The outcome of a parameter, by order of declaration, equal on all ranks that hold it. FRESH: in no file;
 * RESHAPED: with another shape. Both start fresh by --init-partial; in a training also adapters in no file. */
enum outcome { NOT_HERE, READ, FRESH, RESHAPED, MISSING };

/* By --init-partial. */
static bool may_start_fresh(const char *name) {
  for (int i = 0; i < pd_options.n_init_partial; i++)
    if (pd_pattern_matches(pd_options.init_partial[i], name)) return true;
  return false;
}

void pd_start_fresh(const struct pd_parameter *p) {
  float *w = pd_fill_newest(p, 0);
  pd_initialise(p, pd.seed, w);
  pd_newest_filled(p, 0, w);
}

static void print_shape(char *to, size_t room, int rank, const int64_t *dim) {
  size_t n = (size_t)snprintf(to, room, "[");
  for (int i = 0; i < rank && n < room; i++)
    n += (size_t)snprintf(to + n, room - n, "%s%lld", i ? ", " : "", (long long)dim[i]);
  if (n < room) snprintf(to + n, room - n, "]");
}

/* This rank's part of a file's whole tensor. */
static void copy_part(const struct pd_parameter *p, const struct pd_entry *e, bool swapped, float *to) {
  struct pd_shape whole = pd_whole_shape(p);
  int64_t own = pd_own_elements(p);
  for (int64_t i = own; i < p->elements; i++) to[i] = 0;
  for (int64_t i = 0; i < own; i++) {
    int64_t at = pd_whole_element(p, i);
    to[i] = pd_entry_float(e, swapped ? at % whole.dim[1] * whole.dim[0] + at / whole.dim[1] : at);
  }
}

static void copy_in(const struct pd_parameter *p, const struct pd_entry *e, bool swapped, float *to) {
  if (p->runs) {
    copy_part(p, e, swapped, to);
  } else if (swapped) {
    int64_t rows = p->dim[0], columns = p->dim[1];
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < columns; j++) to[i * columns + j] = pd_entry_float(e, j * rows + i);
  } else if (e->dtype == PD_DTYPE_F32)
    memcpy(to, e->data, (size_t)p->elements * sizeof(float));
  else
    for (int64_t i = 0; i < p->elements; i++) to[i] = pd_entry_float(e, i);
}

static bool has_shape(const struct pd_entry *e, int rank, const int64_t *dim) {
  bool same = e->rank == rank;
  for (int i = 0; same && i < rank; i++) same = e->dim[i] == dim[i];
  return same;
}

/* For the parameter or tensor of this name. */
static const char *hint(const struct pd_sources *s, const char *name) {
  const char *settings = pd_is_adapter(name) ? pd_adapters_help(s) : "";
  if (*settings) return settings;
  if (!pd.stage->inference) return ". help: let parameters start fresh with --init-partial PATTERN";
  return pd.stage->adapter_config ? ". help: --init also takes the folder of the adapters: --init DIR ADAPTER_DIR"
                                  : "";
}

#define TRANSPOSED ". help: for transposed weights, as in Hugging Face's GPT-2, give the layer 'stored = in_out'"

/* The tensor's shape is not the needed one of this rank, of the parameter or of one of its experts. */
static bool refuse_shape(const struct pd_sources *s, const struct pd_parameter *p, const struct pd_source *x,
                         int rank, const int64_t *dim, char *why) {
  const struct pd_entry *e = x->entry;
  char found[160], needed[160];
  print_shape(found, sizeof found, e->rank, e->dim);
  print_shape(needed, sizeof needed, rank, dim);
  bool transposed = p->rank == 2 && e->rank == 2 && e->dim[0] == dim[1] && e->dim[1] == dim[0];
  return pd_refuse(why, "'%s': tensor '%s' has shape %s, but the model needs %s%s", s->file[x->file].path, e->name,
                   found, needed, transposed && !pd_is_adapter(e->name) ? TRANSPOSED : hint(s, e->name));
}

static bool refuse_type(const struct pd_sources *s, const struct pd_source *x, char *why) {
  return pd_refuse(why, "'%s': tensor '%s' is not of type F32, F16, BF16 or F64", s->file[x->file].path,
                   x->entry->name);
}

/* Two tensors hold one parameter. */
static bool refuse_twice(const struct pd_sources *s, const struct pd_parameter *p, const struct pd_source *x,
                         const struct pd_source *y, char *why) {
  return pd_refuse(
      why,
      "tensor '%.200s' of '%.250s' and tensor '%.200s' of '%.250s' both hold '%.200s'. help: remove one "
      "of them, or give it another name with --rename",
      x->entry->name, s->file[x->file].path, y->entry->name, s->file[y->file].path, p->name);
}

static bool refuse_missing(const struct pd_sources *s, const struct pd_parameter *p, const struct pd_stack *x,
                           char *why) {
  return pd_refuse(why, "'%.300s' holds '%.200s', but %s no tensor '%.200s'%s%.200s%s",
                   s->file[x->some->file].path, x->some->entry->name,
                   s->n_files == 1 ? "it holds" : "the files hold", x->missing,
                   pd.stage->inference ? "" : ". help: --init-partial '", pd.stage->inference ? "" : p->name,
                   pd.stage->inference ? "" : "' starts the matrices of all experts fresh");
}

/* A parameter of all experts, from a tensor for each. */
static bool load_stack(const struct pd_sources *s, const struct pd_parameter *p, const struct pd_stack *x,
                       unsigned char *used, unsigned char *outcome, char *why) {
  int64_t needed[2];
  if (x->other) return refuse_twice(s, p, x->some, x->other, why);
  const bool fresh = may_start_fresh(p->name);
  if (x->missing && !fresh) return refuse_missing(s, p, x, why);
  const struct pd_source *misfit = x->missing ? NULL : pd_stack_misfit(x, pd_whole_shape(p).dim, needed);
  if (misfit && !fresh) return refuse_shape(s, p, misfit, 2, needed, why);
  for (int i = 0; i < x->n; i++)
    if (x->part[i]) used[x->part[i] - s->at] = 1;
  if (x->missing || misfit) {
    *outcome = FRESH;
    pd_start_fresh(p);
    return true;
  }
  for (int i = 0; i < x->n; i++)
    if (x->part[i]->entry->dtype == PD_DTYPE_OTHER) return refuse_type(s, x->part[i], why);
  float *w = pd_fill_newest(p, 0);
  pd_stack_copy(x, p, w);
  pd_newest_filled(p, 0, w);
  *outcome = READ;
  return true;
}

/* From one tensor. */
static bool load_tensor(const struct pd_sources *s, const struct pd_parameter *p, const struct pd_source *x,
                        unsigned char *used, unsigned char *outcome, char *why) {
  used[x - s->at] = 1;
  const struct pd_source_file *file = &s->file[x->file];
  int64_t dim[PD_MAX_RANK] = {0};
  pd_file_shape(p, dim);
  struct pd_shape whole = pd_whole_shape(p);
  const int64_t *needed = file->is_shard ? whole.dim : dim;
  if (!has_shape(x->entry, p->rank, needed)) {
    if (!may_start_fresh(p->name)) return refuse_shape(s, p, x, p->rank, needed, why);
    *outcome = RESHAPED;
    pd_start_fresh(p);
    return true;
  }
  if (x->entry->dtype == PD_DTYPE_OTHER) return refuse_type(s, x, why);
  float *w = pd_fill_newest(p, 0);
  copy_in(p, x->entry, !file->is_shard && p->stored_in_out && p->rank == 2, w);
  pd_newest_filled(p, 0, w);
  *outcome = READ;
  return true;
}

/* The tensor of a parameter that the folder of adapters has whole; the base model's is then not used. For inference the
 * base model's does not count. */
static const struct pd_source *find_whole(const struct pd_sources *s, const char *name, unsigned char *used) {
  const struct pd_source *base = pd_sources_find_base(s, name), *x = pd_sources_find(s, name);
  if (base) used[base - s->at] = 1;
  return x == base && pd.stage->inference ? NULL : x;
}

static bool load_one(const struct pd_sources *s, const struct pd_parameter *p, unsigned char *used,
                     unsigned char *outcome, char *why) {
  const bool whole = pd_of_adapter(p->name) && !pd_is_adapter(p->name);
  const struct pd_source *x = whole ? find_whole(s, p->name, used) : pd_sources_find(s, p->name);
  struct pd_stack stack;
  if (p->rank == 3 && pd_stack_find(s, p->name, pd_whole_shape(p).dim[0], &stack)) {
    const bool ok = x ? refuse_twice(s, p, x, stack.some, why) : load_stack(s, p, &stack, used, outcome, why);
    pd_stack_free(&stack);
    return ok;
  }
  if (x) return load_tensor(s, p, x, used, outcome, why);
  const bool adapter = pd.stage->adapter_config && !pd.stage->inference && pd_is_adapter(p->name);
  const bool fresh = may_start_fresh(p->name) || adapter;
  *outcome = fresh ? FRESH : MISSING; /* reported together */
  if (fresh) pd_start_fresh(p);
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
    snprintf(to, room, "the %d --init files hold", s->n_files);
}

/* The maximum over ranks of each of n bytes. */
static void merge(unsigned char *bytes, int n) {
  unsigned char *mine = pd_allocate((size_t)n);
  memcpy(mine, bytes, (size_t)n);
  MPI_Request request;
  MPI_Iallreduce(mine, bytes, n, MPI_UNSIGNED_CHAR, MPI_MAX, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to read the weights", -1, NULL, -1);
  free(mine);
}

/* The number of missing parameters that the files have with this prefix. */
static int behind_prefix(const struct pd_sources *s, const struct pd_entry *entries, const unsigned char *outcome,
                         const char *prefix, int bytes) {
  int found = 0;
  for (int i = 0; i < pd.stage->n_model_parameters; i++) {
    char name[PD_WHY];
    if (outcome[i] != MISSING || !entries[i].name) continue;
    snprintf(name, sizeof name, "%.*s%s", bytes, prefix, entries[i].name);
    found += pd_sources_find(s, name) != NULL;
  }
  return found;
}

/* Finds a --rename that resolves at least half of the missing parameters by a prefix such as "model." or
 * "module.". False: none. */
static bool find_prefix(const struct pd_sources *s, const struct pd_entry *entries, const unsigned char *outcome,
                        const char *first, int missing, char *to, size_t room) {
  size_t n = strlen(first);
  for (int i = 0; i < s->n; i++) {
    const char *name = s->at[i].name;
    size_t m = strlen(name);
    if (m < n + 2 || name[m - n - 1] != '.' || strcmp(name + m - n, first)) continue;
    int found = behind_prefix(s, entries, outcome, name, (int)(m - n));
    if (2 * found < missing) continue;
    snprintf(to, room, ". help: --rename '%.*s*=*' finds %d of them", (int)(m - n), name, found);
    return true;
  }
  return false;
}

/* Rank 0: checks that no parameter is missing, and that every pattern of --init-partial matches one. */
static bool check_outcome(const struct pd_sources *s, const struct pd_entry *entries, const unsigned char *outcome,
                          char *why) {
  int n = pd.stage->n_model_parameters;
  struct names missing = {0};
  char files[400];
  const char *first = NULL;
  for (int i = 0; i < n; i++) {
    if (outcome[i] != MISSING || !entries[i].name) continue;
    if (!first) first = entries[i].name;
    add_name(&missing, entries[i].name);
  }
  end_names(&missing);
  name_files(s, files, sizeof files);
  if (missing.n) {
    char rename[PD_WHY / 4];
    bool prefixed = find_prefix(s, entries, outcome, first, missing.n, rename, sizeof rename);
    return pd_refuse(why, "%s no tensor%s %s%s", files, missing.n == 1 ? "" : "s", missing.text,
                     prefixed ? rename : hint(s, first));
  }
  for (int p = 0; p < pd_options.n_init_partial; p++) {
    const char *pattern = pd_options.init_partial[p];
    bool some = false;
    for (int i = 0; i < n && !some; i++) some = entries[i].name && pd_pattern_matches(pattern, entries[i].name);
    if (!some) return pd_refuse(why, "--init-partial '%.300s' matches no parameter of the model", pattern);
  }
  return true;
}

/* Rank 0: notes all parameters that start fresh. */
static void note_fresh(const struct pd_sources *s, const struct pd_entry *entries, const unsigned char *outcome) {
  char *names = NULL;
  size_t bytes = 0;
  int fresh = 0;
  FILE *to = open_memstream(&names, &bytes);
  if (!to) pd_fail("out of memory");
  for (int i = 0; i < pd.stage->n_model_parameters; i++) {
    if (outcome[i] != FRESH && outcome[i] != RESHAPED) continue;
    fprintf(to, "%s'%s'", fresh++ ? ", " : "", entries[i].name);
    if (outcome[i] == FRESH) continue;
    char shape[160];
    const struct pd_entry *e = pd_sources_find(s, entries[i].name)->entry;
    print_shape(shape, sizeof shape, e->rank, e->dim);
    fprintf(to, " (of shape %s in the file)", shape);
  }
  fclose(to);
  pd_note(fresh ? "%d parameter%s start%s fresh: %s" : "no parameter starts fresh: the --init files hold all",
          fresh, fresh == 1 ? "" : "s", fresh == 1 ? "s" : "", names);
  free(names);
}

/* Rank 0: notes how many of the adapters start fresh. */
static void note_adapters(const unsigned char *outcome) {
  int fresh = 0;
  for (int i = 0; i < pd.stage->n_model_parameters; i++) fresh += outcome[i] == FRESH;
  if (fresh) pd_note("%d parameters of adapters start fresh", fresh);
}

/* Collective: rank 0, which has all names, reports the outcome of all parameters. */
static void report(const struct pd_sources *s, const unsigned char *outcome) {
  char why[PD_WHY] = "";
  if (!pd_options.n_init_partial && !memchr(outcome, MISSING, (size_t)pd.stage->n_model_parameters)) {
    note_adapters(outcome);
    return;
  }
  struct pd_entry *entries = pd_gather_entries(NULL);
  bool ok = pd.rank || check_outcome(s, entries, outcome, why);
  pd_agree(why);
  if (ok && !pd.rank && pd_options.n_init_partial) note_fresh(s, entries, outcome);
  pd_free_entries(entries);
}

/* True for batch counters of PyTorch's batch norm, which models do not use. */
static bool is_count(const char *name) {
  static const char count[] = "num_batches_tracked";
  size_t n = strlen(name), m = sizeof count - 1;
  return n >= m && !strcmp(name + n - m, count);
}

/* Notes the tensors that no stage reads, such as attention masks or a second name of tied weights. */
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
  const struct pd_options *o = &pd_options;
  int mapped = pd_mapped_files();
  pd_sources_open(&s, o->init, o->n_init, o->rename, o->n_rename, why);
  pd_agree(why);
  pd_agree_on_files(mapped);
  keep_paths(&s);
  if (s.n_files) pd_classes_read(pd_safetensors_metadata(&s.file[0].content, "classes"), s.file[0].path, why);
  if (!*why) pd_adapters_check(&s, why);
  pd_agree(why);
  pd_compare_configs(&s);
  unsigned char *used = pd_allocate((size_t)s.n), *outcome = pd_allocate((size_t)pd.stage->n_model_parameters);
  for (int i = 0; i < pd.stage->n_parameters && !*why; i++) {
    const struct pd_parameter *p = &pd.stage->parameters[i];
    load_one(&s, p, used, &outcome[p->order], why);
  }
  pd_agree(why);
  merge(used, s.n);
  merge(outcome, pd.stage->n_model_parameters);
  report(&s, outcome);
  pd_adapters_used(&s, used, why);
  pd_agree(why);
  note_unused(&s, used);
  free(used);
  free(outcome);
  pd_sources_close(&s);
}
