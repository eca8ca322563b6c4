/* Checkpoints: DIR/step-N/shard-R-of-S.safetensors, one shard per stage, written by the stage's first replica
 * under a temporary name and renamed, then the manifest of the step (commit.c). A shard has, for each parameter
 * that its stage owns, weights.NAME (W(t) after t = N updates), the older versions that microbatches may still
 * use, previous.NAME (W(t - 1)), previous2.NAME (W(t - 2)), ..., and moment1.NAME, moment2.NAME, and average.NAME
 * with `ema`. Elements are floats in the order of memory: the newest weights are masters, if any; older ones are
 * working copies, which floats represent exactly. Any plan finds its parameters by name in all shards.
 * Microbatches in flight are not stored: they run again with the weights that they used. */
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "messages/messages.h"
#include "update/update.h"
#include "watch/watch.h"

#include "shared/checksum.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void pd_step_path(char *to, int64_t step, const char *name) {
  int n = snprintf(to, PD_PATH, "%s/step-%lld%s%s", pd_options.checkpoint, (long long)step, name ? "/" : "",
                   name ? name : "");
  if (n >= PD_PATH) pd_fail("the path '%.100s...' is too long", pd_options.checkpoint);
}

void pd_shard_path(char *to, int64_t step, int shard, int shards) {
  char name[64];
  snprintf(name, sizeof name, "shard-%d-of-%d.safetensors", shard, shards);
  pd_step_path(to, step, name);
}

/* ---- contents of a shard --------------------------------------------------------------------- */

int pd_n_kept(void) { return pd.stage->versions + pd.stage->n_moments + (pd.stage->ema > 0); }

struct pd_kept pd_kept(const struct pd_parameter *p, int i, int64_t step) {
  const struct pd_stage *s = pd.stage;
  struct pd_kept x = {.of = p, .frozen = p->frozen, .shape = pd_whole_shape(p)};
  int moment = i - s->versions;
  if (moment == s->n_moments) {
    snprintf(x.kind, sizeof x.kind, "average");
    x.at = (char *)pd_average_at(p);
    x.parts = s->shards ? p : NULL;
  } else if (moment >= 0) {
    snprintf(x.kind, sizeof x.kind, "moment%d", moment + 1);
    if (pd_is_trained(p)) x.at = (char *)pd_moment_at(p, moment);
    if (!p->runs) x.shape = pd_moment_shape(p, moment);
    x.parts = s->shards ? p : NULL;
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

char *pd_kept_name(const char *kind, const char *name) {
  char *text = pd_allocate(strlen(kind) + strlen(name) + 2);
  return strcat(strcat(strcpy(text, kind), "."), name);
}

/* ---- writing --------------------------------------------------------------------------------- */

static unsigned char *shard_header(const struct pd_entry *entries, int n, int64_t step, size_t *bytes) {
  char steps[32], samples[32], seed[32], *classes = pd_classes_text(pd_training_data);
  snprintf(steps, sizeof steps, "%lld", (long long)step);
  snprintf(samples, sizeof samples, "%lld", (long long)(pd_sample_base + step * pd.stage->batch));
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)pd.seed);
  const char *const metadata[][2] = {{"format", "pt"},
                                     {"model", pd.stage->model},
                                     {"optimizer", pd.stage->optimizer->name},
                                     {"step", steps},
                                     {"samples", samples},
                                     {"seed", seed},
                                     {PD_MANIFEST_MARK, PD_MANIFEST_NAME},
                                     {"classes", classes}};
  unsigned char *header =
      pd_safetensors_header(entries, n, metadata, sizeof metadata / sizeof *metadata - !classes, bytes);
  free(classes);
  return header;
}

/* The tensors that this rank writes, and their addresses in the arena. */
static int collect(int64_t step, struct pd_entry *entries, struct pd_kept *tensors) {
  int n = 0;
  for (int i = 0; i < pd.stage->n_parameters; i++) {
    const struct pd_parameter *p = &pd.stage->parameters[i];
    for (int j = 0; j < pd_n_kept() && p->owner == pd.stage->stage; j++) {
      struct pd_kept x = tensors[n] = pd_kept(p, j, step);
      if (!x.at && !x.newest) continue;
      entries[n] = (struct pd_entry){.name = pd_kept_name(x.kind, p->name),
                                     .rank = x.shape.rank,
                                     .elements = x.shape.elements};
      memcpy(entries[n++].dim, x.shape.dim, sizeof x.shape.dim);
    }
  }
  return n;
}

/* ---- a shard on its way to the disk ------------------------------------------------------------ */

/* With --checkpoint-background a thread writes a copy of the tensors during training. The thread uses only this
 * struct and files.c, because messages and failures belong to the main thread. */
