/* Chats: messages to the tokens of a prompt, and turns that a user types. */
#include "generate/internal.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
  struct pd_template *template;
  struct pd_arena config_arena;
  struct pd_value special;
  struct pd_arena arena; /* of the typed chat */
  struct pd_value messages;
  struct {
    char *text;
    size_t bytes, room;
    bool ended;
  } input; /* bytes that were read from standard input */
} chat;

bool pd_chat_open(char *why) {
  const struct pd_options *o = &pd_options;
  char folder[PATH_MAX];
  struct pd_value config;
  if (chat.template) return true;
  if (!o->n_tokenizer) return pd_refuse(why, "messages need --tokenizer FILE..., in the folder of the model");
  pd_folder_of(o->tokenizer[0], folder);
  if (!pd_tokenizer_config(folder, &chat.config_arena, &config, why)) return false;
  chat.special = pd_special_tokens(&config, &chat.config_arena);
  chat.template = pd_template_open(folder, o->chat_template, &config, why);
  if (chat.template || *why) return chat.template != NULL;
  return pd_refuse(
      why, "the tokenizer's folder '%s' has no chat template. help: give --chat-template FILE or one of %s",
      folder, pd_template_names());
}

int64_t pd_chat_tokens(const struct pd_value *messages, const struct pd_value *tools, int32_t **tokens,
                       char *why) {
  struct pd_arena a = {0};
  struct pd_rendered text;
  struct pd_value context = pd_value_dict(&a);
  const struct pd_value none = {.kind = PD_NONE}, yes = {.kind = PD_BOOL, .truth = true};
  char cause[PD_WHY] = "";
  for (int64_t i = 0; i < chat.special.dict->n; i++)
    pd_dict_set(&a, context.dict, chat.special.dict->at[i].key, chat.special.dict->at[i].value);
  pd_dict_set(&a, context.dict, pd_text_of("messages"), *messages);
  pd_dict_set(&a, context.dict, pd_text_of("tools"), tools ? *tools : none);
  pd_dict_set(&a, context.dict, pd_text_of("documents"), none);
  pd_dict_set(&a, context.dict, pd_text_of("add_generation_prompt"), yes);
  int64_t n = -1;
  if (pd_template_render(chat.template, &context, &a, &text, cause))
    n = pd_tokenizer_encode(pd_tokenizer, text.text.at, text.text.n, tokens, why);
  else
    pd_refuse(why, "the chat template, %s", cause);
  pd_arena_free(&a);
  return n;
}

/* ---- typed chats ------------------------------------------------------------------------------------------ */

static void say(const char *role, const char *text, size_t bytes) {
  struct pd_value message = pd_value_dict(&chat.arena);
  if (chat.messages.kind != PD_LIST) chat.messages = pd_value_list(&chat.arena);
  pd_dict_set(&chat.arena, message.dict, pd_text_of("role"), pd_value_text(pd_text_of(role)));
  pd_dict_set(&chat.arena, message.dict, pd_text_of("content"),
              pd_value_text(pd_text_copy(&chat.arena, text, bytes)));
  pd_list_add(&chat.arena, chat.messages.list, message);
}

enum state { WAITS, HAS_LINE, AT_END };

/* The first line of the input, with its newline; 0: incomplete. */
static size_t whole_line(void) {
  const char *newline = chat.input.bytes ? memchr(chat.input.text, '\n', chat.input.bytes) : NULL;
  return newline ? (size_t)(newline + 1 - chat.input.text) : chat.input.ended ? chat.input.bytes : 0;
}

/* Waits for a line; at most a part of --timeout, because all ranks wait for rank 0. */
static enum state wait_for_line(void) {
  enum { MOST = 1 << 20 };
  while (!whole_line()) {
    if (chat.input.ended) return AT_END;
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    int ready = poll(&in, 1, (int)fmin(pd_options.timeout * 250, 1e6));
    if (ready == 0 || (ready < 0 && errno == EINTR)) return WAITS;
    if (chat.input.bytes + 4096 > chat.input.room)
      chat.input.text = pd_own(chat.input.text, chat.input.room = 2 * chat.input.room + 8192);
    ssize_t got = read(STDIN_FILENO, chat.input.text + chat.input.bytes, 4096);
    if (got < 0 && errno != EINTR) pd_fail("cannot read standard input: %s", strerror(errno));
    if (got > 0) chat.input.bytes += (size_t)got;
    if (chat.input.bytes > MOST) pd_fail("a line of the chat has more than %d bytes", MOST);
    chat.input.ended |= got == 0;
  }
  return HAS_LINE;
}

/* Makes the line a message, unless it is blank. */
static bool take_line(void) {
  size_t n = whole_line(), bytes = n;
  while (bytes && strchr(" \t\r\n", chat.input.text[bytes - 1]) && chat.input.text[bytes - 1]) bytes--;
  if (bytes) say("user", chat.input.text, bytes);
  memmove(chat.input.text, chat.input.text + n, chat.input.bytes - n);
  chat.input.bytes -= n;
  return bytes > 0;
}

static void add_turn(void) {
  char why[PD_WHY] = "";
  int32_t *tokens;
  int64_t n = pd_chat_tokens(&chat.messages, NULL, &tokens, why);
  if (n < 0 || !pd_prompt_fits(tokens, n, "the chat", why)) pd_fail("%s", why);
  pd_request_add(tokens, n)->turns = true;
}

struct pd_request *pd_chat_turn(const struct pd_request *last) {
  int64_t first = pd_n_requests;
  enum state state = WAITS;
  if (!pd.rank) {
    if (last) say("assistant", last->text, last->bytes);
    if (!last && pd_options.system) say("system", pd_options.system, strlen(pd_options.system));
    if (isatty(STDIN_FILENO)) fputs("> ", stdout), fflush(stdout);
  }
  while (state == WAITS) {
    if (!pd.rank) state = wait_for_line();
    if (!pd.rank && state == HAS_LINE && !take_line()) state = WAITS;
    pd_broadcast(&state, sizeof state, 0, "a line of the chat");
  }
  if (state == AT_END) return NULL;
  if (!pd.rank) add_turn();
  pd_requests_share(first);
  return pd_requests[first];
}
