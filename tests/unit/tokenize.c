/* pdc tokenize: files have the tokens of whole documents, for every tokenizer and number of threads. */
#include "tokenize/tokenize.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "shared/why.h"
#include "tokens/parts.h"
#include "tokens/unicode.h"

enum { LARGE = 1500000, HEADER = 256 };
static char folder[] = "/tmp/pdc_tokenize_XXXXXX";
static const char *const tokenizers[] = {"tests/tokens/gpt2.vocab.json,tests/tokens/gpt2.merges.txt",
                                         "tests/tokens/llama3.json",
                                         "tests/tokens/qwen2.json",
                                         "tests/tokens/llama2.json",
                                         "tests/tokens/prefixed.json",
                                         NULL};
enum { N_TOKENIZERS = sizeof tokenizers / sizeof *tokenizers };

static const char *in_folder(const char *name) { return format("%s/%s", folder, name); }

static const char *written(const char *name, const char *text, size_t bytes) {
  const char *path = in_folder(name);
  assert_true(write_file(path, text, bytes));
  return path;
}

static const char *line_file(const char *name, const char *text) { return written(name, text, strlen(text)); }

static struct pd_tokenizer *opened(const char *name) {
  char why[PD_WHY] = "", *path[2] = {NULL, NULL};
  if (name) {
    const char *comma = strchr(name, ',');
    path[0] = comma ? format("%.*s", (int)(comma - name), name) : format("%s", name);
    path[1] = comma ? format("%s", comma + 1) : NULL;
  }
  struct pd_tokenizer *t = pd_tokenizer_open(path, !name ? 0 : path[1] ? 2 : 1, name ? 1 << 20 : 256, why);
  if (!t)
    fail_msg("%s", why);
  return t;
}

/* The tokens of a file written by tokenize(); *n: their number. */
static int32_t *tokens_of(const char *path, int64_t *n) {
  size_t size;
  char *file = read_file(path, &size);
  assert_non_null(file);
  int32_t header[HEADER];
  memcpy(header, file, sizeof header);
  const int bytes = header[0] == 20240520 ? 2 : 4;
  *n = header[2];
  assert_int_equal(size, sizeof header + (size_t)*n * (size_t)bytes);
  int32_t *tokens = alloc((size_t)*n * sizeof *tokens + 1);
  for (int64_t i = 0; i < *n; i++)
    memcpy(&tokens[i], file + sizeof header + i * bytes, (size_t)bytes);
  return tokens;
}

/* Lines of words, with all characters that might join a newline to its neighbours. */
static char *large_text(unsigned seed) {
  static const char *const words[] = {"the ", "a",    "\n",     "\n\n", " \n", "It's ", "12 ", "end.\n",
                                      "\r\n", "x\nY", "\n z",   "é",    "\t",  "!\n",   "?",   "--",
                                      "Zug",  " ",    "\nThe ", "'\ns", "\n7", "</s>"};
  char *text = alloc(LARGE + 16), *at = text;
  while (at < text + LARGE) {
    seed = seed * 1664525u + 1013904223u;
    at += sprintf(at, "%s", words[(seed >> 16) % (sizeof words / sizeof *words)]);
  }
  return text;
}

/* GPT-2's files with bytes and two merges: of newlines, and of a space with a newline. */
static const char *spaces_tokenizer(void) {
  Text vocabulary = {0};
  for (int byte = 0; byte < 256; byte++) {
    char character[4] = "";
    pd_utf8_write(pd_byte_character((unsigned char)byte), character);
    text_add(&vocabulary, "%s\"%s%s\": %d", byte ? ", " : "{", strchr("\"\\", byte) && byte ? "\\" : "", character,
             byte);
  }
  text_add(&vocabulary, ", \"\u010a\u010a\": 256, \"\u0120\u010a\": 257}");
  return format("%s,%s", line_file("vocab.json", vocabulary.at),
                line_file("merges.txt", "#version: 0.2\n\u010a \u010a\n\u0120 \u010a\n"));
}

