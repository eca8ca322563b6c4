/* pdc's own templates, by the names of the formats. They take text contents and the roles system, user and assistant. */
#include "internal.h"

#include <string.h>

/* Each message; the templates have no form for parts of a content and for calls of tools. */
#define EACH                                                \
  "{% for m in messages %}{% if m.content is not string %}" \
  "{{ raise_exception('the content of message ' ~ loop.index ~ ' is not a text') }}{% endif %}"

/* The end of templates that put the system's text into the next message of the user. */
#define NO_SYSTEM \
  "{% if ns.system %}{{ raise_exception('no message of the user follows the system message') }}{% endif %}"

/* Mistral's templates differ in blanks around texts. The system's text comes before that of the next user. */
#define MISTRAL(BEGIN, END, ANSWER)                                                                \
  "{{ bos_token }}{% set ns = namespace(system = '') %}" EACH                                      \
  "{% if m.role == 'system' %}{% set ns.system = m.content + '\n\n' %}"                            \
  "{% elif m.role == 'user' %}" BEGIN "{{ ns.system + m.content }}" END "{% set ns.system = '' %}" \
  "{% elif m.role == 'assistant' %}" ANSWER "{{ eos_token }}"                                      \
  "{% else %}{{ raise_exception('no place for the role ' ~ m.role) }}{% endif %}{% endfor %}" NO_SYSTEM

static const struct {
  const char *name, *text;
  const char *tokens[4]; /* special tokens of its text; NULL ends them */
} templates[] = {
    {"chatml",
     EACH "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
     {"<|im_start|>", "<|im_end|>"}},
    {"gemma",
     "{{ bos_token }}{% set ns = namespace(system = '') %}" EACH
     "{% if m.role == 'system' %}{% set ns.system = m.content + '\n\n' %}{% else %}"
     "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
     "{{ (ns.system if m.role == 'user' else '') + m.content | trim }}<end_of_turn>\n"
     "{% if m.role == 'user' %}{% set ns.system = '' %}{% endif %}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}" NO_SYSTEM,
     {"<start_of_turn>", "<end_of_turn>"}},
    {"llama3",
     "{{ bos_token }}" EACH "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
     "{{ m.content | trim }}<|eot_id|>{% endfor %}"
     "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {"mistral", MISTRAL(" [INST] ", " [/INST]", " {{ m.content }}"), {NULL}},
    {"mistral-tekken", MISTRAL("[INST]", "[/INST]", "{{ m.content }}"), {"[INST]", "[/INST]"}},
    {"mistral-v3", MISTRAL("[INST] ", "[/INST]", " {{ m.content | trim }}"), {"[INST]", "[/INST]"}},
    {"phi3",
     EACH
     "{% if m.role != 'system' or m.content %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n"
     "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}",
     {"<|user|>", "<|assistant|>", "<|end|>"}},
    {"phi4",
     EACH "<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}",
     {"<|im_start|>", "<|im_sep|>", "<|im_end|>"}},
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

const char *pd_template_names(void) {
  return "chatml, gemma, llama3, mistral, mistral-tekken, mistral-v3, phi3, phi4";
}
