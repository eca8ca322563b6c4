/* A line of JSON to a sample: its text, by the chat template, and the tokens whose prediction counts in the loss. */
#include <stdlib.h>
#include <string.h>

#include "tokenize/internal.h"

/* [begin, end) of the text. counts: its tokens have a loss. shared: the part that two ways of rendering the turn have in common. */
typedef struct Turn {
  size_t begin, end;
  bool shared, counts;
} Turn;

/* A line that is read. */
typedef struct Reading {
  const ChatReader *c;
  struct pd_arena arena;
  struct pd_arena parts;          /* renderings of parts of the chat, freed after each turn */
  struct pd_value line, messages; /* messages: a list; undefined: the line is a text */
  int64_t first;                  /* the first message whose turn may count */
  struct pd_text text;
  Turn *turn; /* the assistant's turns in the text */
  int n_turns, room;
  bool beyond; /* a rendering exceeds a limit */
  bool exact;  /* the template marks the turns by generation blocks */
  char *why;
} Reading;

static bool refuse_kind(const Reading *r, const char *name, const char *expected) {
  return pd_refuse(r->why, "its member '%s' is not %s", name, expected);
}

/* A member that is a text; NULL after filling `why`. optional: also for a missing member or null, with an empty `why`. */
static const struct pd_value *text_member(const Reading *r, const struct pd_value *of, const char *name,
                                          bool optional) {
  const struct pd_value *v = pd_member(of, name);
  if (v && v->kind == PD_TEXT)
    return v;
  if (optional && (!v || v->kind == PD_NONE))
    return NULL;
  refuse_kind(r, name, "a text");
  return NULL;
}

/* ---- lines to messages --------------------------------------------------------------------------- */

static void add_message(Reading *r, const char *role, struct pd_value content) {
  struct pd_value m = pd_value_dict(&r->arena);
  pd_dict_set(&r->arena, m.dict, pd_text_of("role"), pd_value_text(pd_text_of(role)));
  pd_dict_set(&r->arena, m.dict, pd_text_of("content"), content);
  pd_list_add(&r->arena, r->messages.list, m);
}

/* `system` of a line of instructions or conversations. */
static bool add_system(Reading *r) {
  const struct pd_value *system = text_member(r, &r->line, "system", true);
  if (system && system->text.n)
    add_message(r, "system", *system);
  return !*r->why;
}

/* Whether a message says something: a content, calls of tools, or another member that its template may read. */
static bool has_content(const struct pd_value *message) {
  static const char *const others[] = {"role", "name", "weight"};
  bool says = false;
  for (int64_t i = 0; i < message->dict->n; i++) {
    bool other = false;
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
      other |= pd_text_is(message->dict->at[i].key, others[k]);
    says |= !other;
  }
  return says;
}

/* Adds messages of objects with `role`. */
static bool add_messages(Reading *r, const struct pd_value *list, const char *name) {
  if (list->kind != PD_LIST)
    return refuse_kind(r, name, "a list of messages");
  for (int64_t i = 0; i < list->list->n; i++) {
    const struct pd_value *role = pd_member(&list->list->at[i], "role");
    if (!role || role->kind != PD_TEXT)
      return pd_refuse(r->why, "message %lld of '%s' has no text 'role'", (long long)i + 1, name);
    if (!has_content(&list->list->at[i]))
      return pd_refuse(r->why, "message %lld of '%s' has no 'content'", (long long)i + 1, name);
    pd_list_add(&r->arena, r->messages.list, list->list->at[i]);
  }
  return true;
}

/* ShareGPT's objects with `from` and `value`. */
static bool add_conversations(Reading *r, const struct pd_value *list) {
  static const char *const roles[][2] = {{"human", "user"}, {"gpt", "assistant"}};
  if (list->kind != PD_LIST)
    return refuse_kind(r, "conversations", "a list of messages");
  if (!add_system(r))
    return false;
  if (list->list->n && pd_member(&list->list->at[0], "role"))
    return add_messages(r, list, "conversations");
  for (int64_t i = 0; i < list->list->n; i++) {
    const struct pd_value *from = pd_member(&list->list->at[i], "from"),
                          *value = pd_member(&list->list->at[i], "value");
    if (!from || from->kind != PD_TEXT || !value || value->kind != PD_TEXT)
      return pd_refuse(r->why, "message %lld of 'conversations' has no texts 'from' and 'value'",
                       (long long)i + 1);
    const char *role = pd_text_copy(&r->arena, from->text.at, from->text.n).at;
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
      if (pd_text_is(from->text, roles[k][0]))
        role = roles[k][1];
    add_message(r, role, *value);
  }
  return true;
}

