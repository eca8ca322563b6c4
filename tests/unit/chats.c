/* pdc tokenize --length: the text of chat templates and the rows of samples equal transformers' (tests/chats). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "shared/crc32.h"
#include "template/template.h"
#include "tokenize/tokenize.h"
#include "tokens/tokenizer.h"

static char folder[] = "/tmp/pdc_chats_XXXXXX";

static const char *in_folder(const char *name) { return format("%s/%s", folder, name); }

static const char *written(const char *name, const char *text) {
  const char *path = in_folder(name);
  assert_true(write_file(path, text, strlen(text)));
  return path;
}

static struct pd_value json(struct pd_arena *a, const char *path) {
  struct pd_value v = {.kind = PD_UNDEFINED};
  char why[PD_WHY] = "";
  size_t bytes;
  const char *text = read_file(path, &bytes);
  if (!text || !pd_json_parse(a, text, bytes, &v, why))
    fail_msg("%s: %s", path, why);
  return v;
}

static const char *zero_ended(struct pd_text t) { return format("%.*s", (int)t.n, t.at); }

/* ---- templates ----------------------------------------------------------------------------------- */

static void spans_equal(const struct pd_value *want, const struct pd_rendered *got) {
  assert_int_equal(got->n_spans, want->list->n);
  for (int i = 0; i < got->n_spans; i++) {
    assert_int_equal(got->span[i].begin, want->list->at[i].list->at[0].whole);
    assert_int_equal(got->span[i].end, want->list->at[i].list->at[1].whole);
  }
}

/* A line of templates.cases. */
static void renders_case(const struct pd_value *c, const struct pd_value *context, struct pd_arena *a) {
  const struct pd_value *text = pd_member(c, "text"), *own = pd_member(c, "context");
  const struct pd_text source = pd_member(c, "template")->text;
  struct pd_rendered got;
  char why[PD_WHY] = "";
  struct pd_template *t = pd_template_parse(source.at, source.n, why);
  const bool rendered = t && pd_template_render(t, own ? own : context, a, &got, why);
  if (rendered != (text != NULL))
    fail_msg("%s\n%s", zero_ended(source), rendered ? "is not refused" : why);
  if (!text && strncmp(why, "line 1: ", 8))
    fail_msg("'%s' has no line", why);
  if (text && (got.text.n != text->text.n || memcmp(got.text.at, text->text.at, got.text.n)))
    fail_msg("%s\ngives %s\nnot %s", zero_ended(source), zero_ended(got.text), zero_ended(text->text));
  if (text)
    spans_equal(pd_member(c, "spans"), &got);
  pd_template_close(t);
}

static void texts_equal_transformers(void **state) {
  (void)state;
  struct pd_arena a = {0};
  size_t bytes;
  const struct pd_value context = json(&a, "tests/chats/templates.context");
  char *cases = read_file("tests/chats/templates.cases", &bytes), *end;
  int n = 0;
  for (char *at = cases; *at; at = end + 1, n++) {
    struct pd_value c;
    char why[PD_WHY] = "";
    end = strchr(at, '\n');
    if (!pd_json_parse(&a, at, (size_t)(end - at), &c, why))
      fail_msg("%s", why);
    renders_case(&c, &context, &a);
  }
  assert_true(n > 60);
  pd_arena_free(&a);
}

static void refuses_template(const char *text, const char *expected) {
  struct pd_arena a = {0};
  struct pd_rendered got;
  char why[PD_WHY] = "";
  const struct pd_value context = pd_value_dict(&a);
  struct pd_template *t = pd_template_parse(text, strlen(text), why);
  if (t && pd_template_render(t, &context, &a, &got, why))
    fail_msg("%s gives %s", text, zero_ended(got.text));
  if (!strstr(why, expected))
    fail_msg("'%s' is not about '%s'", why, expected);
  pd_template_close(t);
  pd_arena_free(&a);
}

