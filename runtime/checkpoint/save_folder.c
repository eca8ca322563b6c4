#include "checkpoint/save_folder.h"

#include "checkpoint/sources.h"
#include "checkpoint/stacks.h"
#include "shared/adapters.h"
#include "shared/hugging_face.h"
#include "shared/read_file.h"
#include "shared/stacked.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char config_name[] = "config.json";

static struct {
  char *path;   /* the folder with config.json */
  char *config; /* the text that is written */
  enum pd_dtype dtype;
  char **names; /* by order of declaration; NULL: the model's */
  struct parts {
    int n;
    char **names;
  } * parts; /* by order of declaration: tensors of which a parameter of experts consists; 0: it is one tensor */
} like;

enum pd_dtype pd_folder_dtype(void) { return like.dtype; }

void pd_folder_rename(int order, char **name) {
  const bool dropped = pd.stage->adapter_config && !pd_of_adapter(*name);
  if (!like.names[order] && !dropped) return;
  free(*name);
  *name = dropped ? NULL : pd_copy_text(like.names[order]);
}

int pd_folder_parts(int order, char *const **names) {
  *names = like.parts[order].names;
  return like.parts[order].n;
}

static bool join(char *to, const char *folder, const char *name) {
  return snprintf(to, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

/* ---- the folder that is written -------------------------------------------------------------- */

static bool is_written(const char *name) {
  int end = 0;
  if (pd.stage->adapter_config) return !strcmp(name, PD_ADAPTER_FILE) || !strcmp(name, PD_ADAPTER_CONFIG);
  for (int i = 0; pd_folder_files[i]; i++)
    if (!strcmp(name, pd_folder_files[i])) return true;
  return !strcmp(name, config_name) || !strcmp(name, "model.safetensors") ||
         !strcmp(name, "model.safetensors.index.json") ||
         (sscanf(name, "model-%*d-of-%*d.safetensors%n", &end) == 0 && end && !name[end]);
}

bool pd_folder_may_replace(const char *path, char *why) {
  DIR *dir = opendir(path);
  if (!dir)
    return errno == ENOENT || pd_refuse(why, "cannot write the folder '%.600s': %s", path, strerror(errno));
  bool ok = true;
  for (struct dirent *d; ok && (d = readdir(dir));)
    ok =
        !strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") || is_written(d->d_name) ||
        pd_refuse(why, "--save writes all files of '%.500s', which holds '%.200s'. help: choose another directory",
                  path, d->d_name);
  closedir(dir);
  return ok;
}

/* A mount point cannot be replaced. */
static bool is_mounted(const char *path, const char *above) {
  struct stat own, parent;
  return !stat(path, &own) && !stat(above, &parent) && own.st_dev != parent.st_dev;
}

static bool check_path(const char *path, int64_t bytes, char *why) {
  char above[PATH_MAX], *real = realpath(path, NULL);
  struct pd_output_folder o;
  const char *name = pd_folder_of(real ? real : path, above);
  const bool mounted = real && is_mounted(real, above);
  pd_remove_left(above, name);
  free(real);
  if (mounted)
    return pd_refuse(why, "--save '%.700s' is a mount point and cannot be replaced. help: choose a folder in it",
                     path);
  if (!pd_folder_may_replace(path, why)) return false;
  if (!pd_output_folder_open(&o, path)) return pd_refuse(why, "cannot write '%s': %s", path, strerror(errno));
  pd_output_folder_close(&o, false);
  const int64_t room = pd_disk_room(above);
  return room < 0 || room >= bytes ||
         pd_refuse(why, "'%.300s' has room for %.1f MiB, but the weights of --save '%.300s' take %.1f MiB", above,
                   (double)room / (1 << 20), path, (double)bytes / (1 << 20));
}

bool pd_folder_copy(struct pd_output_folder *to) {
  const bool adapters = pd.stage->adapter_config;
  FILE *out = pd_output_folder_file(to, adapters ? PD_ADAPTER_CONFIG : config_name);
  bool ok = out && pd_output_folder_file_close(out, fputs(like.config, out) >= 0);
  for (int i = 0; pd_folder_files[i] && ok && !adapters; i++) {
    char from[PATH_MAX], why[PD_WHY];
    size_t bytes;
    if (!join(from, like.path, pd_folder_files[i]) || !pd_exists(from)) continue;
    char *text = pd_read_file(from, &bytes, why);
    if (!text) {
      pd_warn("%s: the file is not copied to '%s'", why, to->self.path);
      continue;
    }
    out = pd_output_folder_file(to, pd_folder_files[i]);
    ok = out && pd_output_folder_file_close(out, fwrite(text, 1, bytes, out) == bytes);
    free(text);
  }
  return ok;
}

/* ---- the folder that is read ----------------------------------------------------------------- */

static bool has_config(const char *folder) {
  char path[PATH_MAX];
  return join(path, folder, config_name) && pd_exists(path);
}

/* The first folder of --init's paths with config.json, malloc'd; NULL: none. */
static char *find_folder(void) {
  for (int i = 0; i < pd_options.n_init; i++) {
    char folder[PATH_MAX];
    struct stat st;
    const char *path = pd_options.init[i];
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
      snprintf(folder, sizeof folder, "%s", path);
    else
      pd_folder_of(path, folder);
    if (has_config(folder)) return strdup(folder);
  }
  return NULL;
}

static bool choose_folder(char *why) {
  const char *given = pd_options.save_config;
  like.path = given ? strdup(given) : find_folder();
  if (!like.path && pd.stage->adapter_config) return true;
  if (!like.path)
    return pd_refuse(why,
                     "--save of a folder copies config.json, and no path of --init has one. help: name the folder "
                     "with --save-config DIR, or write a file, such as --save tuned.safetensors");
  return has_config(like.path) || pd_refuse(why, "--save-config '%.700s' holds no config.json", like.path);
}

/* ---- its weights ----------------------------------------------------------------------------- */

static bool has_weights(const char *folder) {
  char path[PATH_MAX];
  return (join(path, folder, "model.safetensors") && pd_exists(path)) ||
         (join(path, folder, "model.safetensors.index.json") && pd_exists(path));
}

/* Opens the folder's tensors under the model's names; none without weights. */
static bool open_sources(struct pd_sources *s, char *why) {
  const struct pd_options *o = &pd_options;
  *s = (struct pd_sources){0};
  if (!o->save_config || !like.path) return pd_sources_open(s, o->init, o->n_init, o->rename, o->n_rename, why);
  return !has_weights(like.path) || pd_sources_open(s, &like.path, 1, NULL, 0, why);
}

/* True for a second name of a tied tensor, which transformers writes once. */
static bool is_second_name(const struct pd_sources *s, const struct pd_entry *e, const cJSON *config) {
  const ptrdiff_t bytes = e->end - e->data;
  if (cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(config, "tie_word_embeddings")) && !pd_is_copy(e->name))
    return false;
  for (int i = 0; i < s->n; i++) {
    const struct pd_entry *x = s->at[i].entry;
    if (x != e && x->rank == e->rank && x->end - x->data == bytes && !memcmp(x->data, e->data, (size_t)bytes))
      return true;
  }
  return false;
}

static bool same_shape(const struct pd_entry *a, const struct pd_entry *b) {
  return a->rank == b->rank && !memcmp(a->dim, b->dim, sizeof *a->dim * (size_t)a->rank);
}

#define OTHER_MODEL                                                                                      \
  ": config.json in '%.300s' describes another model than this one. help: write a file, such as --save " \
  "tuned.safetensors"

/* Of a folder without weights: names as transformers writes them. */
static void name_parts(const struct pd_entry *e, struct parts *to) {
  const int form = e->name && e->rank == 3 ? pd_stacked_usual(e->name) : -1;
  const int parts = form < 0 ? 0 : pd_stacked_parts(e->name, form);
  if (!parts) return;
  to->names = pd_allocate(sizeof *to->names * (size_t)(e->dim[0] * parts));
  for (; to->n < e->dim[0] * parts; to->n++) {
    to->names[to->n] = pd_stacked_name(e->name, form, to->n / parts, to->n % parts);
    if (!to->names[to->n]) pd_fail("out of memory");
  }
}

/* Takes the names of a parameter's tensors, if the files have one for each expert. */
static bool take_parts(const struct pd_sources *s, const struct pd_entry *e, struct parts *to, bool *used) {
  struct pd_stack stack;
  int64_t part[2];
  if (e->rank != 3 || !pd_stack_find(s, e->name, e->dim[0], &stack)) return false;
  const bool fits = !stack.missing && !pd_stack_misfit(&stack, e->dim, part);
  to->names = pd_allocate(sizeof *to->names * (size_t)stack.n);
  for (int i = 0; i < stack.n && fits; i++) {
    to->names[to->n++] = pd_copy_text(stack.part[i]->entry->name);
    used[stack.part[i] - s->at] = true;
  }
  pd_stack_free(&stack);
  return fits;
}

/* Takes the parameters' names from the tensors, which must be those of the model. */
static bool take_names(const struct pd_sources *s, const struct pd_entry *entries, const cJSON *config,
                       char *why) {
  const int n = pd.stage->n_model_parameters;
  bool ok = true, *used = pd_allocate((size_t)s->n + 1);
  for (int i = 0; i < n && ok; i++) {
    const struct pd_source *x = entries[i].name ? pd_sources_find(s, entries[i].name) : NULL;
    if (!entries[i].name || (!x && take_parts(s, &entries[i], &like.parts[i], used))) continue;
    ok = (x && (s->file[x->file].is_shard || same_shape(x->entry, &entries[i]))) ||
         pd_refuse(why, "--save: the weights there have %s '%.200s'" OTHER_MODEL,
                   x ? "another shape of parameter" : "no parameter", entries[i].name, like.path);
    if (!ok) break;
    used[x - s->at] = true;
    if (!s->file[x->file].is_shard) like.names[i] = pd_copy_text(x->entry->name);
  }
  for (int i = 0; i < s->n && ok; i++)
    ok = used[i] || pd_is_unweighted(s->at[i].name) || pd_is_task_head(s->at[i].name) ||
         is_second_name(s, s->at[i].entry, config) ||
         pd_refuse(why, "--save: the model lacks tensor '%.200s'" OTHER_MODEL, s->at[i].entry->name, like.path);
  free(used);
  return ok;
}

/* ---- config.json ----------------------------------------------------------------------------- */

static const char *const dtype_fields[] = {"torch_dtype", "dtype"};

/* --save-dtype, or the type that config.json names, or the type of the weights. */
static bool choose_dtype(const cJSON *config, const struct pd_sources *s, char *why) {
  like.dtype = s->n ? s->at[0].entry->dtype : PD_DTYPE_F32;
  for (int i = 0; i < 2; i++) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, dtype_fields[i]);
    if (!cJSON_IsString(item)) continue;
    like.dtype = pd_dtype_of(item->valuestring);
    if (like.dtype == PD_DTYPE_OTHER && !pd_options.save_dtype)
      return pd_refuse(why, "'%.300s/config.json': --save cannot write the type '%.100s'. help: --save-dtype f32",
                       like.path, item->valuestring);
  }
  if (like.dtype == PD_DTYPE_F64 || like.dtype == PD_DTYPE_OTHER) like.dtype = PD_DTYPE_F32;
  if (pd_options.save_dtype) like.dtype = pd_dtype_of(pd_options.save_dtype);
  return true;
}