/* Alpaca's instruction, input and output. */
static bool add_instruction(Reading *r) {
  const struct pd_value *instruction = text_member(r, &r->line, "instruction", false);
  const struct pd_value *input = instruction ? text_member(r, &r->line, "input", true) : NULL;
  const struct pd_value *output = *r->why ? NULL : text_member(r, &r->line, "output", false);
  if (!output || !add_system(r))
    return false;
  struct pd_value user = *instruction;
  if (input && input->text.n) {
    const size_t n = user.text.n + 2 + input->text.n;
    char *both = pd_arena_alloc(&r->arena, n + 1);
    memcpy(both, user.text.at, user.text.n);
    memcpy(both + user.text.n, "\n\n", 2);
    memcpy(both + user.text.n + 2, input->text.at, input->text.n);
    user = pd_value_text((struct pd_text){both, n});
  }
  add_message(r, "user", user);
  add_message(r, "assistant", *output);
  return true;
}

/* ---- texts --------------------------------------------------------------------------------------- */

static void add_turn(Reading *r, size_t begin, size_t end, bool shared) {
  if (r->n_turns == r->room) {
    r->room = r->room ? 2 * r->room : 8;
    Turn *larger = pd_arena_alloc(&r->arena, sizeof *larger * (size_t)r->room);
    if (r->n_turns)
      memcpy(larger, r->turn, sizeof *larger * (size_t)r->n_turns);
    r->turn = larger;
  }
  r->turn[r->n_turns++] = (Turn){begin, end, shared, true};
}

/* A prompt and its completion, both texts, stand behind one another. */
static bool join_completion(Reading *r, const struct pd_value *prompt) {
  const struct pd_value *completion = text_member(r, &r->line, "completion", false);
  if (!completion)
    return false;
  const size_t n = prompt->text.n + completion->text.n;
  char *both = pd_arena_alloc(&r->arena, n + 1);
  memcpy(both, prompt->text.at, prompt->text.n);
  memcpy(both + prompt->text.n, completion->text.at, completion->text.n);
  r->text = (struct pd_text){both, n};
  add_turn(r, prompt->text.n, n, false);
  return true;
}

static bool read_prompt(Reading *r, const struct pd_value *prompt) {
  const struct pd_value *completion = pd_member(&r->line, "completion");
  if (prompt->kind == PD_TEXT)
    return join_completion(r, prompt);
  r->messages = pd_value_list(&r->arena);
  if (!add_messages(r, prompt, "prompt"))
    return false;
  r->first = r->messages.list->n;
  return completion ? add_messages(r, completion, "completion")
                    : refuse_kind(r, "completion", "a list of messages");
}

static bool refuse_members(const Reading *r) {
  char names[200] = "";
  size_t n = 0;
  for (int64_t i = 0; r->line.kind == PD_DICT && i < r->line.dict->n && n < sizeof names; i++) {
    const struct pd_text key = r->line.dict->at[i].key;
    n += (size_t)snprintf(names + n, sizeof names - n, "%s'%.*s'", i ? ", " : "", (int)(key.n > 40 ? 40 : key.n),
                          key.at);
  }
  return pd_refuse(
      r->why, "it has none of the members 'messages', 'conversations', 'prompt', 'instruction' and 'text'%s%s",
      *names ? ", but " : "", names);
}

static bool read_text(Reading *r, const char *name) {
  const struct pd_value *text = text_member(r, &r->line, name, false);
  if (!text)
    return false;
  r->text = text->text;
  add_turn(r, 0, text->text.n, false);
  return true;
}