static void refuses_other_constructs(void **state) {
  (void)state;
  refuses_template("a\n{% include 'x' %}", "line 2: this statement is not supported: include");
  refuses_template("{{ x | urlize }}", "line 1: this filter is not supported: urlize");
  refuses_template("{{ x is escaped }}", "line 1: this test is not supported: escaped");
  refuses_template("\n\n{{ x.format(1) }}", "line 3: this method is not supported: format");
  refuses_template("{{ list.append(1) }}", "this method is not supported: append");
  refuses_template("{{ 2 ** 3 }}", "this operator is not supported: **");
  refuses_template("{{ '%s' % 'x' }}", "'%' is not supported between a text and a text");
  refuses_template("{% for x in y recursive %}{% endfor %}", "recursive loops");
  refuses_template("{% set a, b = 1, 2 %}", "setting several variables");
  refuses_template("\n{{ strftime_now('%d') }}", "line 2: strftime_now is not supported");
  refuses_template("{{ f(*x) }}", "argument lists with *");
  refuses_template("{{ '\\N{DASH}' }}", "this escape is not supported");
  refuses_template("{{ 'É' | lower }}", "only in ASCII texts");
  refuses_template("{% if x %}\n", "line 1: the template ends where endif is expected");
  refuses_template("{{ x", "line 1: this tag does not end");
  refuses_template("{# x", "line 1: this comment does not end");
  refuses_template("{{ 'x' | safe + 'y' }}", "filter 'safe'");
  refuses_template("{% for x in [1] %}\n{{ loop.deep }}{% endfor %}",
                   "line 2: this member of loop is not supported: deep");
  refuses_template("{{ cycler('a', 'b') }}", "this function is not supported: cycler");
  refuses_template("{% set j = joiner() %}", "this function is not supported: joiner");
  refuses_template("{{ lipsum }}", "this function is not supported: lipsum");
  refuses_template("{% break %}", "there is no loop around break");
  refuses_template("{% macro f() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ f() }}", "in a macro");
}

