/* model.safetensors.index.json: {"metadata": ..., "weight_map": {"NAME": "FILE", ...}}, as Hugging Face's
 * libraries write it for a model in several files. */
#include "checkpoint/sources.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* File names must have neither a folder nor control characters. */
static bool is_plain(const char *name) {
  for (const char *c = name; *c; c++)
    if (*c == '/' || (unsigned char)*c < ' ') return false;
  return *name && strcmp(name, ".") && strcmp(name, "..");
}

/* The index of the file, which is added if new. */
static int file_number(struct pd_index *x, const char *name) {
  for (int i = x->n_files - 1; i >= 0; i--)
    if (!strcmp(x->files[i], name)) return i;
  x->files[x->n_files] = strdup(name);
  return x->n_files++;
}

static bool parse_map(const cJSON *map, struct pd_index *to, char *why) {
  if (!cJSON_IsObject(map)) return pd_refuse(why, "it is not an index: it lacks \"weight_map\"");
  size_t n = (size_t)cJSON_GetArraySize(map);
  if (!n) return pd_refuse(why, "its \"weight_map\" is empty");
  to->at = calloc(n, sizeof *to->at);
  to->files = calloc(n, sizeof *to->files);
  if (!to->at || !to->files) return pd_refuse(why, "out of memory");
  const cJSON *item;
  cJSON_ArrayForEach(item, map) {
    if (!cJSON_IsString(item) || !is_plain(item->valuestring))
      return pd_refuse(why, "the file that it names for tensor '%.200s' is not in the same directory",
                       item->string);
    to->at[to->n].file = file_number(to, item->valuestring);
    to->at[to->n++].name = strdup(item->string);
  }
  return true;
}

bool pd_index_parse(const char *text, size_t bytes, struct pd_index *to, char *why) {
  *to = (struct pd_index){0};
  cJSON *root = cJSON_ParseWithLength(text, bytes);
  bool ok = root ? parse_map(cJSON_GetObjectItemCaseSensitive(root, "weight_map"), to, why)
                 : pd_refuse(why, "it is not JSON, or it is cut short");
  cJSON_Delete(root);
  if (!ok) pd_index_free(to);
  return ok;
}

void pd_index_free(struct pd_index *x) {
  for (int i = 0; i < x->n; i++) free(x->at[i].name);
  for (int i = 0; i < x->n_files; i++) free(x->files[i]);
  free(x->at);
  free(x->files);
  *x = (struct pd_index){0};
}
