/* The special tokens and the chat template of a tokenizer's folder. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "shared/read_file.h"
#include "tokenize/internal.h"

static bool is_folder(const char *path) {
  struct stat st;
  return path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

struct pd_value config_of(const TokenizeRequest *request, struct pd_arena *a) {
  struct pd_value config = {.kind = PD_UNDEFINED};
  char why[PD_WHY];
  size_t bytes;
  if (!is_folder(request->tokenizer))
    return config;
  const char *text = read_file(format("%s/tokenizer_config.json", request->tokenizer), &bytes);
  if (text && !pd_json_parse(a, text, bytes, &config, why))
    config.kind = PD_UNDEFINED;
  return config;
}

const char *special_token(const struct pd_value *config, const char *name, struct pd_arena *a) {
  const struct pd_value *token = pd_member(config, name);
  if (token && token->kind == PD_DICT)
    token = pd_member(token, "content");
  return token && token->kind == PD_TEXT ? pd_text_copy(a, token->text.at, token->text.n).at : NULL;
}

static struct pd_template *parsed(const char *text, size_t bytes, const char *from, char *why) {
  char cause[PD_WHY] = "";
  struct pd_template *t = pd_template_parse(text, bytes, cause);
  if (!t)
    pd_refuse(why, "%s: %s", from, cause);
  return t;
}

static struct pd_template *read_template(const char *path, char *why) {
  size_t bytes;
  char *text = pd_read_file(path, &bytes, why);
  struct pd_template *t = text ? parsed(text, bytes, format("'%s'", path), why) : NULL;
  free(text);
  return t;
}

/* The member chat_template: a text, or a list of objects with `name` and `template`. */
static const struct pd_value *template_in(const struct pd_value *config) {
  const struct pd_value *t = pd_member(config, "chat_template");
  if (!t || t->kind != PD_LIST)
    return t;
  for (int64_t i = 0; i < t->list->n; i++) {
    const struct pd_value *name = pd_member(&t->list->at[i], "name");
    if (name && name->kind == PD_TEXT && pd_text_is(name->text, "default"))
      return pd_member(&t->list->at[i], "template");
  }
  return NULL;
}

static struct pd_template *own_template(const TokenizeRequest *request, const struct pd_value *config, char *why) {
  struct stat st;
  if (!is_folder(request->tokenizer))
    return NULL;
  const char *path = format("%s/chat_template.jinja", request->tokenizer);
  if (stat(path, &st) == 0)
    return read_template(path, why);
  const struct pd_value *t = template_in(config);
  return t && t->kind == PD_TEXT
             ? parsed(t->text.at, t->text.n,
                      format("chat_template of '%s/tokenizer_config.json'", request->tokenizer), why)
             : NULL;
}

struct pd_template *template_of(const TokenizeRequest *request, const struct pd_value *config, char *why) {
  const char *name = request->template;
  struct stat st;
  *why = 0;
  if (!name || !strcmp(name, "auto"))
    return own_template(request, config, why);
  const char *text = pd_template_named(name);
  if (text)
    return parsed(text, strlen(text), format("the template '%s'", name), why);
  if (stat(name, &st) == 0)
    return read_template(name, why);
  pd_refuse(why, "--chat-template '%s' is neither auto, nor a file, nor one of %s", name, pd_template_names());
  return NULL;
}