/* Endless and large work ends. */
static void limits_hold(void **state) {
  (void)state;
  char *deep = alloc(200004);
  memset(deep, '(', 100000);
  memset(deep + 100000, ')', 99998);
  memcpy(deep, "{{", 2);
  memcpy(deep + 199998, "}}", 3);
  refuses_template(deep, "nested too deeply");
  refuses_template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply");
  refuses_template("{{ 'abcdefgh' * 100000000 }}", "longer than 64 MiB");
  refuses_template("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
                   "takes more than");
  refuses_template("{% for a in range(200000) %}{% endfor %}", "more than 100000 numbers");
  refuses_template(
      "{% set ns = namespace(x='ab') %}{% for a in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "MiB");
}

/* ---- rows ----------------------------------------------------------------------------------------- */

/* The arrays of an archive as tokenize() writes it: local headers of zip, each with the array's. */
static void array_equals(const char *file, size_t size, int array, const struct pd_value *want, int64_t length,
                         const char *name) {
  static const size_t before[] = {30 + 10 + 20, 30 + 8 + 20, 30 + 13 + 20, 30 + 13 + 20}; /* with names */
  enum { NPY = 128 };
  const size_t bytes = (size_t)(want->list->n * length) * 4;
  size_t at = before[0];
  for (int i = 0; i < array; i++)
    at += NPY + bytes + before[i + 1];
  uint32_t sum;
  assert_true(size > at + NPY + bytes);
  memcpy(&sum, file + at - before[array] + 14, sizeof sum);
  assert_int_equal(sum, pd_crc32(0, file + at, NPY + bytes));
  assert_non_null(strstr(file + at + 10, format("'shape': (%d, %d)", (int)want->list->n, (int)length)));
  for (int64_t r = 0; r < want->list->n; r++)
    for (int64_t i = 0; i < length; i++) {
      int32_t is;
      memcpy(&is, file + at + NPY + (size_t)(r * length + i) * 4, sizeof is);
      if (is != want->list->at[r].list->at[i].whole)
        fail_msg("%s: row %d, position %d of array %d is %d, not %d", name, (int)r, (int)i, array, is,
                 (int)want->list->at[r].list->at[i].whole);
    }
}

static int chosen(const struct pd_value *c, const char *member, const char *const *names) {
  for (int i = 0; names[i]; i++)
    if (pd_text_is(pd_member(c, member)->text, names[i]))
      return i;
  fail_msg("%s", member);
  return 0;
}

static void rows_equal_transformers(void **state) {
  (void)state;
  static const char *const losses[] = {"assistant", "completion", "all", NULL}, *const too_long[] = {"error",
                                                                                                     "skip",
                                                                                                     "truncate",
                                                                                                     NULL};
  struct pd_arena a = {0};
  const char *file = "tests/chats/chats.jsonl", *output = in_folder("rows.npz");
  const struct pd_value cases = json(&a, "tests/chats/rows.json");
  for (int64_t i = 0; i < cases.list->n; i++) {
    const struct pd_value *c = &cases.list->at[i];
    const char *template = written("template.jinja", zero_ended(pd_member(c, "template")->text));
    const int64_t length = pd_member(c, "length")->whole;
    for (int threads = 1; threads <= 3; threads += 2) {
      size_t size;
      assert_true(tokenize(&(TokenizeRequest){.tokenizer = "tests/chats/tokenizer",
                                              .files = &file,
                                              .n_files = 1,
                                              .output = output,
                                              .length = length,
                                              .template = i ? template : NULL,
                                              .loss_on = chosen(c, "loss_on", losses),
                                              .too_long = chosen(c, "too_long", too_long),
                                              .pack = pd_member(c, "pack")->truth,
                                              .threads = threads,
                                              .quiet = true}));
      const char *archive = read_file(output, &size), *name = zero_ended(pd_member(c, "name")->text);
      array_equals(archive, size, 0, pd_member(c, "tokens"), length, name);
      array_equals(archive, size, 1, pd_member(c, "next"), length, name);
      if (pd_member(c, "pack")->truth) {
        array_equals(archive, size, 2, pd_member(c, "documents"), length, name);
        array_equals(archive, size, 3, pd_member(c, "positions"), length, name);
      }
    }
  }
  pd_arena_free(&a);
}

/* Tokens at every place between characters, by the library's offsets. */
static void marks_equal_offsets(void **state) {
  (void)state;
  struct pd_arena a = {0};
  const struct pd_value cases = json(&a, "tests/chats/marks.json");
  for (int64_t i = 0; i < cases.list->n; i++) {
    const struct pd_value *c = &cases.list->at[i];
    const struct pd_list *want = pd_member(c, "marks")->list;
    const struct pd_text text = pd_member(c, "text")->text;
    struct pd_mark *mark = alloc(sizeof *mark * (size_t)want->n);
    char why[PD_WHY] = "", *path = format("tests/tokens/%s.json", zero_ended(pd_member(c, "tokenizer")->text));
    int32_t *tokens;
    struct pd_tokenizer *t = pd_tokenizer_open(&path, 1, 1 << 20, why);
    for (int64_t k = 0; k < want->n; k++)
      mark[k].at = (size_t)want->at[k].list->at[0].whole;
    assert_true(t && pd_tokenizer_encode_marked(t, text.at, text.n, mark, (int)want->n, &tokens, why) > 0);
    for (int64_t k = 0; k < want->n; k++)
      if (mark[k].ended != want->at[k].list->at[1].whole || mark[k].begun != want->at[k].list->at[2].whole)
        fail_msg("%s, '%s' at %d: %d tokens end and %d begin", path, zero_ended(text), (int)mark[k].at,
                 (int)mark[k].ended, (int)mark[k].begun);
    free(tokens);
    pd_tokenizer_close(t);
  }
  pd_arena_free(&a);
}

static void keep_text(void *context, const Told *told) {
  *(const char **)context = format("%s %s", told->code, told->text);
}

static void refuses(TokenizeRequest request, const char *line, const char *expected) {
  const char *said = "", *file = written("refused.jsonl", line);
  request.files = &file, request.n_files = 1, request.quiet = true;
  request.length = request.length ? request.length : 64;
  request.output = request.output ? request.output : in_folder("refused.npz");
  assert_false(tokenize(&request));
  diagnostics_tell(keep_text, &said);
  diagnostics_flush();
  if (strncmp(said, "PD0660 ", 7) || !strstr(said, expected))
    fail_msg("'%s' is not about '%s'", said, expected);
  assert_int_equal(access(request.output, F_OK), -1);
  assert_int_equal(access(format("%s.next", request.output), F_OK), -1);
}

/* A template that exceeds a limit for the content "many". */
#define MANY                                                                                                             \
  "{% for m in messages %}<{{ m.role }}>{{ m.content * 100000000 if m.content == 'many' else m.content }}\n{% endfor %}" \
  "{% if add_generation_prompt %}<assistant>{% endif %}"

static void refuses_lines(void **state) {
  (void)state;
  const TokenizeRequest bytes = {.template = "chatml", .end = "none"};
  const char *chat =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}";
  TokenizeRequest other = bytes;
  refuses(bytes, "{\"body\": 1}",
          "line 1: it has none of the members 'messages', 'conversations', 'prompt', "
          "'instruction' and 'text', but 'body'");
  refuses(bytes, "[]", "it has none of the members");
  refuses(bytes, "\n{\"text\": \"a\"", "line 2: it is not JSON at offset 12");
  refuses(bytes, "{\"text\": \"\\ud800\"}", "an escape in a text is not a character");
  refuses(bytes, "{\"text\": 1}", "its member 'text' is not a text");
  refuses(bytes, "{\"messages\": {}}", "'messages' is not a list of messages");
  refuses(bytes, "{\"messages\": [{\"content\": \"\"}]}", "message 1 of 'messages' has no text 'role'");
  refuses(bytes, "{\"messages\": [{\"role\": \"user\", \"name\": \"n\"}]}",
          "message 1 of 'messages' has no 'content'");
  refuses(bytes, "{\"conversations\": [{\"from\": \"human\"}]}", "message 1 of 'conversations' has no texts");
  refuses(bytes, "{\"prompt\": \"a\"}", "its member 'completion' is not a text");
  refuses(bytes, "{\"instruction\": \"a\"}", "its member 'output' is not a text");
  refuses(bytes, "{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}",
          "no sample has a token with loss: 1 sample was read");
  refuses(bytes, "\n \n", "the files hold no samples");
  refuses((TokenizeRequest){.template = "chatml"}, "{\"text\": \"a\"}", "bytes have no end of text");
  refuses((TokenizeRequest){.template = "chatml", .pack = true}, chat, "--pack needs a token between samples");
  refuses((TokenizeRequest){.end = "none"}, chat, "has no chat template. help: name one with --chat-template");
  refuses((TokenizeRequest){.template = "chatlm", .end = "none"}, chat,
          "nor one of chatml, gemma, llama3, mistral, mistral-tekken");
  other.template = written("bad.jinja", "{{ raise_exception('no users') }}");
  refuses(other, chat, "line 1: the chat template, line 1: the template refuses this chat: no users");
  other.template = written("bad.jinja", "a\n{% import 'x' %}");
  refuses(other, chat, "bad.jinja': line 2: this statement is not supported: import");
  other.template =
      written("bad.jinja", "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}");
  refuses(other, chat, "renders message 2 in another way when messages follow, or the messages before");
  other = bytes, other.length = 8;
  refuses(other, chat, "1 of 1 sample is longer than the 9 tokens that --length 8 takes; the longest has 63 (");
  other.too_long = LONG_SKIP;
  refuses(other, format("%s\n%s", chat, chat),
          "2 of 2 samples are longer than 9 tokens and left out, the longest has 63 tokens (");
  refuses(other, chat, "1 of 1 sample is longer than 9 tokens and left out, the longest has 63 tokens (");
  other.length = 64;
  other.template = written("bad.jinja", MANY);
  refuses(
      other, "{\"messages\": [{\"role\": \"user\", \"content\": \"many\"}]}",
      "no sample has a token with loss: 1 sample was read; 1 of 1 sample was left out, because the template exceeds a limit");
  other = bytes, other.template = written("bad.jinja", MANY);
  refuses(other, "{\"messages\": [{\"role\": \"user\", \"content\": \"many\"}]}",
          "the text is longer than 64 MiB");
  other = bytes, other.output = in_folder("refused.bin");
  refuses(other, chat, "a file of samples ends with .npz");
  other = bytes, other.length = INT64_MAX;
  refuses(other, chat, "positions are supported");
}