static struct job {
  char folder[PD_PATH], manifest[PD_PATH], path[PD_PATH];
  struct pd_shard_note note;
  unsigned char *header;
  size_t header_bytes;
  struct pd_entry *entries;
  struct pd_kept *tensors;
  int n, viewed; /* number of tensors joined so far */
  pthread_t thread;
  bool runs;        /* in a thread that must be joined */
  atomic_bool done; /* by it */
  float *copy;      /* all tensors; NULL: write from the arena */
} job;

/* Creates the step's folder, and removes an earlier run's manifest, so that the step counts as incomplete. */
static bool prepare_folder(void) {
  if (mkdir(job.folder, 0777) && errno != EEXIST) return false;
  if (!pd_sync_folder_of(job.folder)) return false;
  return !unlink(job.manifest) || errno == ENOENT;
}

/* Joins a tensor on the first of the replicas and of the shard group that have parts of it; NULL on all other
 * ranks. */
static const float *join(const struct pd_kept *x, int64_t step) {
  int64_t n = x->of->runs ? x->of->elements : x->shape.elements;
  const float *own;
  if (x->newest)
    own = pd_view_newest(x->newest, step);
  else
    own = x->parts ? pd_whole(x->parts, (const float *)x->at, n) : pd_view(x->at, n, x->bf16);
  return pd.replica ? NULL : pd_join(x->of, own);
}

/* Checks that n elements to be written are finite. */
static void check(int i, int64_t first, const float *at, int64_t n) {
  if (!job.tensors[i].frozen) pd_check_finite(job.entries[i].name, first, at + first, n, job.note.step, job.path);
}

/* Writes a tensor. */
static const float *view(int i) {
  const float *at = join(&job.tensors[i], job.note.step);
  job.viewed = i + 1;
  check(i, 0, at, job.tensors[i].shape.elements);
  return at;
}

/* Copies a tensor for the background thread and checks it while in cache, so that memory is read once. */
static void copy_tensor(int i, float *to) {
  enum { BLOCK = 1 << 14 };
  const float *at = join(&job.tensors[i], job.note.step);
  int64_t elements = job.tensors[i].shape.elements;
  for (int64_t first = 0; first < elements; first += BLOCK) {
    int64_t n = elements - first < BLOCK ? elements - first : BLOCK;
    check(i, first, at, n);
    memcpy(to + first, at + first, (size_t)n * sizeof *to);
  }
}

static bool write_tensors(FILE *out, struct pd_checksum *sum) {
  bool ok = true;
  const float *at = job.copy;
  for (int i = 0; ok && i < job.n; i++) {
    size_t elements = (size_t)job.entries[i].elements;
    const float *x = job.copy ? at : view(i);
    pd_checksum_add(sum, x, elements * sizeof *x);
    ok = fwrite(x, sizeof *x, elements, out) == elements;
    at += elements;
  }
  return ok;
}

static bool has_room(int64_t bytes) {
  int64_t room = pd_disk_room(job.folder);
  if (room < 0 || room >= bytes) return true;
  errno = ENOSPC;
  return false;
}

static void write_shard(void) {
  struct pd_shard_sum *sum = &job.note.sum;
  struct pd_checksum *payload = pd_checksum_start();
  struct pd_output out;
  const char *what = job.folder;
  bool ok = payload && prepare_folder() && has_room(sum->bytes);
  if (ok) {
    what = job.path;
    ok = pd_output_open(&out, job.path);
    if (ok)
      ok = pd_output_close(&out, fwrite(job.header, 1, job.header_bytes, out.file) == job.header_bytes &&
                                     write_tensors(out.file, payload));
  }
  if (!ok) snprintf(job.note.why, sizeof job.note.why, "cannot write '%.700s': %s", what, strerror(errno));
  for (int i = job.viewed; !ok && i < job.n; i++) view(i); /* all other replicas send their parts in any case */
  sum->header = pd_checksum(job.header, job.header_bytes);
  if (payload) sum->payload = pd_checksum_end(payload);
}

static void *write_behind(void *unused) {
  write_shard();
  atomic_store(&job.done, true);
  return unused;
}

static void make_job(int64_t step) {
  size_t room = (size_t)(pd.stage->n_parameters * pd_n_kept());
  memset(&job.note, 0, sizeof job.note);
  job.note.step = step;
  pd_step_path(job.folder, step, NULL);
  pd_step_path(job.manifest, step, PD_MANIFEST_NAME);
  pd_shard_path(job.path, step, pd.stage->stage, pd.stage->n_stages);
  job.entries = pd_allocate(sizeof *job.entries * room);
  job.tensors = pd_allocate(sizeof *job.tensors * room);
  job.n = collect(step, job.entries, job.tensors);
  job.viewed = 0;
  job.header = shard_header(job.entries, job.n, step, &job.header_bytes);
  if (!job.header) pd_fail("out of memory");
  struct pd_shard_sum *sum = &job.note.sum;
  sum->bytes = sum->header_bytes = (int64_t)job.header_bytes;
  for (int i = 0; i < job.n; i++) sum->bytes += job.entries[i].elements * (int64_t)sizeof(float);
}