/* The value of a member in the text of an object, which is valid JSON and ends in a NUL. */
static char *member_value(char *at, const char *name) {
  int depth = 0;
  for (; *at; at++) {
    if (*at == '{' || *at == '[') depth++;
    if (*at == '}' || *at == ']') depth--;
    if (*at != '"') continue;
    const char *string = ++at;
    while (*at != '"') at += *at == '\\' ? 2 : 1;
    const bool same = (size_t)(at - string) == strlen(name) && !memcmp(string, name, strlen(name));
    char *colon = at + 1 + strspn(at + 1, " \t\r\n");
    if (depth == 1 && same && *colon == ':') return colon + 1 + strspn(colon + 1, " \t\r\n");
  }
  return NULL;
}

/* The text with n bytes at `at` replaced; frees `text`. */
static char *replaced(char *text, const char *at, size_t n, const char *by) {
  char *changed = pd_allocate(strlen(text) + strlen(by) + 1);
  sprintf(changed, "%.*s%s%s", (int)(at - text), text, by, at + n);
  free(text);
  return changed;
}

static char *with_dtype(char *text, const cJSON *config) {
  for (int i = 0; i < 2; i++) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, dtype_fields[i]);
    const char *value = cJSON_IsString(item) ? member_value(text, dtype_fields[i]) : NULL;
    if (!value || pd_dtype_of(item->valuestring) == like.dtype) continue;
    text = replaced(text, value + 1, strcspn(value + 1, "\""), pd_dtype_name(like.dtype));
  }
  return text;
}