/* The output of pdc data --show, or its diagnostic. */
static const char *shown(const char *path, const char *tokenizer) {
  char *text = NULL;
  const char *said = "";
  size_t n;
  FILE *out = open_memstream(&text, &n);
  assert_non_null(out);
  DataView v;
  const bool good = data_view(&v, path, tokenizer, NULL);
  if (good)
    data_print(&v, out);
  fclose(out);
  diagnostics_tell(keep_text, &said);
  diagnostics_flush();
  const char *copy = good ? format("%s", text) : said;
  free(text);
  return copy;
}

static void holds(const char *text, const char *part) {
  if (!strstr(text, part))
    fail_msg("'%s' is not in:\n%s", part, text);
}

/* A tokenizer's folder with these files; NULL: absent. */
static const char *tokenizer_folder(const char *name, const char *config, const char *map) {
  size_t bytes;
  const char *text = read_file("tests/chats/tokenizer/tokenizer.json", &bytes);
  assert_true(text && mkdir(in_folder(name), 0777) == 0);
  written(format("%s/tokenizer.json", name), text);
  if (config)
    written(format("%s/tokenizer_config.json", name), config);
  if (map)
    written(format("%s/special_tokens_map.json", name), map);
  return in_folder(name);
}

/* Tokens of a chat by the folder's template, in a row of 8. */
static void folder_gives(const char *tokenizer, const char *line, const char *expected) {
  const char *file = written("given.jsonl", line), *output = in_folder("given.npz");
  assert_true(tokenize(&(TokenizeRequest){
      .tokenizer = tokenizer, .files = &file, .n_files = 1, .output = output, .length = 64, .quiet = true}));
  holds(shown(output, tokenizer), expected);
}

