/* Hugging Face folders: their files, and their tensors without weights. */
#ifndef PD_HUGGING_FACE_H
#define PD_HUGGING_FACE_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Files beside config.json and the weights, which fine-tuned folders copy: the tokenizer's, and
 * generation_config.json. Ends in NULL. */
extern const char *const pd_folder_files[];

/* True for masks and rotary frequencies, which older versions of transformers saved; newer versions do not read
 * them. */
bool pd_is_unweighted(const char *name);
/* The name that older versions of transformers gave a parameter: LayerNorm.gamma for LayerNorm.weight, LayerNorm.beta for
 * LayerNorm.bias. malloc'd; NULL: the same name, or no memory. */
char *pd_former_name(const char *name);
/* True for tensors that may repeat the values of another one, as older versions of transformers saved them beside tied
 * embeddings. */
bool pd_is_copy(const char *name);
/* True for tensors of heads on BERT's, RoBERTa's and ViT's encoders. A folder may have heads for other tasks than its
 * model's: transformers neither loads nor saves them. */
bool pd_is_task_head(const char *name);

#ifdef __cplusplus
}
#endif

#endif
