/* Names of low-rank adapters (--lora), as PEFT has them. */
#ifndef PD_ADAPTERS_H
#define PD_ADAPTERS_H

#include <stdbool.h>

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

#ifdef __cplusplus
}
#endif

#endif
