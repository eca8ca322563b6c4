/* Resuming from a checkpoint: the newest valid step in --checkpoint's folder, whose shards match its manifest.
 * Ranks share the verification of shards and read their tensors by name, so that any plan resumes any plan's
 * checkpoint. A thread verifies payloads while tensors are read, so that each page is read from disk once; after a
 * failure an older step is read instead. Skipped steps are reported with the reason. */
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "messages/messages.h"
#include "update/update.h"

#include "shared/checksum.h"
#include "checkpoint/sources.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* The state of a step. PLAIN: written by an earlier version without a manifest; all shards are present. */
enum standing { NONE, UNFINISHED, DAMAGED, PLAIN, SOUND };
struct found {
  int64_t step;
  uint64_t manifest; /* its checksum */
  int32_t shards, standing;
};

/* ---- a step, as rank 0 finds it -------------------------------------------------------------- */

static struct found examine_manifest(int64_t step, const char *path, char *why) {
  struct found f = {.step = step, .standing = DAMAGED};
  struct pd_manifest m;
  char cause[PD_WHY];
  size_t bytes;
  const char *text = pd_map_file(path, &bytes, why);
  if (!text) return f;
  f.manifest = pd_checksum(text, bytes);
  if (!pd_manifest_parse(text, bytes, &m, cause))
    pd_refuse(why, "'%s': %.900s", path, cause);
  else if (m.step != step)
    pd_refuse(why, "'%s' holds step %lld: the directory was renamed", path, (long long)m.step);
  else
    f.standing = SOUND; /* if all shards verify */
  f.shards = m.n_shards;
  pd_manifest_free(&m);
  pd_unmap_file(text, bytes);
  return f;
}

/* A whole number in a shard's metadata; -1: invalid. */
static int64_t metadata_count(const struct pd_safetensors *shard, const char *name) {
  const char *text = pd_safetensors_metadata(shard, name);
  char *end;
  errno = 0;
  long long n = strtoll(text, &end, 10);
  return *text < '0' || *text > '9' || *end || errno || n > (int64_t)1 << 53 ? -1 : n;
}

/* Checks a step without a manifest. */
static struct found examine_shards(int64_t step, char *why) {
  struct found f = {.step = step, .standing = DAMAGED};
  struct pd_safetensors shard;
  char path[PD_PATH];
  bool all;
  pd_step_path(path, step, NULL);
  f.shards = pd_count_shards(path, &all);
  if (!all) {
    f.standing = UNFINISHED;
    return f;
  }
  pd_shard_path(path, step, 0, f.shards);
  if (!pd_safetensors_open(path, &shard, why)) return f;
  int64_t written = metadata_count(&shard, "step"), samples = metadata_count(&shard, "samples");
  if (*pd_safetensors_metadata(&shard, PD_MANIFEST_MARK))
    f.standing = UNFINISHED;
  else if (written != step)
    pd_refuse(why, "'%s' holds step '%.40s': the directory was renamed", path,
              pd_safetensors_metadata(&shard, "step"));
  else if (samples < step)
    pd_refuse(why, "'%s': its 'samples' are '%.40s', which does not match %lld updates", path,
              pd_safetensors_metadata(&shard, "samples"), (long long)step);
  else
    f.standing = PLAIN;
  pd_safetensors_close(&shard);
  return f;
}

static struct found examine(int64_t step, char *why) {
  char path[PD_PATH];
  pd_step_path(path, step, PD_MANIFEST_NAME);
  return pd_exists(path) ? examine_manifest(step, path, why) : examine_shards(step, why);
}

bool pd_step_unfinished(int64_t step) {
  char why[PD_WHY];
  return examine(step, why).standing == UNFINISHED;
}

/* ---- verifying, by all ranks ----------------------------------------------------------------- */

