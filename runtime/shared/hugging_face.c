#include "shared/hugging_face.h"

#include <string.h>

#include "shared/pattern.h"

const char *const pd_folder_files[] = {"generation_config.json",
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

bool pd_is_unweighted(const char *name) {
  static const char names[] = "*.rotary_emb.inv_freq | *.attn.bias | *.attn.masked_bias | *.attention.bias | "
                              "*.attention.masked_bias";
  struct pd_range one;
  for (const char *at = names; pd_pattern_next(&at, &one);)
    if (pd_alternative_is(one, (struct pd_range){name, strlen(name)}, NULL)) return true;
  return false;
}