/* Finds the kind of the line: messages, or a text. */
static bool read_line(Reading *r) {
  if (r->c->field)
    return read_text(r, r->c->field);
  const struct pd_value *messages = pd_member(&r->line, "messages"),
                        *conversations = pd_member(&r->line, "conversations"),
                        *prompt = pd_member(&r->line, "prompt"), *instruction = pd_member(&r->line, "instruction");
  if (!messages && !conversations && prompt)
    return read_prompt(r, prompt);
  if (messages || conversations || instruction) {
    r->messages = pd_value_list(&r->arena);
    return messages        ? add_messages(r, messages, "messages")
           : conversations ? add_conversations(r, conversations)
                           : add_instruction(r);
  }
  if (!pd_member(&r->line, "text"))
    return refuse_members(r);
  return read_text(r, "text");
}

/* ---- messages to texts --------------------------------------------------------------------------- */

/* Renders the first n messages, in the arena. */
static bool render(Reading *r, int64_t n, bool prompts, struct pd_arena *a, struct pd_rendered *to) {
  const struct pd_value *tools = pd_member(&r->line, "tools");
  struct pd_value context = pd_value_dict(a), some = pd_value_list(a);
  const struct pd_dict *special = r->c->special.dict;
  *some.list = *r->messages.list;
  some.list->n = some.list->room = n;
  for (int64_t i = 0; i < special->n; i++)
    pd_dict_set(a, context.dict, special->at[i].key, special->at[i].value);
  pd_dict_set(a, context.dict, pd_text_of("messages"), some);
  pd_dict_set(a, context.dict, pd_text_of("tools"), tools ? *tools : (struct pd_value){.kind = PD_NONE});
  pd_dict_set(a, context.dict, pd_text_of("documents"), (struct pd_value){.kind = PD_NONE});
  pd_dict_set(a, context.dict, pd_text_of("add_generation_prompt"),
              (struct pd_value){.kind = PD_BOOL, .truth = prompts});
  char cause[PD_WHY] = "";
  if (pd_template_render(r->c->template, &context, a, to, cause))
    return true;
  r->beyond = to->beyond;
  return pd_refuse(r->why, "the chat template, %s%s", cause,
                   n < r->messages.list->n ? " (in a part of the chat)" : "");
}

static bool begins_with(struct pd_text t, struct pd_text with) {
  return t.n >= with.n && !memcmp(t.at, with.at, with.n);
}

static size_t common(struct pd_text a, struct pd_text b) {
  size_t n = 0;
  while (n < a.n && n < b.n && a.at[n] == b.at[n])
    n++;
  return n;
}

/* The longest end of `turn` that `rest` begins with. */
static size_t common_end(struct pd_text turn, struct pd_text rest) {
  for (size_t from = turn.n > rest.n ? turn.n - rest.n : 0; from < turn.n; from++)
    if (turn.at[from] == rest.at[0] && !memcmp(turn.at + from, rest.at, turn.n - from))
      return turn.n - from;
  return 0;
}

static bool is_by_assistant(const struct pd_value *message) {
  const struct pd_value *role = pd_member(message, "role");
  return role && role->kind == PD_TEXT && pd_text_is(role->text, "assistant");
}

/* Whether the turn of message i has a loss: by its `weight`, as OpenAI's format has it. False after filling `why`. */
static bool read_weight(const Reading *r, int64_t i, bool *counts) {
  const struct pd_value *weight = pd_member(&r->messages.list->at[i], "weight");
  *counts = true;
  if (!weight || weight->kind == PD_NONE)
    return true;
  const double x = weight->kind == PD_INT ? (double)weight->whole : weight->kind == PD_FLOAT ? weight->number : -1;
  *counts = x != 0;
  return x == 0 || x == 1 || pd_refuse(r->why, "the weight of message %lld is neither 0 nor 1", (long long)i + 1);
}

static bool refuse_turn(const Reading *r, int64_t i) {
  return pd_refuse(
      r->why,
      "the chat template renders message %lld in another way when messages follow, or the messages before "
      "it when it follows. help: mark the assistant's text in the template with {%% generation %%}",
      (long long)i + 1);
}

/* Where the turn of message i begins: behind the prompt for it. The whole may lack the prompt's end, such as an opened
 * <think>; then the turn begins where they differ, not within a word that both happen to begin with. 0 after filling `why`. */