static void parts_have_the_tokens_of_the_whole(void **state) {
  (void)state;
  char *text = large_text(1);
  const char *path = written("large.txt", text, strlen(text)), *output = in_folder("large.bin");
  for (int i = -1; i < N_TOKENIZERS; i++) {
    const char *tokenizer = i < 0 ? spaces_tokenizer() : tokenizers[i];
    struct pd_tokenizer *t = opened(tokenizer);
    const int32_t *prefix;
    const int n_prefix = pd_tokenizer_prefix(t, &prefix);
    int32_t *whole;
    char why[PD_WHY] = "";
    int64_t n = pd_tokenizer_encode(t, text, strlen(text), &whole, why), found;
    if (n < 0)
      fail_msg("%s: %s", tokenizer, why);
    for (int threads = 1; threads <= 3; threads += 2) { /* some thousand parts */
      assert_true(tokenize(&(TokenizeRequest){.tokenizer = tokenizer,
                                              .files = &path,
                                              .n_files = 1,
                                              .output = output,
                                              .end = "none",
                                              .threads = threads,
                                              .quiet = true}));
      int32_t *tokens = tokens_of(output, &found);
      assert_int_equal(found, n_prefix + n);
      assert_memory_equal(tokens, prefix, (size_t)n_prefix * sizeof *prefix);
      assert_memory_equal(tokens + n_prefix, whole, (size_t)n * sizeof *whole);
    }
    free(whole);
    pd_tokenizer_close(t);
  }
}

static void lines_are_documents(void **state) {
  (void)state;
  static const char lines[] =
      "{\"text\": \"a\\u00e9\\n\\\\u0000\", \"id\": 7}\n\n{\"id\": 8, \"text\": \"\"}\r\n{\"text\":\"b\"}";
  const char *path = written("lines.jsonl", lines, sizeof lines - 1), *output = in_folder("lines.bin");
  assert_true(
      tokenize(&(TokenizeRequest){.files = &path, .n_files = 1, .output = output, .end = "10", .quiet = true}));
  static const int32_t expected[] = {'a', 0xC3, 0xA9, '\n', '\\', 'u', '0', '0', '0', '0', '\n', 'b', '\n'};
  int64_t n;
  int32_t *tokens = tokens_of(output, &n);
  assert_int_equal(n, sizeof expected / sizeof *expected);
  assert_memory_equal(tokens, expected, sizeof expected);
}

static void documents_end_with_the_end_token(void **state) {
  (void)state;
  const char *path[] = {written("one.txt", "Hi", 2), written("two.txt", "Hi", 2)}, *output = in_folder("ends.bin");
  struct pd_tokenizer *t = opened(tokenizers[0]);
  const int32_t end = pd_tokenizer_token(t, "<|endoftext|>");
  assert_true(end >= 0);
  assert_int_equal(pd_tokenizer_end(t), end);
  pd_tokenizer_close(t);
  assert_true(tokenize(&(
      TokenizeRequest){.tokenizer = tokenizers[0], .files = path, .n_files = 2, .output = output, .quiet = true}));
  int64_t n;
  int32_t *tokens = tokens_of(output, &n);
  assert_true(n % 2 == 0);
  assert_int_equal(tokens[n / 2 - 1], end);
  assert_int_equal(tokens[n - 1], end);
  assert_memory_equal(tokens, tokens + n / 2, (size_t)n / 2 * sizeof *tokens);
}

static void shards_hold_all_in_order(void **state) {
  (void)state;
  char text[256];
  for (int i = 0; i < 255; i++)
    text[i] = (char)(i + 1);
  const char *path = written("bytes.txt", text, 255), *output = in_folder("shard.bin");
  assert_true(
      tokenize(&(TokenizeRequest){.files = &path, .n_files = 1, .output = output, .shard = 100, .quiet = true}));
  for (int file = 0, at = 0; file < 3; file++) {
    int64_t n;
    int32_t *tokens = tokens_of(in_folder(format("shard_%06d.bin", file)), &n);
    assert_int_equal(n, file < 2 ? 100 : 55);
    for (int64_t i = 0; i < n; i++, at++)
      assert_int_equal(tokens[i], (unsigned char)text[at]);
  }
}

static void keep_text(void *context, const Told *told) {
  *(const char **)context = format("%s %s", told->code, told->text);
}

