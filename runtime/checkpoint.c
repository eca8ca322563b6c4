/* The state of a training, so that it can go on after an end: DIR/step-N/shard-R-of-S.safetensors, one shard a
 * stage, each written by its first replica beside its name and renamed; a step is complete when its S shards are
 * there. A shard holds, for each parameter that its stage owns, weights.NAME (W(t) after t = N updates), then the
 * older versions that microbatches may still use: previous.NAME (W(t - 1)), previous2.NAME (W(t - 2)), ...;
 * moment1.NAME, moment2.NAME, and average.NAME under `ema`. Elements are in memory's order, and floats: the
 * newest weights are the masters where there are any, older ones working copies, which floats hold as they are.
 * Any plan finds its parameters by name in all shards. Microbatches in flight are not stored: they are run again
 * with the weights they had. */
#include "internal.h"
#include "safetensors.h"
#include "sources.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int64_t pd_sample_base;

enum { PATH_BYTES = 4096, KIND_BYTES = 24 };

static void shard_path(char *to, int64_t step, int shard, int shards) {
  int n = snprintf(to, PATH_BYTES, "%s/step-%lld/shard-%d-of-%d.safetensors", pd_options.checkpoint,
                   (long long)step, shard, shards);
  if (n >= PATH_BYTES) pd_fail("the path '%.100s...' is too long", pd_options.checkpoint);
}

static int n_tensors(void) {
  return pd.stage->versions + pd.stage->n_moments + (pd.stage->ema > 0);
} /* a parameter */

/* A parameter's tensor number `i`: its name's beginning and its place; neither `newest` nor `at` while there is
 * none. */
struct tensor {
  char kind[KIND_BYTES], *at;
  const struct pd_parameter *newest; /* its newest weights */
  bool bf16;
  struct pd_shape shape;
};

static struct tensor tensor(const struct pd_parameter *p, int i, int64_t step) {
  const struct pd_stage *s = pd.stage;
  struct tensor x = {.at = NULL, .shape = {.rank = p->rank, .elements = p->elements}};
  memcpy(x.shape.dim, p->dim, sizeof x.shape.dim);
  int moment = i - s->versions;
  if (moment == s->n_moments) {
    snprintf(x.kind, sizeof x.kind, "average");
    x.at = (char *)pd_average_at(p);
  } else if (moment >= 0) {
    snprintf(x.kind, sizeof x.kind, "moment%d", moment + 1);
    if (pd_is_trained(p)) x.at = (char *)pd_moment_at(p, moment);
    x.shape = pd_moment_shape(p, moment);
  } else if (i == 0) {
    snprintf(x.kind, sizeof x.kind, "weights");
    x.newest = p;
  } else {
    snprintf(x.kind, sizeof x.kind, i == 1 ? "previous" : "previous%d", i);
    x.bf16 = p->bf16;
    if (i <= step && !p->frozen) x.at = pd_weights_at(p, step - i);
  }
  return x;
}

static char *joined(const char *kind, const char *name) {
  char *text = pd_allocate(strlen(kind) + strlen(name) + 2);
  return strcat(strcat(strcpy(text, kind), "."), name);
}

/* ---- writing --------------------------------------------------------------------------------- */

static unsigned char *shard_header(const struct pd_entry *entries, int n, int64_t step, size_t *bytes) {
  char steps[32], samples[32], seed[32];
  snprintf(steps, sizeof steps, "%lld", (long long)step);
  snprintf(samples, sizeof samples, "%lld", (long long)(pd_sample_base + step * pd.stage->batch));
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)pd.seed);
  const char *const metadata[][2] = {
      {"format", "pt"}, {"model", pd.stage->model}, {"optimizer", pd.stage->optimizer->name},
      {"step", steps},  {"samples", samples},       {"seed", seed}};
  return pd_safetensors_header(entries, n, metadata, sizeof metadata / sizeof *metadata, bytes);
}

/* The tensors that this rank writes, and where they are in the arena. */
static int collect(int64_t step, struct pd_entry *entries, struct tensor *tensors) {
  int n = 0;
  for (int i = 0; i < pd.stage->n_parameters; i++) {
    const struct pd_parameter *p = &pd.stage->parameters[i];
    for (int j = 0; j < n_tensors() && p->owner == pd.stage->stage; j++) {
      struct tensor x = tensors[n] = tensor(p, j, step);
      if (!x.at && !x.newest) continue;
      entries[n] =
          (struct pd_entry){.name = joined(x.kind, p->name), .rank = x.shape.rank, .elements = x.shape.elements};
      memcpy(entries[n++].dim, x.shape.dim, sizeof x.shape.dim);
    }
  }
  return n;
}

