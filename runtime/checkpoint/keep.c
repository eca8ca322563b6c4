/* Retention of checkpoints, on rank 0. --keep N keeps the newest N, the multiples of --keep-every, and the step
 * with the lowest validation loss; all other steps are removed once a newer one is complete. DIR/best.json records
 * the best step for resumed trainings. */
#include "checkpoint/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct judged {
  int64_t step; /* -1: none */
  double loss;
};
static struct {
  struct judged best;
  struct judged *waiting; /* validated, possibly not complete yet */
  int n_waiting;
  int64_t newest_whole; /* of this run */
} keeping = {.best = {.step = -1}, .newest_whole = -1};

static void best_path(char *to) {
  if (snprintf(to, PD_PATH, "%s/%s", pd_options.checkpoint, PD_BEST_NAME) >= PD_PATH)
    pd_fail("the path '%.100s...' is too long", pd_options.checkpoint);
}

static bool is_whole(int64_t step) {
  char path[PD_PATH];
  pd_step_path(path, step, PD_MANIFEST_NAME);
  return pd_exists(path);
}

/* ---- the best -------------------------------------------------------------------------------- */

void pd_keep_start(void) {
  char path[PD_PATH], why[PD_WHY];
  size_t bytes;
  if (!pd.first_step) return; /* a new training has no best step */
  best_path(path);
  if (!pd_exists(path)) return;
  struct pd_best found;
  const char *text = pd_map_file(path, &bytes, why);
  if (!text || !pd_best_parse(text, bytes, &found))
    pd_warn("'%s' cannot be read: the best step so far is unknown", path);
  else if (found.step <= pd.first_step && is_whole(found.step))
    keeping.best = (struct judged){found.step, found.loss};
  if (text) pd_unmap_file(text, bytes);
}

static void write_best(void) {
  char path[PD_PATH];
  struct pd_output out;
  best_path(path);
  bool ok = pd_output_open(&out, path);
  if (!ok || !pd_output_close(&out, fprintf(out.file, "{\"step\":%lld,\"validation_loss\":%.9g}\n",
                                            (long long)keeping.best.step, keeping.best.loss) > 0))
    pd_commit_failed("cannot write '%s': %s", path, strerror(errno));
}

/* Updates the best step, among steps up to the newest complete one. */
static void judge(int64_t newest) {
  int left = 0;
  bool better = false;
  for (int i = 0; i < keeping.n_waiting; i++) {
    if (keeping.waiting[i].step > newest)
      keeping.waiting[left++] = keeping.waiting[i];
    else if (is_whole(keeping.waiting[i].step) &&
             (keeping.best.step < 0 || keeping.waiting[i].loss < keeping.best.loss)) {
      keeping.best = keeping.waiting[i];
      better = true;
    }
  }
  keeping.n_waiting = left;
  if (better) write_best();
}

/* ---- removing -------------------------------------------------------------------------------- */

void pd_step_remove(int64_t step) {
  char path[PD_PATH];
  pd_step_path(path, step, PD_MANIFEST_NAME);
  if (!unlink(path)) pd_sync_folder_of(path); /* first, so that the remaining files count as incomplete */
  pd_step_path(path, step, NULL);
  DIR *dir = opendir(path);
  for (struct dirent *d; dir && (d = readdir(dir));) {
    int shard, shards, end = 0;
    if (sscanf(d->d_name, "shard-%d-of-%d.safetensors%n", &shard, &shards, &end) != 2 || !end || d->d_name[end])
      continue;
    pd_step_path(path, step, d->d_name);
    unlink(path);
  }
  if (dir) closedir(dir);
  pd_step_path(path, step, NULL);
  rmdir(path); /* fails if the folder has foreign files */
}

/* `newest` is complete; a resumed training skipped newer steps. Older incomplete steps are remains of a run that
 * ended while writing or removing them: this run commits steps in order, and its lock on the folder excludes other
 * runs. */
static void prune(int64_t newest) {
  const struct pd_options *o = &pd_options;
  int64_t *steps, kept = 0;
  int n = o->keep ? pd_list_steps(o->checkpoint, &steps) : -1;
  for (int i = 0; i < n; i++) {
    if (steps[i] > newest) continue;
    if (!is_whole(steps[i])) {
      if (pd_step_unfinished(steps[i])) pd_step_remove(steps[i]);
      continue;
    }
    bool stays =
        kept++ < o->keep || steps[i] == keeping.best.step || (o->keep_every && steps[i] % o->keep_every == 0);
    if (!stays) pd_step_remove(steps[i]);
  }
  if (n >= 0) free(steps);
}

void pd_keep_committed(int64_t step) {
  keeping.newest_whole = step;
  judge(step);
  prune(step);
}

void pd_keep_validated(int64_t step, double loss) {
  if (pd.self || !pd_options.checkpoint) return;
  struct judged *grown = realloc(keeping.waiting, sizeof *grown * (size_t)(keeping.n_waiting + 1));
  if (!grown) pd_fail("out of memory");
  keeping.waiting = grown;
  keeping.waiting[keeping.n_waiting++] = (struct judged){step, loss};
  if (keeping.newest_whole < step) return;
  judge(keeping.newest_whole);
  prune(keeping.newest_whole);
}