static size_t begin_of_turn(Reading *r, int64_t i) {
  struct pd_rendered before, prompt;
  if (!render(r, i, true, &r->parts, &prompt))
    return 0;
  if (begins_with(r->text, prompt.text) && prompt.text.n)
    return prompt.text.n;
  if (!render(r, i, false, &r->parts, &before))
    return 0;
  size_t n = common(prompt.text, r->text);
  while (n > before.text.n && !memchr(" \n>", r->text.at[n - 1], 3))
    n--;
  if (n > before.text.n && begins_with(prompt.text, before.text))
    return n;
  refuse_turn(r, i);
  return 0;
}

/* The turn of message i: the text that the chat up to it has behind the prompt for it. Templates may render a turn in
 * another way when messages follow: without its thoughts, or without an end of text. Then the turn is the part that both
 * ways share. */
static bool find_turn(Reading *r, int64_t i) {
  struct pd_rendered upto;
  const size_t begin = begin_of_turn(r, i);
  if (!begin || !render(r, i + 1, false, &r->parts, &upto))
    return false;
  if (common(upto.text, r->text) < begin)
    return refuse_turn(r, i);
  const struct pd_text turn = {upto.text.at + begin, upto.text.n - begin},
                       rest = {r->text.at + begin, r->text.n - begin};
  size_t n = turn.n;
  if (!begins_with(rest, turn)) {
    const size_t front = common(turn, rest), end = common_end(turn, rest);
    n = front > end ? front : end;
  }
  add_turn(r, begin, begin + n, n < turn.n);
  return n > 0 || refuse_turn(r, i);
}

/* Finds the turns of the assistant without generation blocks. */
static bool find_turns(Reading *r) {
  const struct pd_list *m = r->messages.list;
  for (int64_t i = r->first; i < m->n; i++) {
    bool counts;
    if (!is_by_assistant(&m->at[i]))
      continue;
    const bool found = read_weight(r, i, &counts) && find_turn(r, i);
    pd_arena_free(&r->parts);
    if (!found)
      return false;
    r->turn[r->n_turns - 1].counts = counts;
  }
  return true;
}

/* Takes the generation blocks as turns. With weights, each message of the assistant needs one block. */
static bool take_blocks(Reading *r, const struct pd_rendered *whole) {
  const struct pd_list *m = r->messages.list;
  bool counts, all = true;
  int n = 0;
  for (int i = 0; i < whole->n_spans; i++)
    add_turn(r, whole->span[i].begin, whole->span[i].end, false);
  for (int64_t i = 0; i < m->n; i++) {
    if (!is_by_assistant(&m->at[i]))
      continue;
    if (!read_weight(r, i, &counts))
      return false;
    all &= counts;
    if (n < r->n_turns)
      r->turn[n].counts = counts;
    n++;
  }
  return all || n == r->n_turns ||
         pd_refuse(
             r->why,
             "a message has the weight 0, and the template has %d generation block%s for %d message%s of the "
             "assistant",
             r->n_turns, r->n_turns == 1 ? "" : "s", n, n == 1 ? "" : "s");
}

static bool render_messages(Reading *r) {
  struct pd_rendered whole;
  if (!r->c->template)
    return pd_refuse(r->why, "it is a chat, and the tokenizer's folder has no chat template. help: name one with "
                             "--chat-template, such as chatml");
  if (!render(r, r->messages.list->n, false, &r->arena, &whole))
    return false;
  r->text = whole.text;
  r->exact = pd_template_marks(r->c->template) && !r->first;
  if (r->exact)
    return take_blocks(r, &whole);
  return r->c->loss_on == LOSS_ALL || find_turns(r);
}

/* ---- tokens -------------------------------------------------------------------------------------- */

static struct pd_mark *marks_of(Reading *r) {
  struct pd_mark *mark = pd_arena_alloc(&r->arena, sizeof *mark * 2 * (size_t)(r->n_turns + 1));
  for (int i = 0; i < r->n_turns; i++) {
    mark[2 * i].at = r->turn[i].begin;
    mark[2 * i + 1].at = r->turn[i].end;
  }
  return mark;
}

static bool is_blank(const struct pd_tokenizer *t, int32_t token) {
  struct pd_decoding d = {0};
  const char *text;
  const size_t n = pd_tokenizer_decode(t, &d, token, &text);
  bool blank = true;
  for (size_t i = 0; i < n; i++)
    blank &= memchr(" \t\r\n", text[i], 4) != NULL;
  pd_tokenizer_decode_end(&d, &text);
  return blank;
}

