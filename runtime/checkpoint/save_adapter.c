/* --save of adapters: PEFT's adapter_model.safetensors and adapter_config.json. */
#include "checkpoint/save_folder.h"
#include "checkpoint/sources.h"
#include "shared/adapters.h"
#include "shared/read_file.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The name in the files of --init, without PEFT's prefix. */
static const char *base_name(const struct pd_sources *s, const char *name) {
  const struct pd_source *x = pd_sources_find_base(s, name);
  return x && !s->file[x->file].is_shard ? x->entry->name : name;
}

/* "q_proj.lora_A.weight" is an adapter of "q_proj.weight". */
char *pd_adapter_name(const struct pd_sources *s, const char *name) {
  static const char weight[] = ".weight";
  enum { WEIGHT = sizeof weight - 1, END = sizeof PD_ADAPTER_A - 1 };
  if (!pd_is_adapter(name)) {
    const char *found = base_name(s, name);
    char *whole = pd_allocate(strlen(found) + sizeof PD_ADAPTER_PREFIX);
    return strcat(strcpy(whole, PD_ADAPTER_PREFIX), found);
  }
  const char *end = name + strlen(name) - END;
  const size_t room = strlen(name) + sizeof PD_ADAPTER_PREFIX + PD_WHY;
  char *base = pd_allocate(room), *to = pd_allocate(room);
  snprintf(base, room, "%.*s%s", (int)(end - name), name, weight);
  const char *found = base_name(s, base);
  snprintf(to, room, "%s%.*s%s", PD_ADAPTER_PREFIX, (int)(strlen(found) - WEIGHT), found, end);
  free(base);
  return to;
}

/* PEFT's task by the class in `architectures` of the base model's config.json; NULL: another class, or no folder. PEFT loads an
 * adapter of a task for classes of this task alone. */
static const char *task_of(const char *base) {
  static const char *const tasks[][2] = {{"ForCausalLM", "CAUSAL_LM"},
                                         {"LMHeadModel", "CAUSAL_LM"},
                                         {"ForConditionalGeneration", "SEQ_2_SEQ_LM"}};
  char path[PATH_MAX], why[PD_WHY];
  size_t bytes;
  const int n = base ? snprintf(path, sizeof path, "%s/config.json", base) : PATH_MAX;
  char *text = n < PATH_MAX ? pd_read_file(path, &bytes, why) : NULL;
  cJSON *root = text ? cJSON_ParseWithLength(text, bytes) : NULL;
  const cJSON *class = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "architectures"), 0);
  const char *found = NULL;
  for (size_t i = 0; i < sizeof tasks / sizeof *tasks && cJSON_IsString(class); i++) {
    const size_t k = strlen(class->valuestring), m = strlen(tasks[i][0]);
    if (k >= m && !strcmp(class->valuestring + k - m, tasks[i][0])) found = tasks[i][1];
  }
  cJSON_Delete(root);
  free(text);
  return found;
}

char *pd_adapter_text(const char *base) {
  cJSON *root = cJSON_Parse(pd.stage->adapter_config);
  const char *task = task_of(base);
  cJSON_AddItemToObject(root, "task_type", task ? cJSON_CreateString(task) : cJSON_CreateNull());
  cJSON_AddItemToObject(root, "base_model_name_or_path", base ? cJSON_CreateString(base) : cJSON_CreateNull());
  char *text = cJSON_Print(root);
  cJSON_Delete(root);
  return text;
}
