/* Checks of outputs by rank 0 before the run, so that no training ends at an unwritable path: no output may be an
 * input or the output of another option. */
#define _GNU_SOURCE /* realpath without a buffer */
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "train/train.h"
#include "shared/manifest.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct named {
  const char *option, *path;
  bool folder; /* replaced as a whole (--save DIR/) */
};

static bool same_file(const char *a, const char *b) {
  struct stat s, t;
  return !stat(a, &s) && !stat(b, &t) && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

/* ---- what is read ---------------------------------------------------------------------------- */

static bool is_data(const char *path, const char *argument) {
  return same_file(path, pd_data_path(pd.stage->inputs, pd.stage->n_inputs, argument));
}

static bool is_weights(const char *path) {
  const struct pd_options *o = &pd_options;
  bool read = false;
  for (int i = 0; i < o->n_init; i++) read |= same_file(path, o->init[i]);
  for (int i = 0; pd_init_path(i); i++) read |= same_file(path, pd_init_path(i));
  return read;
}

static bool is_text(const char *path) {
  const struct pd_options *o = &pd_options;
  bool read = o->prompt_file && same_file(path, o->prompt_file);
  read |= o->prompts && same_file(path, o->prompts);
  for (int i = 0; i < o->n_tokenizer; i++) read |= same_file(path, o->tokenizer[i]);
  return read;
}

/* --save may overwrite the weights of --init. */
static bool spares_inputs(struct named x, char *why) {
  const struct pd_options *o = &pd_options;
  bool replaces = !strcmp(x.option, "--save") || !strcmp(x.option, "--save-raw");
  bool read = is_text(x.path) || (!replaces && is_weights(x.path));
  for (int i = 0; i < o->n_data; i++) read |= is_data(x.path, o->data[i]);
  for (int i = 0; i < o->n_validation; i++) read |= is_data(x.path, o->validation[i]);
  return !read ||
         pd_refuse(why, "%s '%s' would overwrite an input file. help: choose another path", x.option, x.path);
}

/* ---- what is written ------------------------------------------------------------------------- */

/* Writes the folder of `path` to `to`; false if the name is too long. */
static bool folder_of(const char *path, char *to, size_t room) {
  const char *slash = strrchr(path, '/');
  size_t n = slash ? (size_t)(slash - path) + 1 : 0;
  if (n + 2 > room) return false;
  memcpy(to, path, n);
  strcpy(to + n, "."); /* "" and "/" are folders themselves */
  return true;
}

/* True if two paths lead to the same place, also without a file. */
static bool same_place(const char *a, const char *b) {
  if (same_file(a, b)) return true;
  char folder_a[4096], folder_b[4096];
  const char *name_a = strrchr(a, '/'), *name_b = strrchr(b, '/');
  if (strcmp(name_a ? name_a + 1 : a, name_b ? name_b + 1 : b)) return false;
  return folder_of(a, folder_a, sizeof folder_a) && folder_of(b, folder_b, sizeof folder_b) &&
         same_file(folder_a, folder_b);
}

/* stage0, stage1.c, stage2.cu ... */
static bool is_stage(const char *name) {
  if (strncmp(name, "stage", 5) || !isdigit((unsigned char)name[5])) return false;
  name += 5 + strspn(name + 5, "0123456789");
  return !*name || !strcmp(name, ".c") || !strcmp(name, ".cu");
}

/* True if pdc built `path`, in the folder of this program. --run may copy the plan onto itself. */
static bool spares_build(struct named x, char *why) {
  static const char *const names[] = {"train", "infer", "generate", "app", "plan.json", "model.svg"};
  char folder[4096], *program = realpath("/proc/self/exe", NULL);
  if (!program) return true;
  const char *slash = strrchr(x.path, '/'), *name = slash ? slash + 1 : x.path;
  bool made = is_stage(name), own = same_file(x.path, program);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    made |= !strcmp(name, names[i]) && strcmp(x.option, "--run");
  *strrchr(program, '/') = 0;
  made = own || (made && folder_of(x.path, folder, sizeof folder) && same_file(folder, *program ? program : "/"));
  free(program);
  return !made ||
         pd_refuse(why, "%s '%s' would overwrite a file of the program that pdc built. help: choose another path",
                   x.option, x.path);
}

/* True for names of files in a checkpoint's step folder. */
static bool is_of_step(const char *name) {
  int end = 0;
  return !strcmp(name, PD_MANIFEST_NAME) ||
         (sscanf(name, "shard-%*d-of-%*d.safetensors%n", &end) == 0 && end && !name[end]);
}

/* True if the folder's name is step-N, after symbolic links. */
static bool is_step(const char *folder) {
  char *real = realpath(folder, NULL);
  const char *name = real ? strrchr(real, '/') + 1 : "";
  int end = 0;
  bool is = sscanf(name, "step-%*d%n", &end) == 0 && end && !name[end];
  free(real);
  return is;
}

/* True if the folder is --checkpoint's of this run or holds steps of another run. */
static bool holds_steps(const char *folder) {
  bool holds = pd_options.checkpoint && same_file(folder, pd_options.checkpoint);
  DIR *d = opendir(folder);
  for (struct dirent *entry; d && !holds && (entry = readdir(d));) {
    char step[8192];
    snprintf(step, sizeof step, "%s/%s", folder, entry->d_name);
    holds = is_step(step);
  }
  if (d) closedir(d);
  return holds;
}

/* Refuses names of locks and of checkpoint files of any run: an output would overwrite them, or be removed with
 * the lock. */
static bool spares_state(struct named x, char *why) {
  static const char lock[] = ".lock";
  const char *slash = strrchr(x.path, '/'), *name = slash ? slash + 1 : x.path;
  char folder[4096];
  size_t n = strlen(name);
  if (n >= sizeof lock - 1 && !strcmp(name + n - (sizeof lock - 1), lock))
    return pd_refuse(why, "%s '%s' has the name of a lock file. help: choose a name without .lock", x.option,
                     x.path);
  if (!folder_of(x.path, folder, sizeof folder)) return true; /* opening reports the error */
  bool is = (is_of_step(name) && is_step(folder)) || (!strcmp(name, PD_BEST_NAME) && holds_steps(folder));
  return !is || pd_refuse(why, "%s '%s' would overwrite a file of a checkpoint. help: choose another path",
                          x.option, x.path);
}

/* Lists all output files of options; the log is first, if any. */
static int list(struct named *to) {
  const struct pd_options *o = &pd_options;
  const struct named all[] = {
      {"--log", o->log, false},
      {"--save", o->save, o->save_folder},
      {"--save-raw", o->save_raw, o->save_raw_folder},
      {"--trace", o->trace, false},
      {"--run", o->plan, false},
      {"--run", o->picture, false},
      {"--results", o->results, false},
  };
  int n = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i].path) to[n++] = all[i];
  for (int i = 0; i < pd.stage->n_predictions; i++)
    if (pd_predict_path(i)) to[n++] = (struct named){"--predict", pd_predict_path(i), false};
  return n;
}