/* Collective: copies `why` of the lowest rank with a cause to all ranks. */
static void share_cause(char *why) {
  int mine = *why ? pd.rank : pd.ranks, first;
  MPI_Request request;
  MPI_Iallreduce(&mine, &first, 1, MPI_INT, MPI_MIN, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to verify the checkpoint", -1, NULL, -1);
  if (first == pd.ranks) return;
  MPI_Ibcast(why, PD_WHY, MPI_BYTE, first, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to verify the checkpoint", -1, NULL, -1);
}

bool pd_shard_verify(const struct pd_manifest *m, int shard, const char *path, char *why) {
  char cause[PD_WHY];
  size_t bytes;
  const char *at = pd_map_file(path, &bytes, why);
  if (!at) return false;
  bool ok = pd_shard_check(&m->shard[shard], at, bytes, cause) || pd_refuse(why, "'%s': %.900s", path, cause);
  pd_unmap_file(at, bytes);
  return ok;
}

/* This rank's share of a step's shards. */
static struct share {
  struct pd_manifest manifest;
  struct pd_mapped *file; /* by shard; at NULL: another rank verifies it */
  pthread_t thread;
  bool runs;
  char why[PD_WHY]; /* the thread's */
} share;

static bool read_manifest(const struct found *f, char *why) {
  char path[PD_PATH], cause[PD_WHY];
  size_t bytes;
  pd_step_path(path, f->step, PD_MANIFEST_NAME);
  const char *text = pd_map_file(path, &bytes, why);
  if (!text) return false;
  bool ok = pd_checksum(text, bytes) == f->manifest ||
            pd_refuse(why, "'%s' on rank %d differs from the file on rank 0", path, pd.rank);
  if (ok)
    ok = pd_manifest_parse(text, bytes, &share.manifest, cause) || pd_refuse(why, "'%s': %.900s", path, cause);
  pd_unmap_file(text, bytes);
  return ok;
}

static void shard_path(char *to, int i) { pd_shard_path(to, share.manifest.step, i, share.manifest.n_shards); }

/* Maps this rank's share of the shards, with the same manifest as rank 0, and verifies sizes and headers. */
static bool open_share(const struct found *f, char *why) {
  char path[PD_PATH], cause[PD_WHY];
  share = (struct share){0};
  if (!read_manifest(f, why)) return false;
  const struct pd_manifest *m = &share.manifest;
  share.file = pd_allocate(sizeof *share.file * (size_t)m->n_shards);
  for (int i = pd.rank; i < m->n_shards; i += pd.ranks) {
    struct pd_mapped *file = &share.file[i];
    shard_path(path, i);
    if (!(file->at = pd_map_file(path, &file->size, why))) return false;
    if (!pd_shard_check_header(&m->shard[i], file->at, file->size, cause))
      return pd_refuse(why, "'%s': %.900s", path, cause);
  }
  return true;
}

static void close_share(void) {
  for (int i = 0; share.file && i < share.manifest.n_shards; i++)
    if (share.file[i].at) pd_unmap_file(share.file[i].at, share.file[i].size);
  free(share.file);
  pd_manifest_free(&share.manifest);
  share.file = NULL;
}

static void *verify_payloads(void *unused) {
  char path[PD_PATH], cause[PD_WHY];
  (void)unused;
  for (int i = 0; i < share.manifest.n_shards && !*share.why; i++) {
    if (!share.file[i].at || pd_shard_check_payload(&share.manifest.shard[i], share.file[i].at, cause)) continue;
    shard_path(path, i);
    pd_refuse(share.why, "'%s': %.900s", path, cause);
  }
  return NULL;
}

static void start_verifying(void) {
  sigset_t others, before; /* the main thread handles all signals except the one of a file that became shorter */
  sigfillset(&others);
  sigdelset(&others, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  share.runs = !pthread_create(&share.thread, NULL, verify_payloads, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Collective: waits for all shares; `why` has the cause if one is invalid. */
static void end_verifying(char *why) {
  if (share.runs)
    pthread_join(share.thread, NULL);
  else
    verify_payloads(NULL);
  memcpy(why, share.why, PD_WHY);
  close_share();
  share_cause(why);
}

static void tell_passed(const struct found *f, const char *why) {
  char path[PD_PATH];
  pd_step_path(path, f->step, NULL);
  if (f->standing == UNFINISHED)
    pd_note("'%s' is skipped: it was not finished", path);
  else
    pd_warn("'%s' is skipped: %s", path, why);
}

/* Rank 0: the existing steps, newest first, and the number examined. */
struct steps {
  int64_t *at;
  int n, seen;
};

static void list_steps(struct steps *s) {
  char misnamed[PD_PATH];
  *s = (struct steps){0};
  if (pd.rank) return;
  s->n = pd_list_steps(pd_options.checkpoint, &s->at);
  if (pd_find_misnamed_step(pd_options.checkpoint, misnamed, sizeof misnamed))
    pd_warn("'%s' is skipped: " PD_MISNAMED, misnamed);
}

/* `why`: cause of the newest damaged step. */
static void pass_over(const struct found *f, const char *cause, char *why) {
  tell_passed(f, cause);
  if (!*why) memcpy(why, cause, PD_WHY);
}

/* Collective: finds the next step with valid manifest and headers, and opens this rank's share; NONE: no step. */
static struct found choose(struct steps *s, char *why) {
  for (;;) {
    char cause[PD_WHY] = "";
    struct found f = s->seen < s->n ? examine(s->at[s->seen++], cause) : (struct found){.standing = NONE};
    MPI_Request request;
    MPI_Ibcast(&f, sizeof f, MPI_BYTE, 0, pd_comm_control, &request);
    pd_wait(1, &request, "the newest checkpoint's name", -1, NULL, -1);
    if (f.standing == SOUND) {
      open_share(&f, cause);
      share_cause(cause);
      if (*cause) {
        f.standing = DAMAGED;
        close_share();
      }
    }
    if (f.standing == NONE || f.standing == PLAIN || f.standing == SOUND) return f;
    pass_over(&f, cause, why);
  }
}

bool pd_checkpoint_folder(char *why) {
  const struct pd_options *o = &pd_options;
  if (o->resume && !o->resume_or_start && !pd_exists(o->checkpoint))
    return pd_refuse(
        why,
        "'%s' does not exist: there is no checkpoint to resume. help: start without a checkpoint with "
        "--resume-or-start",
        o->checkpoint);
  return pd_make_directories(o->checkpoint, why);
}

bool pd_checkpoint_check(char *why) {
  char path[PD_PATH];
  if (snprintf(path, sizeof path, "%s/step", pd_options.checkpoint) >= (int)sizeof path)
    return pd_refuse(why, "the path '%.100s...' is too long", pd_options.checkpoint);
  if (pd_options.evaluate) return true; /* nothing is written */
  int64_t *steps;
  int n = pd_list_steps(pd_options.checkpoint, &steps);
  bool ok = true;
  for (int i = 0; i < n && ok && !pd_options.resume; i++) {
    char cause[PD_WHY];
    if (examine(steps[i], cause).standing == UNFINISHED) continue;
    ok = pd_refuse(why, "'%s' holds a checkpoint of step %lld. help: give --resume or another directory",
                   pd_options.checkpoint, (long long)steps[i]);
  }
  for (int i = 0; i < n && ok; i++) {
    pd_step_path(path, steps[i], NULL);
    pd_remove_left(path, NULL);
  }
  free(steps);
  if (ok) pd_remove_left(pd_options.checkpoint, NULL);
  snprintf(path, sizeof path, "%s/step", pd_options.checkpoint);
  return ok && pd_writable(path, why);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool check_shards(const struct pd_safetensors *shards, int n, int64_t step, char *why) {
  static const char *const names[] = {"model", "optimizer", "step", "samples", "seed"};
  for (int i = 1; i < n; i++)
    for (size_t j = 0; j < sizeof names / sizeof *names; j++)
      if (strcmp(pd_safetensors_metadata(&shards[i], names[j]), pd_safetensors_metadata(&shards[0], names[j])))
        return pd_refuse(why, "the shards of step %lld in '%s' come from different runs", (long long)step,
                         pd_options.checkpoint);
  const char *model = pd_safetensors_metadata(&shards[0], "model");
  if (strcmp(model, pd.stage->model))
    return pd_refuse(why, "the checkpoint in '%s' is of the model '%.200s'", pd_options.checkpoint, model);
  const char *optimizer = pd_safetensors_metadata(&shards[0], "optimizer"); /* "": written by an older version */
  if (*optimizer && strcmp(optimizer, pd.stage->optimizer->name))
    return pd_refuse(
        why, "the checkpoint in '%s' is of the optimizer '%.200s', not '%s': their states are not compatible",
        pd_options.checkpoint, optimizer, pd.stage->optimizer->name);
  uint64_t seed = strtoull(pd_safetensors_metadata(&shards[0], "seed"), NULL, 10);
  if (seed != pd.seed && !pd_only_evaluates())
    return pd_refuse(why, "the checkpoint in '%s' was made with --seed %llu. help: use this seed",
                     pd_options.checkpoint, (unsigned long long)seed);
  if (step > pd.steps && !pd_only_evaluates())
    return pd_refuse(why,
                     "the checkpoint in '%s' is of step %lld, beyond --steps %lld. help: use a larger --steps",
                     pd_options.checkpoint, (long long)step, (long long)pd.steps);
  int64_t seen;
  if (__builtin_mul_overflow(step, pd.stage->batch, &seen) || seen > INT64_MAX / 4)
    return pd_refuse(why, "step %lld of %lld samples each exceeds the largest sample count", (long long)step,
                     (long long)pd.stage->batch);
  pd_sample_base = metadata_count(&shards[0], "samples") - seen;
  return true;
}

static const struct pd_entry *find(const struct pd_safetensors *shards, int n, const char *kind,
                                   const char *name) {
  char *whole = pd_kept_name(kind, name);
  const struct pd_entry *e = NULL;
  for (int i = 0; i < n && !e; i++) e = pd_safetensors_find(&shards[i], whole);
  free(whole);
  return e;
}

/* Elements [part.first, part.first + part.n) of this rank's part of a tensor. */
static void take_part(const struct pd_parameter *p, const float *data, struct pd_slice part, float *to) {
  if (part.n == p->elements) {
    pd_take_own(p, data, to);
    return;
  }
  float *own = pd_allocate(sizeof *own * (size_t)p->elements);
  pd_take_own(p, data, own);
  memcpy(to, own + part.first, (size_t)part.n * sizeof *to);
  free(own);
}

/* Reads a whole tensor, or this replica's and rank's part. */
static void fill(const struct pd_kept *x, int64_t step, const float *data) {
  if (x->newest) {
    float *to = pd_fill_newest(x->newest, step);
    if (x->of->runs)
      pd_take_own(x->of, data, to);
    else
      memcpy(to, data, (size_t)x->shape.elements * sizeof *to);
    pd_newest_filled(x->newest, step, to);
    return;
  }
  struct pd_slice part = {0, x->of->runs ? x->of->elements : x->shape.elements};
  if (x->parts) part = pd_part_of_tensor(x->parts, part.n, pd.replica);
  if (!part.n) return;
  char *at = x->at + (size_t)part.first * sizeof(float);
  float *to = pd_fill(at, part.n, x->bf16);
  if (x->of->runs)
    take_part(x->of, data, part, to);
  else
    memcpy(to, data + part.first, (size_t)part.n * sizeof *to);
  pd_filled(at, part.n, x->bf16);
}

static bool read_parameter(const struct pd_safetensors *shards, int n, const struct pd_parameter *p, int64_t step,
                           char *why) {
  for (int i = 0; i < pd_n_kept(); i++) {
    struct pd_kept x = pd_kept(p, i, step);
    if (!x.at && !x.newest) continue;
    const struct pd_entry *e = find(shards, n, x.kind, p->name);
    if (!e && i < pd.stage->versions) /* from a schedule with fewer versions */
      e = find(shards, n, "weights", p->name);
    if (!e)
      return pd_refuse(why, "the checkpoint of step %lld in '%s' holds no '%s.%s'", (long long)step,
                       pd_options.checkpoint, x.kind, p->name);
    bool same = e->rank == x.shape.rank && e->dtype == PD_DTYPE_F32;
    for (int j = 0; same && j < x.shape.rank; j++) same = e->dim[j] == x.shape.dim[j];
    if (!same)
      return pd_refuse(why,
                       "the checkpoint of step %lld in '%s' is of a different model: the shape of '%s' differs",
                       (long long)step, pd_options.checkpoint, p->name);
    fill(&x, step, (const float *)e->data);
  }
  return true;
}

static int n_moments(const struct pd_parameter *p) {
  int n = 0;
  for (int i = 0; i < pd.stage->n_moments && pd_is_trained(p); i++) n += !!pd_moment_at(p, i);
  return n;
}

/* Collective: counts tensors, because a checkpoint of a larger model, or of an optimizer with more moments, has
 * all required tensors and more. */
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
        "the checkpoint in '%s' has %lld tensors instead of %lld: its model, optimizer, frozen parameters or "
        "averaging differ",
        pd_options.checkpoint, (long long)held, (long long)used);
}

/* Collective: rank 0 compares the checkpoint's manifest with this training. */
static void check_identity(const struct found *f) {
  char why[PD_WHY] = "", path[PD_PATH];
  struct pd_manifest m;
  size_t bytes;
  pd_step_path(path, f->step, PD_MANIFEST_NAME);
  const char *text = pd.rank ? NULL : pd_map_file(path, &bytes, why);
  if (text) {
    if (pd_manifest_parse(text, bytes, &m, why)) {
      pd_identity_check(&m, why);
      pd_manifest_free(&m);
    }
    pd_unmap_file(text, bytes);
  }
  pd_agree(why);
}

/* Opens the shards and reads this rank's parameters from them. Collective. */
static void read_step(const struct found *f) {
  char why[PD_WHY] = "", path[PD_PATH];
  int n = f->shards, mapped = pd_mapped_files();
  struct pd_safetensors *shards = pd_allocate(sizeof *shards * (size_t)n);
  bool ok = true;
  for (int i = 0; i < n && ok; i++) {
    pd_shard_path(path, f->step, i, n);
    ok = pd_safetensors_open(path, &shards[i], why);
  }
  pd_agree(why);
  pd_agree_on_files(mapped);
  ok = check_shards(shards, n, f->step, why);
  for (int i = 0; i < pd.stage->n_parameters && ok; i++)
    ok = read_parameter(shards, n, &pd.stage->parameters[i], f->step, why);
  pd_agree(why);
  check_all_used(shards, n, why);
  pd_agree(why);
  for (int i = 0; i < n; i++) pd_safetensors_close(&shards[i]);
  free(shards);
}

/* Without a valid step: ends the launch, or starts with the first update if no step was ever complete. */
static void tell_none(char *why) {
  char cause[PD_WHY];
  memcpy(cause, why, sizeof cause);
  if (*why)
    pd_refuse(why, "'%.200s' holds no valid checkpoint; the newest: %.700s", pd_options.checkpoint, cause);
  else if (pd_options.evaluate)
    pd_refuse(why, "'%s' holds no complete checkpoint", pd_options.checkpoint);
  pd_agree(why);
  pd_note("'%s' holds no complete checkpoint: starting with the first update", pd_options.checkpoint);
}

/* Collective: reads a step and verifies it concurrently; false with the cause if the step is damaged. */
static bool take(const struct found *f, char *cause) {
  if (f->standing == PLAIN) {
    pd_note("step %lld in '%s' cannot be verified: it has no manifest, as in earlier versions", (long long)f->step,
            pd_options.checkpoint);
    read_step(f);
    return true;
  }
  start_verifying();
  check_identity(f);
  read_step(f);
  end_verifying(cause);
  return !*cause;
}

bool pd_resume(void) {
  char why[PD_WHY] = "", cause[PD_WHY];
  struct steps steps;
  struct found f;
  list_steps(&steps);
  while ((f = choose(&steps, why)).standing != NONE && !take(&f, cause)) {
    f.standing = DAMAGED;
    pass_over(&f, cause, why);
  }
  free(steps.at);
  if (f.standing == NONE) {
    tell_none(why);
    return false;
  }
  pd.first_step = f.step;
  return true;
}