/* Sizes and numbers outside of int64 are read; a file that is not is refused. */
static void folders_are_read(void **state) {
  (void)state;
#define TEMPLATE \
  "\"chat_template\": \"{{ bos_token }}{{ messages[0].content }}{{ tools | tojson }}{% generation %}a{{ eos_token }}{% endgeneration %}\""
  const char *line = "{\"id\": 12345678901234567890, \"messages\": [{\"role\": \"user\", \"content\": \"b\"}], "
                     "\"tools\": [12345678901234567890, -1e400]}",
             *text = "  <|im_start|>b[12345678901234567890, -Infinity][[a<|im_end|>]]";
  const TokenizeRequest bytes = {.end = "none"};
  TokenizeRequest other = bytes;
  folder_gives(tokenizer_folder("large",
                                "{\"model_max_length\": 1000000000000000019884624838656, " TEMPLATE
                                ", \"bos_token\": \"<|im_start|>\", \"eos_token\": \"<|im_end|>\"}",
                                NULL),
               line, text);
  folder_gives(tokenizer_folder("map", "{\"bos_token\": \"<|im_start|>\", \"eos_token\": null, " TEMPLATE "}",
                                "{\"bos_token\": \"<pad>\", \"eos_token\": {\"content\": \"<|im_end|>\"}}"),
               line, text);
  other.tokenizer = tokenizer_folder("broken", "{\"eos_token\": \"<|im_end|>\",}", NULL);
  refuses(other, line, "broken/tokenizer_config.json': it is not JSON at offset 27");
  other.tokenizer = tokenizer_folder("empty", "", NULL);
  refuses(other, line, "empty/tokenizer_config.json': it is empty");
  other.tokenizer = tokenizer_folder("list", "[]", NULL);
  refuses(other, line, "list/tokenizer_config.json' is not a JSON object");
  other.tokenizer = tokenizer_folder("directory", NULL, NULL);
  assert_int_equal(mkdir(in_folder("directory/tokenizer_config.json"), 0777), 0);
  refuses(other, line, "directory/tokenizer_config.json': it is not a regular file");
  other.tokenizer = tokenizer_folder("cut", "{}", "{\"bos_token\"");
  refuses(other, line, "cut/special_tokens_map.json': it is not JSON at offset 12");
}

/* Limits are those of one rendering, and a sample that exceeds one is skipped. */
static void long_chats_are_read(void **state) {
  (void)state;
  char *line = NULL;
  size_t n;
  FILE *out = open_memstream(&line, &n);
  assert_non_null(out);
  fprintf(out, "{\"messages\": [{\"role\": \"user\", \"content\": \"many\"}]}\n{\"messages\": [");
  for (int i = 0; i < 1000; i++)
    fprintf(out, "%s{\"role\": \"%s\", \"content\": \"%s\"}", i ? ", " : "", i % 2 ? "assistant" : "user",
            i % 2 ? "abcdefghijklmnopqrst" : "what");
  fprintf(out, "]}\n");
  fclose(out);
  const char *file = written("long.jsonl", line), *output = in_folder("long.npz");
  assert_true(tokenize(&(TokenizeRequest){.files = &file,
                                          .n_files = 1,
                                          .output = output,
                                          .length = 25000,
                                          .end = "none",
                                          .template = written("many.jinja", MANY),
                                          .too_long = LONG_SKIP,
                                          .quiet = true}));
  /* 500 answers of 21 tokens with loss, of 25000 positions */
  holds(shown(output, NULL), ": 1 row of 25000 positions");
  holds(shown(output, NULL), "42.0 % with loss");
  free(line);
}

/* OpenAI's `weight`: 0 takes the loss of a turn. */
static void weights_are_read(void **state) {
  (void)state;
  const char *pattern =
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\", \"weight\": 7}, "
      "{\"role\": \"assistant\", \"content\": \"b\", \"weight\": %s}, "
      "{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"%s}]}";