static const char tied_field[] = "tie_word_embeddings";

/* transformers' default of tie_word_embeddings. */
static bool is_tied_by_default(const cJSON *config) {
  static const char *const untied[] = {"llama", "mistral", "mixtral", "qwen2",
                                       "qwen3", "olmo2",   "phi3",    "gpt_neox"};
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(config, "model_type");
  for (size_t i = 0; i < sizeof untied / sizeof *untied; i++)
    if (cJSON_IsString(type) && !strcmp(type->valuestring, untied[i])) return false;
  return true;
}

/* By the tensors, a head may be tied against config.json: the written folder says what the model computes. */
static char *with_tie(char *text, const cJSON *config) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, tied_field);
  const char *own = pd_trait(tied_field), *value = item ? member_value(text, tied_field) : NULL;
  const bool tied = cJSON_IsBool(item) ? cJSON_IsTrue(item) : is_tied_by_default(config);
  if (!own || !strcmp(own, tied ? "true" : "false") || (item && !value)) return text;
  pd_note("--save writes %s = %s into config.json, as the model has it", tied_field, own);
  if (value) return replaced(text, value, strcspn(value, ", \t\r\n}"), own);
  char member[64];
  snprintf(member, sizeof member, "\n  \"%s\": %s,", tied_field, own);
  return replaced(text, strchr(text, '{') + 1, 0, member);
}

