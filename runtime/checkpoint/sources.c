#include "checkpoint/sources.h"

#include "checkpoint/checkpoint.h"
#include "shared/hugging_face.h"
#include "shared/adapters.h"
#include "shared/read_file.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char weights[] = "weights."; /* prefix of names in a checkpoint's shards */
enum { WEIGHTS = sizeof weights - 1 };

/* ---- which files ----------------------------------------------------------------------------- */

static bool add_file(struct pd_sources *s, const char *path, char *why) {
  struct pd_source_file *grown = realloc(s->file, sizeof *grown * (size_t)(s->n_files + 1));
  if (!grown) return pd_refuse(why, "out of memory");
  s->file = grown;
  struct pd_source_file f = {.path = strdup(path)};
  if (!pd_safetensors_open(path, &f.content, why)) {
    free(f.path);
    return false;
  }
  f.is_shard = *pd_safetensors_metadata(&f.content, "step") && *pd_safetensors_metadata(&f.content, "samples");
  s->file[s->n_files++] = f;
  return true;
}

/* Writes FOLDER/NAME, or NAME in the folder of `path`, to `to` of PATH_MAX bytes. */
static bool join(char *to, const char *folder, size_t n, const char *name, char *why) {
  int length = snprintf(to, PATH_MAX, "%.*s%s", (int)n, folder, name);
  return length < PATH_MAX || pd_refuse(why, "the path '%.100s...' is too long", folder);
}

static bool add_indexed(struct pd_sources *s, const char *path, char *why) {
  char cause[PD_WHY], beside[PATH_MAX];
  struct pd_index x;
  size_t bytes;
  char *text = pd_read_file(path, &bytes, why);
  if (!text) return false;
  bool ok = pd_index_parse(text, bytes, &x, cause);
  free(text);
  if (!ok) return pd_refuse(why, "cannot read '%s': %.900s", path, cause);
  const char *slash = strrchr(path, '/');
  int first = s->n_files;
  for (int i = 0; i < x.n_files && ok; i++) {
    ok = join(beside, path, slash ? (size_t)(slash + 1 - path) : 0, x.files[i], why) && add_file(s, beside, cause);
    if (!ok && !*why) pd_refuse(why, "'%s' names '%s': %.800s", path, x.files[i], cause);
  }
  for (int i = 0; i < x.n && ok; i++) {
    const struct pd_source_file *f = &s->file[first + x.at[i].file];
    ok = pd_safetensors_find(&f->content, x.at[i].name) ||
         pd_refuse(why, "'%s': tensor '%.200s' is not in '%s', where the index places it", path, x.at[i].name,
                   f->path);
  }
  pd_index_free(&x);
  return ok;
}

static bool has_shards(const char *folder, int shards) {
  char path[PATH_MAX];
  struct stat st;
  bool all = shards > 0;
  for (int i = 0; i < shards && all; i++) {
    int n = snprintf(path, sizeof path, "%s/shard-%d-of-%d.safetensors", folder, i, shards);
    all = n < PATH_MAX && !stat(path, &st);
  }
  return all;
}

int pd_count_shards(const char *folder, bool *complete) {
  DIR *dir = opendir(folder);
  int most = 0;
  *complete = false;
  for (struct dirent *d; dir && (d = readdir(dir));) {
    int shard, shards, end = 0;
    if (sscanf(d->d_name, "shard-%d-of-%d.safetensors%n", &shard, &shards, &end) != 2 || !end || d->d_name[end])
      continue;
    bool all = has_shards(folder, shards);
    if (all > *complete || (all == *complete && shards > most)) most = shards;
    *complete |= all;
  }
  if (dir) closedir(dir);
  return most;
}

/* True unless the folder's name is step-N of another step. */
static bool is_of_step(const char *folder, int64_t step) {
  size_t n = strlen(folder);
  while (n && folder[n - 1] == '/') n--;
  while (n && folder[n - 1] != '/') n--;
  long long named;
  char end;
  int fields = sscanf(folder + n, "step-%lld%c", &named, &end);
  return fields < 1 || (fields > 1 && end != '/') || named == step;
}

