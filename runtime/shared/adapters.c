#include "shared/adapters.h"

#include <math.h>
#include <string.h>

static bool ends_in(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n > m && !strcmp(name + n - m, end);
}

bool pd_is_adapter(const char *name) { return ends_in(name, PD_ADAPTER_A) || ends_in(name, PD_ADAPTER_B); }

/* ---- adapter_config.json --------------------------------------------------------------------------- */

/* Members that do not change the product of an adapter, or that pd_adapter_config_read() reads. */
static const char *const known[] = {"peft_type",       "r",
                                    "lora_alpha",      "fan_in_fan_out",
                                    "target_modules",  "lora_dropout",
                                    "task_type",       "base_model_name_or_path",
                                    "inference_mode",  "peft_version",
                                    "revision",        "auto_mapping",
                                    "megatron_core",   "qalora_group_size",
                                    "exclude_modules", "layers_to_transform",
                                    "layers_pattern",  "ensure_weight_tying"};

static bool is_off(const cJSON *item) {
  return cJSON_IsNull(item) || cJSON_IsFalse(item) ||
         (cJSON_IsString(item) && !strcmp(item->valuestring, "none")) ||
         ((cJSON_IsObject(item) || cJSON_IsArray(item)) && !item->child);
}

/* Other initializations change the base weights. */
static bool is_plain_start(const cJSON *item) {
  return cJSON_IsBool(item) || (cJSON_IsString(item) && (!strcmp(item->valuestring, "gaussian") ||
                                                         !strcmp(item->valuestring, "orthogonal")));
}

static bool is_known(const char *name) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(name, known[i])) return true;
  return false;
}

/* Names of modules, or their last parts. */
static bool is_names(const cJSON *list) {
  const cJSON *item;
  bool names = cJSON_IsArray(list);
  cJSON_ArrayForEach(item, list) names = names && cJSON_IsString(item) && *item->valuestring;
  return names;
}

static bool is_of_module(const cJSON *item, const char *name) {
  const char *module = cJSON_IsString(item) ? item->valuestring : "";
  const size_t n = strlen(module);
  for (const char *at = name; n && (at = strstr(at, module)); at++)
    if ((at == name || at[-1] == '.') && at[n] == '.') return true;
  return false;
}

static const cJSON *modules_to_save(const cJSON *root) {
  return cJSON_GetObjectItemCaseSensitive(root, "modules_to_save");
}

bool pd_is_whole(const cJSON *root, const char *name) {
  const cJSON *list = modules_to_save(root), *item;
  cJSON_ArrayForEach(item, list) {
    if (is_of_module(item, name)) return true;
  }
  return false;
}

bool pd_has_whole(const cJSON *root, const struct pd_safetensors *file, char *why) {
  const cJSON *list = modules_to_save(root), *item;
  cJSON_ArrayForEach(item, list) {
    bool found = false;
    for (int i = 0; i < file->n && !found; i++)
      found = !pd_is_adapter(file->at[i].name) && is_of_module(item, file->at[i].name);
    if (!found)
      return pd_refuse(why, "'modules_to_save' names '%.200s', but " PD_ADAPTER_FILE " has no tensor of it",
                       cJSON_IsString(item) ? item->valuestring : "");
  }
  return true;
}

static bool is_computed(const cJSON *item) {
  if (!strcmp(item->string, "init_lora_weights") && is_plain_start(item)) return true;
  if (!strcmp(item->string, "modules_to_save") && is_names(item)) return true;
  return is_known(item->string) || is_off(item);
}

bool pd_adapter_config_read(const cJSON *root, struct pd_adapter_config *to, char *why) {
  const cJSON *type = cJSON_GetObjectItemCaseSensitive(root, "peft_type"),
              *r = cJSON_GetObjectItemCaseSensitive(root, "r"),
              *alpha = cJSON_GetObjectItemCaseSensitive(root, "lora_alpha");
  if (!cJSON_IsString(type) || strcmp(type->valuestring, "LORA"))
    return pd_refuse(why, "'peft_type' must be \"LORA\"");
  for (const cJSON *item = root->child; item; item = item->next) {
    if (is_computed(item)) continue;
    char *value = cJSON_PrintUnformatted(item);
    pd_refuse(why, "'%.200s' is %.200s, but pdc computes plain LoRA only", item->string, value ? value : "set");
    cJSON_free(value);
    return false;
  }
  if (!cJSON_IsNumber(r) || !(r->valuedouble >= 1) || !cJSON_IsNumber(alpha) || !isfinite(alpha->valuedouble))
    return pd_refuse(why, "'r' must be a number from 1, and 'lora_alpha' a number");
  to->r = r->valuedouble;
  to->alpha = alpha->valuedouble;
  to->fan_in_fan_out = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "fan_in_fan_out"));
  return true;
}