/* --save-config names another folder than --init's, which pd_compare_configs() warns of. The head's tie is
 * written. */
static bool check_config(const cJSON *config, const char *path, char *why) {
  if (!pd_options.save_config) return true;
  cJSON *untied = cJSON_Duplicate(config, true);
  cJSON_DeleteItemFromObjectCaseSensitive(untied, tied_field);
  char cause[PD_WHY];
  const bool ok = pd_config_fits(untied, path, cause) || pd_refuse(why, "--save-config: %.1000s", cause);
  cJSON_Delete(untied);
  return ok;
}

static bool read_folder(const struct pd_entry *entries, char *why) {
  char path[PATH_MAX];
  size_t bytes;
  struct pd_sources s = {0};
  char *read = join(path, like.path, config_name) ? pd_read_file(path, &bytes, why) : NULL;
  if (!read) return false;
  char *text = strndup(read, bytes);
  cJSON *config = cJSON_ParseWithOpts(text, NULL, true);
  free(read);
  bool ok = cJSON_IsObject(config) || pd_refuse(why, "'%s' is not JSON, or it is cut short", path);
  ok = ok && check_config(config, path, why);
  ok = ok && open_sources(&s, why) && choose_dtype(config, &s, why);
  for (int i = 0; i < pd.stage->n_model_parameters && ok && !s.n; i++) name_parts(&entries[i], &like.parts[i]);
  ok = ok && (!s.n || take_names(&s, entries, config, why));
  if (ok) like.config = with_tie(with_dtype(text, config), config);
  cJSON_Delete(config);
  pd_sources_close(&s);
  return ok;
}

static bool name_adapters(const struct pd_entry *entries, char *why) {
  struct pd_sources s;
  bool ok = open_sources(&s, why);
  for (int i = 0; i < pd.stage->n_model_parameters && ok; i++)
    if (entries[i].name && pd_of_adapter(entries[i].name)) like.names[i] = pd_adapter_name(&s, entries[i].name);
  like.dtype = pd_options.save_dtype ? pd_dtype_of(pd_options.save_dtype) : PD_DTYPE_F32;
  like.config = pd_adapter_text(like.path);
  pd_sources_close(&s);
  return ok;
}

bool pd_folder_start(const struct pd_entry *entries, char *why) {
  const struct pd_options *o = &pd_options;
  const bool adapters = pd.stage->adapter_config;
  const int n = pd.stage->n_model_parameters;
  int64_t bytes = 0;
  like.names = pd_allocate(sizeof *like.names * (size_t)n);
  like.parts = pd_allocate(sizeof *like.parts * (size_t)n);
  if (!choose_folder(why) || !(adapters ? name_adapters : read_folder)(entries, why)) return false;
  for (int i = 0; i < n; i++)
    if (entries[i].name && (!adapters || pd_of_adapter(entries[i].name)))
      bytes += entries[i].elements * pd_dtype_bytes(like.dtype);
  return (!o->save_folder || check_path(o->save, bytes, why)) &&
         (!o->save_raw_folder || check_path(o->save_raw, bytes, why));
}