/* Verifies the shards of a checkpoint's step by its manifest; ranks share the work. */
static bool verify_step(const char *folder, const struct pd_manifest *m, char *why) {
  char path[PATH_MAX], name[64];
  if (!is_of_step(folder, m->step))
    return pd_refuse(why, "'%s': its manifest is of step %lld: the directory was renamed", folder,
                     (long long)m->step);
  for (int i = pd.rank; i < m->n_shards; i += pd.ranks) {
    snprintf(name, sizeof name, "/shard-%d-of-%d.safetensors", i, m->n_shards);
    if (!join(path, folder, strlen(folder), name, why) || !pd_shard_verify(m, i, path, why)) return false;
  }
  return true;
}

/* The number of shards to read from a step's folder; -1 after filling `why`. Steps of earlier versions have no
 * manifest. */
static int verified_shards(const char *folder, bool *has_manifest, char *why) {
  char path[PATH_MAX], cause[PD_WHY];
  struct pd_manifest m;
  struct stat st;
  size_t bytes;
  bool complete;
  if (!join(path, folder, strlen(folder), "/" PD_MANIFEST_NAME, why)) return -1;
  *has_manifest = !stat(path, &st);
  if (!*has_manifest) return pd_count_shards(folder, &complete);
  char *text = pd_read_file(path, &bytes, why);
  if (!text) return -1;
  bool ok = pd_manifest_parse(text, bytes, &m, cause) || pd_refuse(why, "'%s': %.900s", path, cause);
  free(text);
  if (!ok) return -1;
  int shards = verify_step(folder, &m, why) ? m.n_shards : -1;
  pd_manifest_free(&m);
  return shards;
}

static bool is_index(const char *path) {
  static const char json[] = ".json";
  size_t n = strlen(path), m = sizeof json - 1;
  return n > m && !strcmp(path + n - m, json);
}

static bool add_folder(struct pd_sources *s, const char *folder, char *why) {
  static const char *const names[] = {"/model.safetensors", "/model.safetensors.index.json", "/pytorch_model.bin",
                                      "/pytorch_model.bin.index.json", ("/" PD_ADAPTER_FILE)};
  enum { N_NAMES = sizeof names / sizeof *names };
  char path[PATH_MAX], name[64];
  struct stat st;
  for (int i = 0; i < N_NAMES; i++) {
    if (!join(path, folder, strlen(folder), names[i], why)) return false;
    if (!stat(path, &st)) return is_index(path) ? add_indexed(s, path, why) : add_file(s, path, why);
  }
  bool ok, has_manifest;
  int shards = verified_shards(folder, &has_manifest, why);
  if (shards < 0) return false;
  if (!shards)
    return pd_refuse(
        why,
        "the directory '%s' holds no model.safetensors or pytorch_model.bin, no index of one, and no shards of "
        "a checkpoint step",
        folder);
  ok = true; /* opening reports a missing file of an incomplete step */
  for (int i = 0; i < shards && ok; i++) {
    snprintf(name, sizeof name, "/shard-%d-of-%d.safetensors", i, shards);
    ok = join(path, folder, strlen(folder), name, why) && add_file(s, path, why);
  }
  if (ok && !has_manifest && *pd_safetensors_metadata(&s->file[s->n_files - 1].content, PD_MANIFEST_MARK))
    return pd_refuse(why, "the step in '%s' was not finished: it lacks " PD_MANIFEST_NAME, folder);
  if (ok && !has_manifest)
    pd_note("the step in '%s' cannot be verified: it has no manifest, as in earlier versions", folder);
  return ok;
}

static bool add_path(struct pd_sources *s, const char *path, char *why) {
  struct stat st;
  if (!stat(path, &st) && S_ISDIR(st.st_mode)) return add_folder(s, path, why);
  return is_index(path) ? add_indexed(s, path, why) : add_file(s, path, why);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
  const struct pd_source *x = a, *y = b;
  int order = strcmp(x->name, y->name);
  return order ? order : x->file - y->file;
}

/* The name after the first matching rename, or a copy; counts in `applied`. */
static char *model_name(const char *name, char *const *renames, int n, int *applied) {
  for (int i = 0; i < n; i++) {
    char *renamed = pd_renamed(renames[i], name);
    if (!renamed) continue;
    applied[i]++;
    return renamed;
  }
  return strdup(name);
}

