/* Completion of checkpoints: once all shards of a step are on disk, rank 0 writes the manifest. Ranks reach an
 * update at different times and do not wait for each other: each rank that wrote a shard sends a message, and rank
 * 0 checks for messages after each of its updates. */
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "messages/messages.h"
#include "shared/checksum.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Rank 0: a step without its manifest yet. */
struct pending {
  struct pending *next;
  int64_t step;
  struct pd_shard_note *note; /* by stage */
  MPI_Request *request;       /* receives of notes */
  bool own;                   /* rank 0's own note is present */
};

/* All other ranks: a note in flight. */
struct sent {
  struct sent *next;
  struct pd_shard_note note;
  MPI_Request request;
};
static struct {
  struct pending *first_pending;
  struct sent *first_sent;
} commits;

/* ---- the manifest ---------------------------------------------------------------------------- */

static char *time_text(void) {
  static char text[32];
  time_t now = time(NULL);
  struct tm utc;
  strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
  return text;
}

static char *manifest_text(const struct pending *p) {
  const struct pd_stage *s = pd.stage;
  struct pd_shard_sum *sums = pd_allocate(sizeof *sums * (size_t)s->n_stages);
  for (int i = 0; i < s->n_stages; i++) sums[i] = p->note[i].sum;
  struct pd_manifest m = *pd_identity();
  m.step = p->step;
  m.samples = pd_sample_base + p->step * s->batch;
  m.written = time_text();
  m.shard = sums;
  m.n_shards = s->n_stages;
  char *text = pd_manifest_print(&m);
  free(sums);
  return text;
}

/* Removes shards of another plan from the folder. */
static void remove_strangers(int64_t step) {
  char path[PD_PATH];
  pd_step_path(path, step, NULL);
  DIR *dir = opendir(path);
  for (struct dirent *d; dir && (d = readdir(dir));) {
    int shard, shards, end = 0;
    if (sscanf(d->d_name, "shard-%d-of-%d.safetensors%n", &shard, &shards, &end) != 2 || !end || d->d_name[end] ||
        shards == pd.stage->n_stages)
      continue;
    pd_step_path(path, step, d->d_name);
    unlink(path);
  }
  if (dir) closedir(dir);
}

void pd_commit_failed(const char *format, ...) {
  char why[PD_WHY];
  va_list args;
  va_start(args, format);
  vsnprintf(why, sizeof why, format, args);
  va_end(args);
  if (!pd_options.checkpoint_optional) pd_fail("%s", why);
  pd_warn("%s; training continues (--checkpoint-optional)", why);
}

void pd_commit_refuse(char *why, const char *format, ...) {
  char text[PD_WHY];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (pd_options.checkpoint_optional)
    pd_warn("%s", text);
  else
    pd_refuse(why, "%s", text);
}

/* True if all shards were written; else removes the step. */
static bool has_all(const struct pending *p) {
  int stage = 0, n = pd.stage->n_stages;
  while (stage < n && !*p->note[stage].why) stage++;
  if (stage == n) return true;
  pd_step_remove(p->step);
  pd_commit_failed("cannot write the checkpoint of step %lld: rank %d: %.800s", (long long)p->step,
                   pd_rank_of(stage, 0), p->note[stage].why);
  return false;
}

static void commit(const struct pending *p) {
  if (!has_all(p)) return;
  char path[PD_PATH], *text = manifest_text(p);
  struct pd_output out;
  if (!text) pd_fail("out of memory");
  size_t n = strlen(text);
  pd_step_path(path, p->step, PD_MANIFEST_NAME);
  bool ok = pd_output_open(&out, path);
  ok = ok && pd_output_close(&out, fwrite(text, 1, n, out.file) == n);
  free(text);
  if (!ok) {
    pd_commit_failed("cannot write '%s': %s", path, strerror(errno));
    pd_step_remove(p->step);
    return;
  }
  remove_strangers(p->step);
  pd_keep_committed(p->step);
}

/* ---- notes ----------------------------------------------------------------------------------- */

static uint64_t checksum_of(const struct pd_shard_note *note) {
  const size_t from = offsetof(struct pd_shard_note, step), to = offsetof(struct pd_shard_note, why);
  return pd_checksum((const char *)note + from, to - from) ^ pd_checksum(note->why, strnlen(note->why, PD_WHY));
}

/* A rank's notes arrive in the order of steps: after a lost note the next one is in its place. */
static void check_notes(const struct pending *p) {
  for (int i = 1; i < pd.stage->n_stages; i++) {
    const struct pd_shard_note *note = &p->note[i];
    if (note->checksum != checksum_of(note))
      pd_fail("the description of rank %d's shard of step %lld arrived with a different checksum: a link, or the "
              "memory of either host, corrupts data",
              pd_rank_of(i, 0), (long long)p->step);
    if (note->step != p->step)
      pd_fail(
          "the description of rank %d's shard of step %lld did not arrive, but the description of step %lld did: "
          "a message was lost",
          pd_rank_of(i, 0), (long long)p->step, (long long)note->step);
  }
}

void pd_commit_expect(int64_t step) {
  int n = pd.stage->n_stages;
  struct pending *p = pd_allocate(sizeof *p), **last = &commits.first_pending;
  *p = (struct pending){.step = step,
                        .note = pd_allocate(sizeof *p->note * (size_t)n),
                        .request = pd_allocate(sizeof *p->request * (size_t)n)};
  for (int i = 1; i < n; i++)
    MPI_Irecv(&p->note[i], sizeof *p->note, MPI_BYTE, pd_rank_of(i, 0), 0, pd_comm_checkpoints,
              &p->request[i - 1]);
  while (*last) last = &(*last)->next;
  *last = p;
}

void pd_commit_tell(const struct pd_shard_note *note) {
  if (!pd.rank) {
    struct pending *p = commits.first_pending;
    while (p->step != note->step) p = p->next;
    p->note[0] = *note;
    p->own = true;
    return;
  }
  struct sent *s = pd_allocate(sizeof *s);
  *s = (struct sent){.next = commits.first_sent, .note = *note};
  s->note.checksum = checksum_of(note);
  commits.first_sent = s;
  MPI_Isend(&s->note, sizeof s->note, MPI_BYTE, 0, 0, pd_comm_checkpoints, &s->request);
}

/* True if no note is in flight. */
static bool progress(void *unused) {
  (void)unused;
  int done;
  for (struct pending *p; (p = commits.first_pending) && p->own;) {
    MPI_Testall(pd.stage->n_stages - 1, p->request, &done, MPI_STATUSES_IGNORE);
    if (!done) break;
    check_notes(p);
    commit(p);
    commits.first_pending = p->next;
    free(p->note);
    free(p->request);
    free(p);
  }
  for (struct sent **s = &commits.first_sent, *gone; (gone = *s);) {
    MPI_Test(&gone->request, &done, MPI_STATUS_IGNORE);
    if (!done) {
      s = &gone->next;
      continue;
    }
    *s = gone->next;
    free(gone);
  }
  return !commits.first_pending && !commits.first_sent;
}

void pd_commit_progress(void) { progress(NULL); }

void pd_commit_finish(void) { pd_wait_until(progress, NULL, "all ranks to write their checkpoint", -1, NULL, -1); }
