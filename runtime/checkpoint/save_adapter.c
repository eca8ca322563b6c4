/* --save of adapters: PEFT's adapter_model.safetensors and adapter_config.json. */
#include "checkpoint/save_folder.h"
#include "checkpoint/sources.h"
#include "shared/adapters.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* "q_proj.lora_A.weight" is an adapter of "q_proj.weight". */
char *pd_adapter_name(const struct pd_sources *s, const char *name) {
  static const char weight[] = ".weight";
  enum { WEIGHT = sizeof weight - 1, END = sizeof PD_ADAPTER_A - 1 };
  const char *end = name + strlen(name) - END;
  const size_t room = strlen(name) + sizeof PD_ADAPTER_PREFIX + PD_WHY;
  char *base = pd_allocate(room), *to = pd_allocate(room);
  snprintf(base, room, "%.*s%s", (int)(end - name), name, weight);
  const struct pd_source *x = pd_sources_find(s, base);
  const char *found = x && !s->file[x->file].is_shard ? x->entry->name : base;
  snprintf(to, room, "%s%.*s%s", PD_ADAPTER_PREFIX, (int)(strlen(found) - WEIGHT), found, end);
  free(base);
  return to;
}

char *pd_adapter_text(const char *base) {
  cJSON *root = cJSON_Parse(pd.stage->adapter_config);
  cJSON_AddItemToObject(root, "base_model_name_or_path", base ? cJSON_CreateString(base) : cJSON_CreateNull());
  char *text = cJSON_Print(root);
  cJSON_Delete(root);
  return text;
}
