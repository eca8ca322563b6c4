/* `pdc data --show` of several files: their names, and the samples that they are together. */
#define _GNU_SOURCE /* strverscmp */
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tokenize/internal.h"

static int by_name(const void *a, const void *b) { return strverscmp(*(char *const *)a, *(char *const *)b); }

static void sort_from(DataFiles *files, int first) {
  if (files->n > first)
    qsort(files->at + first, (size_t)(files->n - first), sizeof *files->at, by_name);
}

static bool add_matches(const char *pattern, DataFiles *files, char *why) {
  const int first = files->n;
  glob_t found;
  if (glob(pattern, GLOB_NOSORT, NULL, &found))
    return pd_refuse(why, "no file matches '%s'", pattern);
  for (size_t i = 0; i < found.gl_pathc; i++)
    push(files, format("%s", found.gl_pathv[i]));
  globfree(&found);
  sort_from(files, first);
  return true;
}

/* Adds the files of a folder that has neither folders nor images; else the folder itself, which has images. */
static bool add_folder(const char *path, DataFiles *files, char *why) {
  const int first = files->n;
  bool images = false;
  DIR *folder = opendir(path);
  if (!folder)
    return pd_refuse(why, "cannot read the folder '%s': %s", path, strerror(errno));
  for (struct dirent *e; (e = readdir(folder));) {
    struct stat st;
    const char *name = format("%s/%s", path, e->d_name);
    if (*e->d_name == '.' || stat(name, &st))
      continue;
    images |= S_ISDIR(st.st_mode) || pd_is_image_name(e->d_name);
    push(files, name);
  }
  closedir(folder);
  if (images || files->n == first) {
    files->n = first;
    push(files, path);
  }
  sort_from(files, first);
  return true;
}

bool data_files(const char *const *arguments, int n, DataFiles *files) {
  char why[PD_WHY] = "";
  bool good = true;
  for (int i = 0; i < n && good; i++) {
    struct stat st;
    const bool there = stat(arguments[i], &st) == 0;
    if (there && S_ISDIR(st.st_mode))
      good = add_folder(arguments[i], files, why);
    else if (!there && strpbrk(arguments[i], "*?["))
      good = add_matches(arguments[i], files, why);
    else
      push(files, arguments[i]);
  }
  if (!good)
    error_at(NO_SPAN, "PD0661", "%s", why);
  return good;
}

/* ---- together ------------------------------------------------------------------------------------ */

static bool same_kind(const DataView *a, const DataView *b, char *why) {
  if (a->kind != b->kind)
    return pd_refuse(why, "'%s' and '%s' are different kinds of data. help: show them one by one", a->path,
                     b->path);
  for (int i = 0; i < a->inputs.n && a->kind == DATA_ARRAYS && a->model && b->model; i++)
    if (strcmp(a->inputs.at[i].source, b->inputs.at[i].source))
      return pd_refuse(why,
                       "'%s' has %s for %s, and '%s' %s. help: give all files the same names of columns in the "
                       "same order",
                       a->path, a->inputs.at[i].source, a->inputs.at[i].name, b->path, b->inputs.at[i].source);
  bool same = a->kind != DATA_IMAGES || a->classes.n == b->classes.n;
  for (int i = 0; i < a->classes.n && same && a->kind == DATA_IMAGES; i++)
    same = !strcmp(a->classes.at[i].name, b->classes.at[i].name);
  return same || pd_refuse(why, "'%s' and '%s' have different classes", a->path, b->path);
}

/* Windows that end with their document are counted file by file, other ones over all files. */
static int64_t windows_of(const DataView *views, int n, int64_t *total) {
  int64_t tokens = 0, apart = 0;
  bool all = true;
  for (int i = 0; i < n; i++) {
    tokens += views[i].run;
    apart += views[i].samples_of_epoch;
    all &= views[i].documents > 0;
  }
  *total = tokens;
  return all ? apart : (tokens - 1) / views->context;
}

int64_t data_samples(DataView *views, int n, const Graph *model) {
  char why[PD_WHY] = "";
  int64_t samples = 0, tokens = 0;
  bool good = true;
  for (int i = 0; i < n && good; i++) {
    good = same_kind(&views[0], &views[i], why);
    samples += views[i].samples_of_epoch;
  }
  if (good && views->kind == DATA_ARRAYS)
    good = arrays_fit(views, n, model, &samples, why);
  if (good && views->context)
    samples = windows_of(views, n, &tokens);
  if (good && samples == 0)
    good = pd_refuse(why, "'%s'%s ha%s %lld tokens, and a window of '%s' takes %lld", views->path,
                     n > 1 ? " and the other files" : "", n > 1 ? "ve" : "s", (long long)tokens, views->model,
                     (long long)views->context + 1);
  if (!good)
    error_at(NO_SPAN, "PD0661", "%s", why);
  return good ? samples : -1;
}