static void refuses(const char *file, const char *tokenizer, const char *end, const char *expected) {
  const char *output = in_folder("refused.bin"), *said = "";
  assert_false(tokenize(&(TokenizeRequest){
      .files = &file, .n_files = 1, .output = output, .tokenizer = tokenizer, .end = end, .quiet = true}));
  diagnostics_tell(keep_text, &said);
  diagnostics_flush();
  if (strncmp(said, "PD0660 ", 7) || !strstr(said, expected))
    fail_msg("'%s' is not about '%s'", said, expected);
  assert_int_equal(access(output, F_OK), -1);
}

/* What stands at `output` stays. */
static void keeps(const char *output, int64_t shard, const char *file, const char *expected) {
  const char *said = "";
  size_t before, after;
  const char *was = read_file(output, &before);
  assert_false(tokenize(&(TokenizeRequest){.files = &file,
                                           .n_files = 1,
                                           .shard = shard,
                                           .quiet = true,
                                           .output = shard ? in_folder("kept.bin") : output}));
  diagnostics_tell(keep_text, &said);
  diagnostics_flush();
  if (!strstr(said, expected))
    fail_msg("'%s' is not about '%s'", said, expected);
  const char *is = read_file(output, &after);
  assert_true(was && is && before == after && !memcmp(was, is, before));
}

static void an_earlier_output_stays(void **state) {
  (void)state;
  const char *text = line_file("some.txt", "some text"), *cut = line_file("half.jsonl", "{\"text\": \"a\"}\n{");
  keeps(line_file("good.bin", "good"), 0, cut, "line 2: it is not JSON");
  keeps(line_file("self.bin", "self"), 0, in_folder("self.bin"), "is one of the texts");
  keeps(line_file("kept_000007.bin", "shard"), 4, text, "shard of an earlier call");
  assert_int_equal(access(in_folder("kept_000000.bin"), F_OK), -1);
  assert_int_equal(symlink("good.bin", in_folder("link.bin")), 0);
  keeps(in_folder("link.bin"), 0, text, "not a regular file");
}

static void refuses_what_is_no_text(void **state) {
  (void)state;
  refuses(in_folder("missing.txt"), NULL, NULL, "cannot read");
  refuses(folder, NULL, NULL, "not a regular file");
  refuses(written("zero.txt", "a\0b", 3), NULL, NULL, "zero byte at offset 1");
  refuses(line_file("no.jsonl", "{\"text\": \"a\"}\n{\"body\": \"b\"}\n"), NULL, NULL,
          "line 2: it has no member 'text', but 'body'");
  refuses(line_file("number.jsonl", "{\"text\": 5}"), NULL, NULL, "line 1: its member 'text' is not a text");
  refuses(line_file("list.jsonl", "[\"text\"]"), NULL, NULL,
          "line 1: element 0 of its list is not the number of a token");
  refuses(line_file("two.jsonl", "{\"text\": \"a\"} {\"text\": \"b\"}"), NULL, NULL,
          "line 1: it has more than one JSON object");
  refuses(line_file("glued.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}"), NULL, NULL,
          "there are several documents");
  refuses(line_file("whole.json", "{}"), NULL, NULL, "one object a line");
  refuses(line_file("a.txt", "a"), NULL, "999", "a number from 0 to 255");
  refuses(line_file("cut.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\n"), NULL, NULL, "line 2: it is not JSON");
  refuses(line_file("null.jsonl", "{\"text\": \"a\\u0000b\"}\n"), NULL, NULL, "zero character");
  refuses(line_file("blank.jsonl", "\n \n"), NULL, NULL, "hold no text");
  refuses(line_file("a.txt", "a"), in_folder("missing"), NULL, "cannot read");
  refuses(line_file("a.txt", "a"), tokenizers[0], "<none>", "no token '<none>'");
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
      cmocka_unit_test(parts_have_the_tokens_of_the_whole),
      cmocka_unit_test(lines_are_documents),
      cmocka_unit_test(documents_end_with_the_end_token),
      cmocka_unit_test(shards_hold_all_in_order),
      cmocka_unit_test(refuses_what_is_no_text),
      cmocka_unit_test(an_earlier_output_stays),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
