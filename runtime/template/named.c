/* pdc's own templates, by the names of the formats. They take text contents and the roles system, user and assistant. */
#include "internal.h"

#include <string.h>

static const struct {
  const char *name, *text;
  const char *tokens[4]; /* special tokens of its text; NULL ends them */
} templates[] = {
    {"chatml",
     "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
     {"<|im_start|>", "<|im_end|>"}},
    {"gemma",
     "{{ bos_token }}{% set ns = namespace(system = '') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.system = m.content + '\n\n' %}{% else %}"
     "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
     "{{ (ns.system if m.role == 'user' else '') + m.content | trim }}<end_of_turn>\n"
     "{% if m.role == 'user' %}{% set ns.system = '' %}{% endif %}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
     {"<start_of_turn>", "<end_of_turn>"}},
    {"llama3",
     "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
     "{{ m.content | trim }}<|eot_id|>{% endfor %}"
     "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {"mistral",
     "{{ bos_token }}{% set ns = namespace(system = '') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.system = m.content + '\n\n' %}"
     "{% elif m.role == 'user' %}[INST] {{ ns.system + m.content }} [/INST]{% set ns.system = '' %}"
     "{% elif m.role == 'assistant' %} {{ m.content | trim }}{{ eos_token }}"
     "{% else %}{{ raise_exception('no place for the role ' ~ m.role) }}{% endif %}{% endfor %}",
     {NULL}},
    {"phi3",
     "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
     {"<|user|>", "<|assistant|>", "<|end|>"}},
};

static int find(const char *name) {
  for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
    if (!strcmp(name, templates[i].name)) return (int)i;
  return -1;
}

const char *pd_template_named(const char *name) {
  const int i = find(name);
  return i < 0 ? NULL : templates[i].text;
}

const char *const *pd_template_tokens(const char *name) {
  const int i = find(name);
  return i < 0 ? NULL : templates[i].tokens;
}

const char *pd_template_names(void) { return "chatml, gemma, llama3, mistral, phi3"; }