#define LAST "<|im_start|>assistant\n  [[d<|im_end|>]]"
  const char *first = "  <|im_start|>assistant\n  b<|im_end|>";
  struct pd_arena a = {0};
  const struct pd_value cases = json(&a, "tests/chats/rows.json");
  const char *marked = NULL;
  for (int64_t i = 0; i < cases.list->n && !marked; i++)
    if (strstr(zero_ended(pd_member(&cases.list->at[i], "template")->text), "{% generation %}"))
      marked = zero_ended(pd_member(&cases.list->at[i], "template")->text);
  assert_non_null(marked);
  const char *templates[] = {"chatml", written("marked.jinja", marked)};
  for (int i = 0; i < 2; i++) {
    const char *file = written("weights.jsonl", format(pattern, "0", "")), *output = in_folder("weights.npz"),
               *tokenizer = "tests/chats/tokenizer";
    TokenizeRequest request = {.tokenizer = tokenizer,
                               .files = &file,
                               .n_files = 1,
                               .output = output,
                               .length = 64,
                               .template = templates[i],
                               .quiet = true};
    assert_true(tokenize(&request));
    holds(shown(output, tokenizer), first);
    holds(shown(output, tokenizer), LAST);
    file = written("weights.jsonl", format(pattern, "1", ", \"weight\": null"));
    assert_true(tokenize(&request));
    holds(shown(output, tokenizer), "  <|im_start|>assistant\n  [[b<|im_end|>]]");
    request.output = NULL;
    refuses(request, format(pattern, "0", ", \"weight\": 0"), "no sample has a token with loss");
    refuses(request, format(pattern, "0.5", ""), "the weight of message 2 is neither 0 nor 1");
    refuses(request, format(pattern, "true", ""), "the weight of message 2 is neither 0 nor 1");
  }
  TokenizeRequest other = {.end = "none"};
  other.template = written("one.jinja", "{% generation %}{{ messages | length }}{% endgeneration %}");
  refuses(other, format(pattern, "0", ""), "has 1 generation block for 2 messages of the assistant");
  pd_arena_free(&a);
}

/* A line of named.cases is also the variables of its template. */
static void renders_named(const char *line, size_t n, struct pd_arena *a) {
  struct pd_value c;
  struct pd_rendered got;
  char why[PD_WHY] = "";
  if (!pd_json_parse(a, line, n, &c, why))
    fail_msg("%s", why);
  const char *name = zero_ended(pd_member(&c, "name")->text), *source = pd_template_named(name);
  assert_non_null(source);
  assert_non_null(strstr(pd_template_names(), name));
  struct pd_template *t = pd_template_parse(source, strlen(source), why);
  if (!t || !pd_template_render(t, &c, a, &got, why))
    fail_msg("%s: %s\n%.*s", name, why, (int)n, line);
  const struct pd_text want = pd_member(&c, "text")->text;
  if (got.text.n != want.n || memcmp(got.text.at, want.at, want.n))
    fail_msg("%s gives %s\nnot %s\nof %s", name, zero_ended(got.text), zero_ended(want),
             zero_ended(pd_member(&c, "model")->text));
  pd_template_close(t);
}

/* The own templates give the texts of published templates (make_named.py). */
static void own_templates(void **state) {
  (void)state;
  struct pd_arena a = {0};
  size_t bytes;
  int n = 0;
  char *cases = read_file("tests/chats/named.cases", &bytes);
  for (char *at = cases, *end; *at; at = end + 1, n++) {
    end = strchr(at, '\n');
    renders_named(at, (size_t)(end - at), &a);
  }
  assert_true(n > 120);
  assert_null(pd_template_named("alpaca"));
  pd_arena_free(&a);
}

static void named_refuses(const char *name, const char *messages, const char *expected) {
  struct pd_arena a = {0};
  struct pd_value context;
  struct pd_rendered got;
  char why[PD_WHY] = "";
  const char *text = pd_template_named(name), *variables = format("{\"messages\": [%s]}", messages);
  assert_true(pd_json_parse(&a, variables, strlen(variables), &context, why));
  struct pd_template *t = pd_template_parse(text, strlen(text), why);
  assert_non_null(t);
  if (pd_template_render(t, &context, &a, &got, why))
    fail_msg("%s gives %s", name, zero_ended(got.text));
  holds(why, expected);
  pd_template_close(t);
  pd_arena_free(&a);
}