/* True if the path leads to the folder, or into it. */
static bool is_within(const char *path, const char *folder) {
  char above[4096];
  return same_place(path, folder) || (folder_of(path, above, sizeof above) && same_place(above, folder));
}

/* False after filling `why` if another output is in a folder that is replaced as a whole. */
static bool spares_others(struct named folder, const struct named *all, int n, char *why) {
  const struct pd_options *o = &pd_options;
  const struct named more[] = {{"--checkpoint", o->checkpoint, true}, {"--tensorboard", o->tensorboard, true}};
  for (int i = 0; i < n + 2 && folder.folder; i++) {
    struct named x = i < n ? all[i] : more[i - n];
    if (!x.path || !strcmp(x.option, folder.option) || !is_within(x.path, folder.path)) continue;
    return pd_refuse(why,
                     "%s '%s' replaces the whole folder, which holds %s '%s'. help: choose another path for one",
                     folder.option, folder.path, x.option, x.path);
  }
  return true;
}

/* False if the folder is missing, which opening the log reports. */
static bool has_folder(const char *path) {
  struct stat st;
  char folder[4096];
  return folder_of(path, folder, sizeof folder) && !stat(folder, &st);
}

static bool check_files(char *why) {
  struct named *x = pd_allocate(sizeof *x * (size_t)(7 + pd.stage->n_predictions));
  int n = list(x);
  bool ok = true;
  for (int i = 0; i < n && ok; i++) {
    ok = spares_inputs(x[i], why) && spares_build(x[i], why) && spares_state(x[i], why) &&
         spares_others(x[i], x, n, why);
    for (int j = 0; j < i && ok; j++)
      if (same_place(x[j].path, x[i].path))
        ok =
            pd_refuse(why, "two outputs cannot both be '%s': %s and %s. help: choose another path for one of them",
                      x[i].path, x[j].option, x[i].option);
    if (ok && x[i].path != pd_options.log && !x[i].folder) ok = pd_writable(x[i].path, why);
  }
  for (int i = 0; i < n && ok; i++)
    ok = has_folder(x[i].path) ? pd_lock(x[i].option, x[i].path, false, why) : true;
  free(x);
  return ok;
}

static bool lock_folders(char *why) {
  const struct pd_options *o = &pd_options;
  bool writes = o->checkpoint && !o->evaluate;
  if (writes && (!pd_make_directories(o->checkpoint, why) || !pd_lock("--checkpoint", o->checkpoint, true, why)))
    return false;
  return !o->tensorboard ||
         (pd_make_directories(o->tensorboard, why) && pd_lock("--tensorboard", o->tensorboard, true, why));
}

/* The log is opened last, because no check may fail after it. */
bool pd_outputs_check(char *why) {
  const struct pd_options *o = &pd_options;
  if (pd.self) return true;
  if (o->run && !pd_make_directories(o->run, why)) return false;
  if (!check_files(why) || !lock_folders(why) || (o->checkpoint && !pd_checkpoint_check(why))) return false;
  return pd_log_open(why);
}
