/* Low-rank adapters (--lora): their names and their adapter_config.json, as PEFT has them. */
#ifndef PD_ADAPTERS_H
#define PD_ADAPTERS_H

#include <cjson/cJSON.h>

#include "shared/safetensors.h"
#include "shared/why.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PD_ADAPTER_A ".lora_A.weight"         /* after the layer's name: [r, in_features] */
#define PD_ADAPTER_B ".lora_B.weight"         /* [out_features, r] */
#define PD_ADAPTER_PREFIX "base_model.model." /* in files, before the parameter's name */
#define PD_ADAPTER_FILE "adapter_model.safetensors"
#define PD_ADAPTER_CONFIG "adapter_config.json"

/* True for the parameter's name of an adapter. */
bool pd_is_adapter(const char *name);

struct pd_adapter_config {
  double r, alpha;
  bool fan_in_fan_out; /* base weights are stored transposed */
};
/* True if modules_to_save of an adapter_config.json has the module of the parameter's name: PEFT saves it whole. */
bool pd_is_whole(const cJSON *root, const char *name);
/* False after filling `why`: modules_to_save names a module of which the adapter's file has no tensor. */
bool pd_has_whole(const cJSON *root, const struct pd_safetensors *file, char *why);
/* Reads an adapter_config.json. False after filling `why`, without the path: it is not LoRA's, or has a setting that
 * changes the result beyond W + alpha / r B A. */
bool pd_adapter_config_read(const cJSON *root, struct pd_adapter_config *to, char *why);

#ifdef __cplusplus
}
#endif

#endif