void pd_checkpoint_write(int64_t step) {
  char path[PATH_BYTES];
  if (pd.replica) return;
  size_t room = (size_t)(pd.stage->n_parameters * n_tensors()), bytes = 0;
  struct pd_entry *entries = pd_allocate(sizeof *entries * room);
  struct tensor *tensors = pd_allocate(sizeof *tensors * room);
  int n = collect(step, entries, tensors);
  shard_path(path, step, pd.stage->stage, pd.stage->n_stages);
  *strrchr(path, '/') = 0;
  if (mkdir(path, 0777) && errno != EEXIST) pd_fail("cannot make directory '%s': %s", path, strerror(errno));
  shard_path(path, step, pd.stage->stage, pd.stage->n_stages);
  unsigned char *header = shard_header(entries, n, step, &bytes);
  struct pd_output out;
  bool ok = header && pd_output_open(&out, path) && fwrite(header, 1, bytes, out.file) == bytes;
  for (int i = 0; ok && i < n; i++) {
    size_t elements = (size_t)entries[i].elements;
    const float *x = tensors[i].newest ? pd_view_newest(tensors[i].newest, step)
                                       : pd_view(tensors[i].at, entries[i].elements, tensors[i].bf16);
    ok = fwrite(x, sizeof *x, elements, out.file) == elements;
  }
  if (!header || !pd_output_close(&out, ok)) pd_fail("cannot write '%s': %s", path, strerror(errno));
  free(header);
  for (int i = 0; i < n; i++) free(entries[i].name);
  free(entries);
  free(tensors);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The number of shards of a complete step, or 0. */
static int complete(int64_t step) {
  char path[PATH_BYTES];
  bool all;
  snprintf(path, sizeof path, "%s/step-%lld", pd_options.checkpoint, (long long)step);
  int shards = pd_count_shards(path, &all);
  return all ? shards : 0;
}

/* The newest complete step: {step, shards}; shards 0 when there is none. */
static void newest(int64_t *found) {
  DIR *dir = opendir(pd_options.checkpoint);
  for (struct dirent *d; dir && (d = readdir(dir));) {
    long long step;
    int end = 0, shards;
    if (sscanf(d->d_name, "step-%lld%n", &step, &end) != 1 || d->d_name[end] || step <= found[0]) continue;
    if (!(shards = complete(step))) continue;
    found[0] = step;
    found[1] = shards;
  }
  if (dir) closedir(dir);
}

bool pd_checkpoint_check(char *why) {
  char path[PATH_BYTES];
  if (!pd_make_directories(pd_options.checkpoint, why)) return false;
  if (snprintf(path, sizeof path, "%s/step", pd_options.checkpoint) >= (int)sizeof path)
    return pd_refuse(why, "the path '%.100s...' is too long", pd_options.checkpoint);
  int64_t found[2] = {0, 0};
  newest(found);
  if (pd_options.evaluate) return true; /* nothing is written */
  if (found[1] && !pd_options.resume)
    return pd_refuse(why, "'%s' holds a checkpoint of step %lld: give --resume or another directory",
                     pd_options.checkpoint, (long long)found[0]);
  return pd_writable(path, why);
}

/* What each shard records of the whole run: equal in all. */
static bool check_shards(const struct pd_safetensors *shards, int n, int64_t step, char *why) {
  static const char *const names[] = {"model", "optimizer", "step", "samples", "seed"};
  for (int i = 1; i < n; i++)
    for (size_t j = 0; j < sizeof names / sizeof *names; j++)
      if (strcmp(pd_safetensors_metadata(&shards[i], names[j]), pd_safetensors_metadata(&shards[0], names[j])))
        return pd_refuse(why, "the shards of step %lld in '%s' are of different runs", (long long)step,
                         pd_options.checkpoint);
  const char *model = pd_safetensors_metadata(&shards[0], "model");
  if (strcmp(model, pd.stage->model))
    return pd_refuse(why, "the checkpoint in '%s' is of the model '%.200s'", pd_options.checkpoint, model);
  const char *optimizer = pd_safetensors_metadata(&shards[0], "optimizer"); /* "": of an older version */
  if (*optimizer && strcmp(optimizer, pd.stage->optimizer->name))
    return pd_refuse(why,
                     "the checkpoint in '%s' is of the optimizer '%.200s', not '%s': moments do not mean the same",
                     pd_options.checkpoint, optimizer, pd.stage->optimizer->name);
  uint64_t seed = strtoull(pd_safetensors_metadata(&shards[0], "seed"), NULL, 10);
  if (seed != pd.seed && !pd_only_evaluates())
    return pd_refuse(why, "the checkpoint in '%s' was made with --seed %llu", pd_options.checkpoint,
                     (unsigned long long)seed);
  if (step > pd.steps && !pd_only_evaluates())
    return pd_refuse(why, "the checkpoint in '%s' is of step %lld, beyond --steps %lld", pd_options.checkpoint,
                     (long long)step, (long long)pd.steps);
  pd_sample_base = strtoll(pd_safetensors_metadata(&shards[0], "samples"), NULL, 10) - step * pd.stage->batch;
  return true;
}

static const struct pd_entry *find(const struct pd_safetensors *shards, int n, const char *kind,
                                   const char *name) {
  char *whole = joined(kind, name);
  const struct pd_entry *e = NULL;
  for (int i = 0; i < n && !e; i++) e = pd_safetensors_find(&shards[i], whole);
  free(whole);
  return e;
}

static bool read_parameter(const struct pd_safetensors *shards, int n, const struct pd_parameter *p, int64_t step,
                           char *why) {
  for (int i = 0; i < n_tensors(); i++) {
    struct tensor x = tensor(p, i, step);
    if (!x.at && !x.newest) continue;
    const struct pd_entry *e = find(shards, n, x.kind, p->name);
    if (!e && i < pd.stage->versions) /* from a schedule with fewer versions */
      e = find(shards, n, "weights", p->name);
    if (!e)
      return pd_refuse(why, "the checkpoint of step %lld in '%s' holds no '%s.%s'", (long long)step,
                       pd_options.checkpoint, x.kind, p->name);
    bool same = e->rank == x.shape.rank && e->dtype == PD_F32;
    for (int j = 0; same && j < x.shape.rank; j++) same = e->dim[j] == x.shape.dim[j];
    if (!same)
      return pd_refuse(why, "the checkpoint of step %lld in '%s' is of another model: '%s' has another shape",
                       (long long)step, pd_options.checkpoint, p->name);
    float *to = x.newest ? pd_fill_newest(p, step) : pd_fill(x.at, x.shape.elements);
    memcpy(to, e->data, (size_t)x.shape.elements * sizeof(float));
    if (x.newest)
      pd_newest_filled(p, step, to);
    else
      pd_filled(x.at, x.shape.elements, x.bf16);
  }
  return true;
}

static int n_moments(const struct pd_parameter *p) {
  int n = 0;
  for (int i = 0; i < pd.stage->n_moments && pd_is_trained(p); i++) n += !!pd_moment_at(p, i);
  return n;
}

/* A checkpoint of a larger model, or of an optimizer with more moments, holds every tensor that is looked for
 * and others besides. Collective. */
static void check_all_used(const struct pd_safetensors *shards, int n, char *why) {
  int64_t mine = 0, used, held = 0;
  for (int i = 0; i < pd.stage->n_parameters; i++)
    if (pd.stage->parameters[i].owner == pd.stage->stage && !pd.replica)
      mine += 1 + n_moments(&pd.stage->parameters[i]) + (pd_average_at(&pd.stage->parameters[i]) != NULL);
  MPI_Request request;
  MPI_Iallreduce(&mine, &used, 1, MPI_INT64_T, MPI_SUM, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to read the checkpoint", -1, NULL, -1);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < shards[i].n; j++) held += strncmp(shards[i].at[j].name, "previous", 8) != 0;
  if (held != used)
    pd_refuse(
        why,
        "the checkpoint in '%s' is of another model or optimizer, froze others or averaged: %lld tensors instead of %lld",
        pd_options.checkpoint, (long long)held, (long long)used);
}

bool pd_resume(void) {
  char why[PD_WHY] = "", path[PATH_BYTES];
  int64_t found[2] = {0, 0};
  MPI_Request request;
  if (!pd.rank) newest(found);
  MPI_Ibcast(found, 2, MPI_INT64_T, 0, pd_comm_control, &request);
  pd_wait(1, &request, "the newest checkpoint's name", -1, NULL, -1);
  int n = (int)found[1];
  if (!n && pd_options.evaluate) pd_fail("'%s' holds no complete checkpoint", pd_options.checkpoint);
  if (!n) {
    pd_note("'%s' holds no complete checkpoint: starting from the first update", pd_options.checkpoint);
    return false;
  }
  struct pd_safetensors *shards = pd_allocate(sizeof *shards * (size_t)n);
  bool ok = true;
  for (int i = 0; i < n && ok; i++) {
    shard_path(path, found[0], i, n);
    ok = pd_safetensors_open(path, &shards[i], why);
  }
  ok = ok && check_shards(shards, n, found[0], why);
  for (int i = 0; i < pd.stage->n_parameters && ok; i++)
    ok = read_parameter(shards, n, &pd.stage->parameters[i], found[0], why);
  pd_agree(why);
  check_all_used(shards, n, why);
  pd_agree(why);
  for (int i = 0; i < n; i++) pd_safetensors_close(&shards[i]);
  free(shards);
  pd.first_step = found[0];
  return true;
}