static void end_job(void) {
  if (*job.note.why && !pd_options.checkpoint_optional) pd_fail("%s", job.note.why);
  pd_commit_tell(&job.note);
  for (int i = 0; i < job.n; i++) free(job.entries[i].name);
  free(job.entries);
  free(job.tensors);
  free(job.header);
}

/* True if no thread is writing. */
static bool is_idle(void) {
  if (!job.runs) return true;
  if (!atomic_load(&job.done)) return false;
  pthread_join(job.thread, NULL);
  job.runs = false;
  end_job();
  return true;
}

/* Waits for the disk without a timeout, and advances messages. */
static void await_thread(void) {
  while (!is_idle()) {
    pd_progress();
    nanosleep(&(struct timespec){0, 200000}, NULL);
  }
}

static void start_thread(void) {
  float *to = job.copy;
  for (int i = 0; i < job.n; i++) {
    copy_tensor(i, to);
    to += job.entries[i].elements;
  }
  pd_audit_verify(job.note.step);
  sigset_t all, before; /* the main thread handles signals */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  atomic_store(&job.done, false);
  job.runs = !pthread_create(&job.thread, NULL, write_behind, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (job.runs) return;
  write_shard();
  end_job();
}

/* ---- the run's --------------------------------------------------------------------------------- */

static bool writes_shards(void) {
  const struct pd_options *o = &pd_options;
  return o->checkpoint && !pd_only_evaluates() && pd.first_step < pd.steps && !pd.replica && !pd.tensor_rank;
}

/* Floats of this rank's shard with all versions. */
static int64_t n_floats(void) {
  int64_t n = 0;
  for (int i = 0; i < pd.stage->n_parameters; i++) {
    const struct pd_parameter *p = &pd.stage->parameters[i];
    for (int j = 0; j < pd_n_kept() && p->owner == pd.stage->stage; j++) {
      struct pd_kept x = pd_kept(p, j, pd.stage->versions);
      if (x.at || x.newest) n += x.shape.elements;
    }
  }
  return n;
}

const int64_t *pd_checkpoint_copies;

/* Allocates --checkpoint-background's copy of this rank's shard, and shares the sizes of all ranks. */
static void make_copies(void) {
  int64_t mine = writes_shards() ? n_floats() * (int64_t)sizeof(float) : 0;
  int64_t *all = pd_allocate(sizeof *all * (size_t)pd.ranks);
  MPI_Request request;
  MPI_Iallgather(&mine, 1, MPI_INT64_T, all, 1, MPI_INT64_T, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to copy their checkpoint", -1, NULL, -1);
  pd_checkpoint_copies = all;
  if (mine) job.copy = pd_allocate((size_t)mine);
}

void pd_checkpoint_start(char *why) {
  int64_t mine = writes_shards() ? n_floats() * (int64_t)sizeof(float) : 0, all;
  MPI_Request request;
  MPI_Iallreduce(&mine, &all, 1, MPI_INT64_T, MPI_SUM, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to measure their checkpoint", -1, NULL, -1);
  if (!all) return;
  int64_t room = pd.self ? -1 : pd_disk_room(pd_options.checkpoint);
  if (room >= 0 && room < all)
    pd_commit_refuse(why, "'%.200s' has room for %.1f MiB, but a checkpoint takes %.1f MiB", pd_options.checkpoint,
                     (double)room / (1 << 20), (double)all / (1 << 20));
  if (!pd.self) pd_keep_start();
  if (pd_options.checkpoint_background) make_copies();
}

/* Sends this rank's state to the rank that writes it: the stage's first replica, in the first pipeline. */
static void send_parts(int64_t step) {
  bool sends = pd.replica ? pd.stage->shards != NULL : pd.tensor_rank != 0;
  for (int i = 0; i < pd.stage->n_parameters && sends; i++) {
    const struct pd_parameter *p = &pd.stage->parameters[i];
    for (int j = 0; j < pd_n_kept() && p->owner == pd.stage->stage; j++) {
      struct pd_kept x = pd_kept(p, j, step);
      if ((x.at || x.newest) && (!pd.replica || x.newest || x.parts)) join(&x, step);
    }
  }
}

void pd_checkpoint_write(int64_t step) {
  if (pd.replica || pd.tensor_rank) {
    send_parts(step);
    pd_audit_verify(step);
    return;
  }
  await_thread();
  if (!pd.rank) pd_commit_expect(step);
  make_job(step);
  if (job.copy) {
    start_thread();
    return;
  }
  write_shard();
  pd_audit_verify(step); /* before the manifest records the shard */
  end_job();
}

void pd_checkpoint_progress(void) {
  is_idle();
  pd_commit_progress();
}

void pd_checkpoint_finish(void) {
  await_thread();
  pd_commit_finish();
}