/* No content is lost, and no list of parts becomes a text of its own. */
static void own_templates_refuse(void **state) {
  (void)state;
  static const char *const names[] = {"gemma",  "mistral", "mistral-v3", "mistral-tekken",
                                      "chatml", "llama3",  "phi3",       "phi4"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *said = "{\"role\": \"user\", \"content\": \"U\"}, ";
    if (i < 4)
      named_refuses(names[i], "{\"role\": \"system\", \"content\": \"S\"}",
                    "no message of the user follows the system message");
    named_refuses(names[i], format("%s{\"role\": \"assistant\", \"content\": null, \"tool_calls\": []}", said),
                  "the content of message 2 is not a text");
    named_refuses(names[i], "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"U\"}]}",
                  "the content of message 1 is not a text");
  }
}

static void shows_samples(void **state) {
  (void)state;
  struct pd_arena a = {0};
  const char *file = "tests/chats/chats.jsonl", *output = in_folder("shown.npz"),
             *tokenizer = "tests/chats/tokenizer";
  assert_true(tokenize(&(TokenizeRequest){
      .tokenizer = tokenizer, .files = &file, .n_files = 1, .output = output, .length = 160, .quiet = true}));
  const struct pd_value cases = json(&a, "tests/chats/rows.json");
  const struct pd_list *tokens = pd_member(&cases.list->at[0], "tokens")->list,
                       *next = pd_member(&cases.list->at[0], "next")->list;
  int64_t counted = 0, padding = 0, pad = 3;
  for (int64_t r = 0; r < tokens->n; r++)
    for (int i = 0; i < 160; i++) {
      counted += next->at[r].list->at[i].whole >= 0;
      padding += tokens->at[r].list->at[i].whole == pad;
    }
  const double positions = 160.0 * (double)tokens->n;
  const char *text = shown(output, tokenizer);
  holds(text, format(": %d rows of 160 positions, tokens 0 to ", (int)tokens->n));
  holds(text, format("\n%.1f %% with loss, %.1f %% padding\n", 100.0 * (double)counted / positions,
                     100.0 * (double)padding / positions));
  holds(text, "\nrow 0:\n  <|im_start|>system\n  You are the answer.<|im_end|>\n");
  holds(text, "  <|im_start|>assistant\n  [[<think>\n  of what\n  </think>\n  \n  4\n  <|im_end|>]]\n");
  holds(text, "\nrow 7:\n  he[[llo and the answer is 42<|endoftext|>]]\n");
  /* characters that terminals interpret */
  const char *controls =
                 written("controls.jsonl", "{\"text\": \"\\u001b \\u0085\\u009b \\u202e\\u2066 \\u2065\\u00a0\"}"),
             *named = in_folder("a\xc2\x9b"
                                "b\xe2\x80\xae.npz");
  assert_true(tokenize(&(TokenizeRequest){
      .files = &controls, .n_files = 1, .output = named, .end = "none", .length = 64, .quiet = true}));
  holds(shown(named, NULL), "/a?b?.npz: 1 row of");
  holds(shown(named, NULL), "\\x1b[[ \\xc2\\x85\\xc2\\x9b \\xe2\\x80\\xae\\xe2\\x81\\xa6 \xe2\x81\xa5\xc2\xa0");
  holds(shown(output, NULL), "PD0661 '");
  holds(shown(output, NULL), "and the tokenizer 256 tokens");
  holds(shown(written("none.bin", "text"), NULL), "is neither a .npz archive nor a file of tokens");
  holds(shown(written("cut.npz", "PK"), NULL), "is not a .npz archive");
  pd_arena_free(&a);
}

static int make_folder(void **state) {
  (void)state;
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  return system(format("rm -r '%s'", folder));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(texts_equal_transformers),
      cmocka_unit_test(refuses_other_constructs),
      cmocka_unit_test(limits_hold),
      cmocka_unit_test(folders_are_read),
      cmocka_unit_test(long_chats_are_read),
      cmocka_unit_test(weights_are_read),
      cmocka_unit_test(own_templates),
      cmocka_unit_test(own_templates_refuse),
      cmocka_unit_test(marks_equal_offsets),
      cmocka_unit_test(rows_equal_transformers),
      cmocka_unit_test(refuses_lines),
      cmocka_unit_test(shows_samples),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
