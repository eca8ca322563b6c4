/* Adapters among --init's files: pdc computes their settings, and the model takes all of them. */
#include "checkpoint/sources.h"
#include "run/run.h"
#include "shared/adapters.h"
#include "shared/beside.h"
#include "shared/read_file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static struct { cJSON *config; /* the program's adapter_config.json; NULL: none, or not yet parsed */ } own;

bool pd_of_adapter(const char *name) {
  if (pd_is_adapter(name)) return true;
  if (pd.stage->adapter_config && !own.config) own.config = cJSON_Parse(pd.stage->adapter_config);
  return own.config && pd_is_whole(own.config, name);
}

enum { MOST = 200 }; /* bytes of a list of targets for help */

static bool is_adapter_file(const char *path) {
  const char *slash = strrchr(path, '/');
  return !strcmp(slash ? slash + 1 : path, PD_ADAPTER_FILE);
}

/* By its name, or any tensor of PEFT's file. */
static bool is_of_adapter(const struct pd_sources *s, const struct pd_source *x) {
  return pd_is_adapter(x->entry->name) ||
         !strncmp(x->entry->name, PD_ADAPTER_PREFIX, sizeof PD_ADAPTER_PREFIX - 1) ||
         is_adapter_file(s->file[x->file].path);
}

static bool has_adapters(const struct pd_sources *s, int file) {
  for (int i = 0; i < s->n; i++)
    if (s->at[i].file == file && is_of_adapter(s, &s->at[i])) return true;
  return is_adapter_file(s->file[file].path);
}

/* The object of adapter_config.json beside a file, whose path goes to `path` of PATH_MAX bytes; NULL: none, or
 * `why` is filled. */
static cJSON *read_beside(const char *file, char *path, char *why) {
  char folder[PATH_MAX];
  size_t bytes;
  pd_folder_of(file, folder);
  if (snprintf(path, PATH_MAX, "%s/" PD_ADAPTER_CONFIG, folder) >= PATH_MAX || !pd_exists(path)) return NULL;
  char *text = pd_read_file(path, &bytes, why);
  cJSON *root = text ? cJSON_ParseWithLength(text, bytes) : NULL;
  if (text && !cJSON_IsObject(root)) pd_refuse(why, "'%.700s' is not JSON, or it is cut short", path);
  free(text);
  return root;
}

bool pd_adapters_check(const struct pd_sources *s, char *why) {
  for (int f = 0; f < s->n_files; f++) {
    char path[PATH_MAX], cause[PD_WHY];
    struct pd_adapter_config config;
    if (!has_adapters(s, f)) continue;
    cJSON *root = read_beside(s->file[f].path, path, why);
    if (root && !*why &&
        !(pd_adapter_config_read(root, &config, cause) && pd_has_whole(root, &s->file[f].content, cause)))
      pd_refuse(why, "'%.300s': %.650s", path, cause);
    cJSON_Delete(root);
    if (*why) return false;
    if (!s->file[f].content.n) return pd_refuse(why, "'%.700s' holds no adapter", s->file[f].path);
  }
  return true;
}

/* ---- settings of --lora, for help ------------------------------------------------------------------ */

/* Appends a target, unless the list has it; false: no room. */
static bool add_target(char *list, const char *name) {
  const size_t n = strlen(list), m = strlen(name);
  for (const char *at = list; *at; at += strcspn(at, "|"), at += *at == '|')
    if (strcspn(at, "|") == m && !strncmp(at, name, m)) return true;
  if (n + m + 2 > MOST || strpbrk(name, "|,=\"")) return false;
  snprintf(list + n, MOST - n, "%s%s", n ? "|" : "", name);
  return true;
}

/* Lists target_modules or modules_to_save as a pattern: names, or their last parts if names need more than MOST bytes. False: no
 * list. */
static bool list_targets(const cJSON *root, const char *member, char *list) {
  const cJSON *all = cJSON_GetObjectItemCaseSensitive(root, member), *item;
  for (int last = 0; last < 2; last++) {
    bool ok = cJSON_IsArray(all);
    *list = 0;
    cJSON_ArrayForEach(item, all) {
      const char *name = cJSON_IsString(item) ? item->valuestring : "", *dot = strrchr(name, '.');
      ok = ok && *name && add_target(list, last && dot ? dot + 1 : name);
    }
    if (ok && *list) return true;
  }
  return false;
}

const char *pd_adapters_help(const struct pd_sources *s) {
  static char text[3 * MOST];
  for (int f = 0; f < s->n_files; f++) {
    char path[PATH_MAX], why[PD_WHY] = "", targets[MOST], whole[MOST];
    struct pd_adapter_config config;
    cJSON *root = has_adapters(s, f) ? read_beside(s->file[f].path, path, why) : NULL;
    const bool known =
        root && pd_adapter_config_read(root, &config, why) && list_targets(root, "target_modules", targets);
    const bool saves = known && list_targets(root, "modules_to_save", whole);
    cJSON_Delete(root);
    if (!known) continue;
    snprintf(text, sizeof text,
             ". help: the adapter has r=%g and targets %s: build with --lora r=%g,alpha=%g,targets=\"%s\"%s%s%s",
             config.r, targets, config.r, config.alpha, targets, saves ? ",modules_to_save=\"" : "",
             saves ? whole : "", saves ? "\"" : "");
    return text;
  }
  return "";
}

bool pd_adapters_used(const struct pd_sources *s, const unsigned char *used, char *why) {
  for (int i = 0; i < s->n; i++)
    if (!used[i] && is_of_adapter(s, &s->at[i]))
      return pd_refuse(why, "'%.300s': the model has no adapter for tensor '%.200s'%s",
                       s->file[s->at[i].file].path, s->at[i].entry->name, pd_adapters_help(s));
  return true;
}