/* Where the tokens of a turn end: of generation blocks with the last that begins in it, else with the last that ends in
 * it, without blanks behind an added token such as <|im_end|>. -1 after filling `why`. */
static int64_t end_of_turn(const Reading *r, const Turn *turn, const struct pd_mark *mark, const int32_t *tokens) {
  const struct pd_tokenizer *t = r->c->tokenizer;
  if (r->exact)
    return mark[1].begun;
  int64_t end = mark[1].ended;
  while (end > mark[0].ended && !pd_tokenizer_added(t, tokens[end - 1]) && is_blank(t, tokens[end - 1]))
    end--;
  if (end > mark[0].ended && pd_tokenizer_added(t, tokens[end - 1]))
    return end;
  if (!turn->shared)
    return mark[1].ended;
  pd_refuse(r->why,
            "the chat template renders a turn of the assistant in another way when messages follow, and the "
            "tokenizer has no token for its end. help: mark the assistant's text in the template with "
            "{%% generation %%}");
  return -1;
}

static bool set_loss(const Reading *r, const struct pd_mark *mark, const int32_t *tokens, char *loss) {
  const int from = r->c->loss_on == LOSS_LAST_TURN && r->n_turns ? r->n_turns - 1 : 0;
  for (int i = from; i < r->n_turns; i++) {
    const int64_t end = end_of_turn(r, &r->turn[i], mark + 2 * i, tokens);
    if (end < 0)
      return false;
    for (int64_t k = mark[2 * i].ended; k < end && r->turn[i].counts; k++)
      loss[k] = 1;
  }
  return true;
}

/* Encodes the text. A text that is not a chat gets the tokenizer's prefix and its end. */
static bool encode_text(Reading *r, Part *p) {
  const ChatReader *c = r->c;
  const bool chat = r->messages.kind == PD_LIST;
  struct pd_mark *mark = marks_of(r);
  const int32_t *prefix;
  int32_t *tokens;
  const int n_prefix = chat ? 0 : pd_tokenizer_prefix(c->tokenizer, &prefix);
  const int64_t n =
      pd_tokenizer_encode_marked(c->tokenizer, r->text.at, r->text.n, mark, 2 * r->n_turns, &tokens, r->why);
  if (n < 0)
    return false;
  if (!chat && c->end == END_NEEDED) {
    free(tokens);
    return pd_refuse(r->why, "bytes have no end of text: --end 10 ends each text with a newline, --end none with "
                             "nothing");
  }
  const bool ends = !chat && c->end >= 0;
  p->n = n_prefix + n + ends;
  p->tokens = malloc(sizeof *tokens * (size_t)(p->n + 1));
  p->loss = calloc((size_t)p->n + 1, 1);
  ensure(p->tokens && p->loss);
  for (int i = 0; i < n_prefix; i++)
    p->tokens[i] = prefix[i];
  memcpy(p->tokens + n_prefix, tokens, sizeof *tokens * (size_t)n);
  if (ends)
    p->tokens[p->n - 1] = c->end;
  const bool good = set_loss(r, mark, tokens, p->loss + n_prefix);
  if (ends)
    p->loss[p->n - 1] = 1;
  if (c->loss_on == LOSS_ALL)
    memset(p->loss, 1, (size_t)p->n);
  free(tokens);
  return good;
}

bool sample_of_line(const ChatReader *c, Part *p, char *why) {
  Reading r = {.c = c, .line.kind = PD_UNDEFINED, .messages.kind = PD_UNDEFINED, .why = why};
  const char *at = p->at;
  while (at < p->at + p->bytes && memchr(" \t\r", *at, 3))
    at++;
  if (at == p->at + p->bytes)
    return true;
  const bool good = pd_json_parse(&r.arena, p->at, p->bytes, &r.line, why) && read_line(&r) &&
                    (r.messages.kind != PD_LIST || render_messages(&r)) && encode_text(&r, p);
  p->bytes = good ? r.text.n : 0;
  p->beyond = r.beyond;
  pd_arena_free(&r.arena);
  return good;
}
