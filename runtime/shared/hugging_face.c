#include "shared/hugging_face.h"

#include <stdlib.h>
#include <string.h>

#include "shared/pattern.h"

const char *const pd_folder_files[] = {"generation_config.json",
                                       "preprocessor_config.json",
                                       "tokenizer.json",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "vocab.json",
                                       "merges.txt",
                                       "vocab.txt",
                                       "tokenizer.model",
                                       "spiece.model",
                                       "chat_template.jinja",
                                       "chat_template.json",
                                       NULL};

/* Whether one of the patterns is the whole name. */
static bool is_one_of(const char *names, const char *name) {
  struct pd_range one;
  while (pd_pattern_next(&names, &one))
    if (pd_alternative_is(one, (struct pd_range){name, strlen(name)}, NULL)) return true;
  return false;
}

bool pd_is_unweighted(const char *name) {
  return is_one_of("*.rotary_emb.inv_freq | *.attn.bias | *.attn.masked_bias | *.attention.bias | "
                   "*.attention.masked_bias | embeddings.position_ids | *.embeddings.position_ids",
                   name);
}

char *pd_former_name(const char *name) {
  static const char *const ends[][2] = {{".weight", ".gamma"}, {".bias", ".beta"}};
  const char *norm = strstr(name, "LayerNorm."), *end = norm ? norm + strlen("LayerNorm") : NULL;
  for (int i = 0; i < 2 && end; i++) {
    char *former = strcmp(end, ends[i][0]) ? NULL : malloc(strlen(name) + 1);
    if (!former) continue;
    memcpy(former, name, (size_t)(end - name));
    strcpy(former + (end - name), ends[i][1]);
    return former;
  }
  return NULL;
}

bool pd_is_copy(const char *name) {
  return is_one_of("encoder.embed_tokens.weight | decoder.embed_tokens.weight | cls.predictions.decoder.* | "
                   "lm_head.decoder.*",
                   name);
}

bool pd_is_task_head(const char *name) {
  return is_one_of(
      "cls.predictions.* | cls.seq_relationship.* | pooler.dense.* | *.pooler.dense.* | classifier.* | "
      "lm_head.dense.* | lm_head.layer_norm.* | lm_head.bias | lm_head.decoder.*",
      name);
}
