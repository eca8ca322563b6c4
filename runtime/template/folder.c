/* The special tokens and the chat template of a tokenizer's folder. */
#include "shared/read_file.h"
#include "template/template.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};
enum { N_TOKEN_NAMES = sizeof token_names / sizeof *token_names };

static bool is_folder(const char *path) {
  struct stat st;
  return path && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The object in a file of the folder. Without the file, *to is an empty dict. */
static bool read_object(const char *folder, const char *name, struct pd_arena *a, struct pd_value *to, char *why) {
  char path[PATH_MAX], cause[PD_WHY] = "";
  snprintf(path, sizeof path, "%s/%s", folder, name);
  struct stat st;
  size_t bytes;
  *to = pd_value_dict(a);
  if (lstat(path, &st) && errno == ENOENT) return true;
  char *text = pd_read_file(path, &bytes, why);
  if (!text) return false;
  const bool good = (pd_json_parse(a, text, bytes, to, cause) || pd_refuse(why, "'%s': %s", path, cause)) &&
                    (to->kind == PD_DICT || pd_refuse(why, "'%s' is not a JSON object", path));
  free(text);
  return good;
}

bool pd_tokenizer_config(const char *folder, struct pd_arena *a, struct pd_value *to, char *why) {
  struct pd_value map;
  *to = pd_value_dict(a);
  if (!is_folder(folder)) return true;
  if (!read_object(folder, "tokenizer_config.json", a, to, why) ||
      !read_object(folder, "special_tokens_map.json", a, &map, why))
    return false;
  for (int i = 0; i < N_TOKEN_NAMES; i++) {
    const struct pd_value *token = pd_member(&map, token_names[i]);
    if (token && !pd_special_token(to, token_names[i], a))
      pd_dict_set(a, to->dict, pd_text_of(token_names[i]), *token);
  }
  return true;
}

struct pd_value pd_special_tokens(const struct pd_value *config, struct pd_arena *a) {
  struct pd_value to = pd_value_dict(a);
  for (int i = 0; i < N_TOKEN_NAMES; i++) {
    const char *text = pd_special_token(config, token_names[i], a);
    if (text) pd_dict_set(a, to.dict, pd_text_of(token_names[i]), pd_value_text(pd_text_of(text)));
  }
  return to;
}

const char *pd_special_token(const struct pd_value *config, const char *name, struct pd_arena *a) {
  const struct pd_value *token = pd_member(config, name);
  if (token && token->kind == PD_DICT) token = pd_member(token, "content");
  return token && token->kind == PD_TEXT ? pd_text_copy(a, token->text.at, token->text.n).at : NULL;
}

static struct pd_template *parsed(const char *text, size_t bytes, const char *from, char *why) {
  char cause[PD_WHY] = "";
  struct pd_template *t = pd_template_parse(text, bytes, cause);
  if (!t) pd_refuse(why, "%s: %s", from, cause);
  return t;
}

static struct pd_template *read_template(const char *path, char *why) {
  char from[PATH_MAX + 2];
  size_t bytes;
  char *text = pd_read_file(path, &bytes, why);
  snprintf(from, sizeof from, "'%s'", path);
  struct pd_template *t = text ? parsed(text, bytes, from, why) : NULL;
  free(text);
  return t;
}

/* The member chat_template: a text, or a list of objects with `name` and `template`. */
static const struct pd_value *template_in(const struct pd_value *config) {
  const struct pd_value *t = pd_member(config, "chat_template");
  if (!t || t->kind != PD_LIST) return t;
  for (int64_t i = 0; i < t->list->n; i++) {
    const struct pd_value *name = pd_member(&t->list->at[i], "name");
    if (name && name->kind == PD_TEXT && pd_text_is(name->text, "default"))
      return pd_member(&t->list->at[i], "template");
  }
  return NULL;
}

static struct pd_template *own_template(const char *folder, const struct pd_value *config, char *why) {
  struct stat st;
  char path[PATH_MAX], from[PATH_MAX + 64];
  if (!is_folder(folder)) return NULL;
  snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
  if (stat(path, &st) == 0) return read_template(path, why);
  const struct pd_value *t = template_in(config);
  snprintf(from, sizeof from, "chat_template of '%s/tokenizer_config.json'", folder);
  return t && t->kind == PD_TEXT ? parsed(t->text.at, t->text.n, from, why) : NULL;
}

struct pd_template *pd_template_open(const char *folder, const char *name, const struct pd_value *config,
                                     char *why) {
  struct stat st;
  *why = 0;
  if (!name || !strcmp(name, "auto")) return own_template(folder, config, why);
  const char *text = pd_template_named(name);
  char from[128];
  snprintf(from, sizeof from, "the template '%s'", name);
  if (text) return parsed(text, strlen(text), from, why);
  if (stat(name, &st) == 0) return read_template(name, why);
  pd_refuse(why, "--chat-template '%s' is neither auto, nor a file, nor one of %s", name, pd_template_names());
  return NULL;
}