static bool add_tensors(struct pd_sources *s, char *const *renames, int n_renames, char *why) {
  size_t n = 0;
  for (int f = 0; f < s->n_files; f++) n += (size_t)s->file[f].content.n;
  s->at = calloc(n + 1, sizeof *s->at);
  int *applied = calloc((size_t)n_renames + 1, sizeof *applied);
  bool ok = (s->at && applied) || pd_refuse(why, "out of memory");
  for (int f = 0; f < s->n_files && ok; f++)
    for (int i = 0; i < s->file[f].content.n; i++) {
      const struct pd_entry *e = &s->file[f].content.at[i];
      bool is_shard = s->file[f].is_shard;
      if (is_shard && strncmp(e->name, weights, WEIGHTS)) continue; /* older weights, moments */
      char *name = model_name(e->name + (is_shard ? WEIGHTS : 0), renames, n_renames, applied);
      s->at[s->n++] = (struct pd_source){name, f, e};
    }
  for (int i = 0; i < n_renames && ok; i++)
    ok = applied[i] || pd_refuse(why, "--rename '%.300s' renames no tensor", renames[i]);
  free(applied);
  return ok;
}

static bool check_names(const struct pd_sources *s, char *why) {
  for (int i = 1; i < s->n; i++) {
    const struct pd_source *a = &s->at[i - 1], *b = &s->at[i];
    if (strcmp(a->name, b->name)) continue;
    const char *first = s->file[a->file].path, *second = s->file[b->file].path;
    if (strcmp(a->entry->name, b->entry->name))
      return pd_refuse(why, "--rename gives '%.150s' of '%.250s' and '%.150s' of '%.250s' the same name '%.100s'",
                       a->entry->name, first, b->entry->name, second, a->name);
    if (a->file == b->file) return pd_refuse(why, "'%s' holds tensor '%.200s' twice", first, a->entry->name);
    return pd_refuse(why, "tensor '%.200s' is in two files: '%.300s' and '%.300s'", a->name, first, second);
  }
  return true;
}

bool pd_sources_open(struct pd_sources *s, char *const *paths, int n, char *const *renames, int n_renames,
                     char *why) {
  *s = (struct pd_sources){0};
  for (int i = 0; i < n_renames; i++)
    if (!pd_rename_check(renames[i], why)) return false;
  for (int i = 0; i < n; i++)
    if (!add_path(s, paths[i], why)) return false;
  if (!add_tensors(s, renames, n_renames, why)) return false;
  qsort(s->at, (size_t)s->n, sizeof *s->at, by_name);
  return check_names(s, why);
}

void pd_sources_close(struct pd_sources *s) {
  for (int i = 0; i < s->n; i++) free(s->at[i].name);
  for (int f = 0; f < s->n_files; f++) {
    pd_safetensors_close(&s->file[f].content);
    free(s->file[f].path);
  }
  free(s->at);
  free(s->file);
  *s = (struct pd_sources){0};
}

static const struct pd_source *find(const struct pd_sources *s, const char *name) {
  struct pd_source key = {.name = (char *)name, .file = -1};
  int first = 0, end = s->n;
  while (first < end) { /* first entry not before the key */
    int middle = first + (end - first) / 2;
    if (by_name(&s->at[middle], &key) < 0)
      first = middle + 1;
    else
      end = middle;
  }
  return first < s->n && !strcmp(s->at[first].name, name) ? &s->at[first] : NULL;
}

/* The source with the name that is joined of three parts. */
static const struct pd_source *find_joined(const struct pd_sources *s, const char *a, const char *b,
                                           const char *c) {
  char *name = pd_allocate(strlen(a) + strlen(b) + strlen(c) + 1);
  const struct pd_source *found = find(s, strcat(strcat(strcpy(name, a), b), c));
  free(name);
  return found;
}

/* With or without the prefix "transformer." of the name. */
static const struct pd_source *find_behind(const struct pd_sources *s, const char *before, const char *name) {
  static const char prefix[] = "transformer.";
  enum { PREFIX = sizeof prefix - 1 };
  const struct pd_source *found = find_joined(s, before, "", name);
  if (found) return found;
  if (!strncmp(name, prefix, PREFIX)) return find_joined(s, before, "", name + PREFIX);
  return find_joined(s, before, prefix, name);
}

const struct pd_source *pd_sources_find_base(const struct pd_sources *s, const char *name) {
  const struct pd_source *found = find_behind(s, "", name);
  char *former = found ? NULL : pd_former_name(name);
  if (former) found = find_behind(s, "", former);
  free(former);
  return found;
}

const struct pd_source *pd_sources_find(const struct pd_sources *s, const char *name) {
  const struct pd_source *found = pd_of_adapter(name) ? find_behind(s, PD_ADAPTER_PREFIX, name) : NULL;
  return found ? found : pd_sources_find_base(s, name);
}
