/* Encoding and decoding against what PyPI's tokenizers made of the same texts (make_tokenizers.py).
 *   tokenizers FOLDER */
#include "tokens/normal.h"
#include "tokens/parts.h"
#include "tokens/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 1 << 16, CLASSES = 600 };
static int failures;

static void complain(const char *name, int line, const char *what) {
  fprintf(stderr, "FAIL: %s, text %d: %s\n", name, line, what);
  failures++;
}

static size_t from_hex(const char *hex, size_t digits, char *to) {
  for (size_t i = 0; i < digits / 2; i++) {
    unsigned byte;
    sscanf(hex + 2 * i, "%2x", &byte);
    to[i] = (char)byte;
  }
  return digits / 2;
}

static bool is_utf8(const char *text, size_t n) {
  for (size_t i = 0; i < n;) {
    int bytes = pd_utf8_length((const unsigned char *)text + i, n - i);
    if (bytes <= 0) return false;
    i += (size_t)bytes;
  }
  return true;
}

/* All tokens, one after the other: every piece is of whole characters. */
static size_t decode(const struct pd_tokenizer *t, const int32_t *token, int64_t n, char *to, bool *whole) {
  struct pd_decoding d = {0};
  const char *text;
  size_t length = 0;
  *whole = true;
  for (int64_t i = 0; i <= n; i++) {
    size_t m = i < n ? pd_tokenizer_decode(t, &d, token[i], &text) : pd_tokenizer_decode_end(&d, &text);
    *whole &= is_utf8(text, m);
    memcpy(to + length, text, m);
    length += m;
  }
  return length;
}

/* A line of NAME.cases: "12 34<tab>=" or "12 34<tab>6162". */
static void check(const struct pd_tokenizer *t, const char *name, int number, const char *text, size_t bytes,
                  char *line) {
  static char wanted[LINE], got[4 * LINE];
  char why[PD_WHY] = "", *at = line;
  int32_t *tokens;
  int64_t n = pd_tokenizer_encode(t, text, bytes, &tokens, why), k = 0;
  if (n < 0) {
    complain(name, number, why);
    return;
  }
  for (; *at != '\t'; k++) {
    long token = strtol(at, &at, 10);
    if (k < n && tokens[k] != token) {
      fprintf(stderr, "token %lld is %d, not %ld\n", (long long)k, tokens[k], token);
      complain(name, number, "another token");
      n = -1;
    }
    at += *at == ' ';
  }
  if (n >= 0 && k != n) complain(name, number, "another number of tokens");
  at += 1;
  size_t length = strcspn(at, "\n");
  if (*at == '=') {
    memcpy(wanted, text, bytes);
    length = bytes;
  } else
    length = from_hex(at, length, wanted);
  bool whole;
  size_t m = decode(t, tokens, n, got, &whole);
  if (n >= 0 && (m != length || memcmp(got, wanted, m))) {
    fprintf(stderr, "got '%.*s', not '%.*s'\n", (int)m, got, (int)length, wanted);
    complain(name, number, "decoded to another text");
  }
  if (!whole) complain(name, number, "half of a character was given");
  free(tokens);
}

/* Bytes that are no UTF-8 come back as U+FFFD each, and as they were when no character is asked for. */
static void check_invalid(const struct pd_tokenizer *t, const char *name) {
  static const struct {
    const char *text, *back;
  } cases[] = {{"a\xff"
                "b",
                "a\xEF\xBF\xBD"
                "b"},
               {"\xE2\x82", "\xEF\xBF\xBD"},
               {"\xE2\x82x", "\xEF\xBF\xBDx"},
               {"\xC0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
               {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
               {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
               {"x\x80\x80 \xFEy", "x\xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBDy"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char why[PD_WHY], got[64], *start = got;
    int32_t *tokens;
    bool whole;
    int64_t n = pd_tokenizer_encode(t, cases[i].text, strlen(cases[i].text), &tokens, why);
    size_t m = n < 0 ? 0 : decode(t, tokens, n, got, &whole);
    if (!strcmp(name, "prefixed") && m && *got == ' ') start++, m--; /* it puts a space before every text */
    if (n < 0 || !whole || m != strlen(cases[i].back) || memcmp(start, cases[i].back, m))
      complain(name, (int)i, "bytes that are no UTF-8");
    if (n >= 0) free(tokens);
  }
}

static bool is_bert(const char *name) { return !strncmp(name, "bert", 4); }

/* ---- random texts ------------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252u;

static unsigned below(unsigned n) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (unsigned)((random_state >> 11) % n);
}

enum { MOST_PARTS = 200, MOST_PART = 16, RANDOM_TEXTS = 6000, BLOCK = 100 };
static char part[MOST_PARTS][MOST_PART];
static unsigned n_parts;

static void read_parts(const char *folder) {
  char line[512];
  snprintf(line, sizeof line, "%s/random.parts", folder);
  FILE *file = fopen(line, "r");
  while (file && fgets(line, sizeof line, file)) {
    size_t bytes = from_hex(line, strcspn(line, "\n"), part[n_parts]);
    part[n_parts++][bytes] = 0;
  }
  if (n_parts < 50) complain("random.parts", (int)n_parts, "the parts end here");
  if (file) fclose(file);
}

/* The next random text, as of make_tokenizers.py. */
static size_t random_text(char *to) {
  static const unsigned lengths[] = {1, 2, 3, 5, 8, 20, 50, 120};
  const unsigned length = lengths[below(8)], kind = below(4), kinds = kind < 3 ? 2u << kind : n_parts;
  unsigned chosen[MOST_PARTS];
  char *end = to;
  for (unsigned i = 0; i < kinds; i++) chosen[i] = below(n_parts);
  for (unsigned i = 0; i < length; i++) end = stpcpy(end, part[chosen[below(kinds)]]);
  return (size_t)(end - to);
}

/* The hash of each hundred random texts is that in random.cases. */
static void check_random(const struct pd_tokenizer *t, const char *folder, const char *name) {
  static char text[128 * MOST_PART], line[4096];
  char why[PD_WHY] = "", *at = line;
  bool found = false;
  snprintf(line, sizeof line, "%s/random.cases", folder);
  FILE *cases = fopen(line, "r");
  while (!found && cases && fgets(line, sizeof line, cases)) {
    at = strchr(line, ' ');
    found = at && (size_t)(at - line) == strlen(name) && !memcmp(line, name, strlen(name));
  }
  if (cases) fclose(cases);
  if (!found) complain(name, 0, "random.cases lacks it");
  random_state = 88172645463325252u;
  uint64_t hash = 0;
  for (int i = 0; i < RANDOM_TEXTS; i++) {
    int32_t *tokens;
    const int64_t n = pd_tokenizer_encode(t, text, random_text(text), &tokens, why);
    if (i % BLOCK == 0) hash = 0xCBF29CE484222325u;
    for (int64_t k = 0; k <= n; k++) hash = (hash ^ (k < n ? (uint32_t)tokens[k] : 0xFFFFFFFFu)) * 0x100000001B3u;
    if (n >= 0) free(tokens);
    if (i % BLOCK == BLOCK - 1 && strtoull(at, &at, 16) != hash) complain(name, i, "other tokens of random texts");
  }
}

static void check_all(const char *folder, const char *name, const char *const *files, int n_files) {
  static char line[LINE], hex[LINE], text[LINE];
  char paths[2][512], why[PD_WHY] = "", *at[2] = {paths[0], paths[1]};
  for (int i = 0; i < n_files; i++) snprintf(paths[i], sizeof paths[i], "%s/%s", folder, files[i]);
  struct pd_tokenizer *t = pd_tokenizer_open(at, n_files, CLASSES, why);
  if (!t) {
    complain(name, 0, why);
    return;
  }
  snprintf(line, sizeof line, "%s/texts", folder);
  FILE *texts = fopen(line, "r");
  snprintf(line, sizeof line, "%s/%s.cases", folder, name);
  FILE *cases = fopen(line, "r");
  int number = 0;
  while (texts && cases && fgets(hex, sizeof hex, texts) && fgets(line, sizeof line, cases)) {
    size_t bytes = from_hex(hex, strcspn(hex, "\n"), text);
    check(t, name, ++number, text, bytes, line);
  }
  if (number < 50) complain(name, number, "the cases end here");
  if (texts) fclose(texts);
  if (cases) fclose(cases);
  if (strcmp(name, "unknown") && strcmp(name, "always") && !is_bert(name) && strncmp(name, "t5", 2))
    check_invalid(t, name);
  static const char prefixed[] = "llama3 qwen2 llama2 tekken gemma first never always";
  const int32_t *prefix;
  if (pd_tokenizer_prefix(t, &prefix) != (strstr(prefixed, name) || is_bert(name)))
    complain(name, 0, "the tokens before a text");
  int32_t *end;
  if (!strcmp(name, "gpt2") &&
      (pd_tokenizer_encode(t, "<|endoftext|>", 13, &end, why) != 1 || !pd_tokenizer_ends(t, *end)))
    complain(name, 0, "the end of a text");
  check_random(t, folder, name);
  pd_tokenizer_close(t);
}

/* What is not known is refused by its name, and what is damaged by what is wrong. */
static void check_refused(void) {
#define SEVENTEEN "17 characters ..."
#define LONGER(x) "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" x "\"},\"content\":\"" SEVENTEEN "\"}"
#define PIECES \
  "\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0,\"##a\":1},\"continuing_subword_prefix\":\"##\""
#define SPLIT(pattern, behavior)                                                       \
  "{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern \
  "\"},\"behavior\":\"" behavior "\""
#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
  static const char *const cases[][2] = {
      {"", "not JSON"},
      {"[]", "the field model is missing"},
      {"{\"model\":{\"type\":\"WordLevel\"}}", "its model WordLevel is not supported"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "its token 0 is not a text with a score"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"a\",1]]}}", "'a' twice"},
      {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}}", "its unk_id is not a token"},
      {"{" MODEL ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"}}",
       "Precompiled with a damaged map"},
      {"{\"model\":{\"type\":\"Unigram\"}}", "it has no vocabulary"},
      {"{\"model\":{\"type\":\"WordPiece\"}}", "it has no continuing_subword_prefix"},
      {"{" PIECES ",\"unk_token\":\"?\"}}", "unk_token '?' is not in the vocabulary"},
      {"{" PIECES ",\"unk_token\":\"a\",\"max_input_chars_per_word\":1001}}",
       "words of more than 1000 characters"},
      {"{" PIECES ",\"unk_token\":\"a\"},\"decoder\":{\"type\":\"WordPiece\"}}",
       "its WordPiece has no BertPreTokenizer"},
      {"{" PIECES ",\"unk_token\":\"a\"},\"pre_tokenizer\":{\"type\":\"Whitespace\"}}",
       "Whitespace with WordPiece"},
      {"{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
       "{\"type\":\"BertNormalizer\"}]}}",
       "BertNormalizer with another step before it"},
      {"{\"model\":{\"type\":\"BPE\"}}", "no merges"},
      {"{\"model\":{\"vocab\":[],\"merges\":[]}}", "no vocabulary"},
      {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", "token 'a' has no number"},
      {"{\"model\":{\"vocab\":{\"a\":600},\"merges\":[]}}", "the number 600, but the model has 600 tokens"},
      {"{\"model\":{\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}",
       "its vocabulary has token 'b' or number 1 twice"},
      {"{\"model\":{\"vocab\":{\"a\":1,\"b\":2},\"merges\":[\"a b\"]}}", "merge 0"},
      {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[3]}}", "merge 0"},
      {"{\"model\":{\"vocab\":{},\"merges\":[],\"unk_token\":\"u\"}}", "unk_token 'u'"},
      {"{\"model\":{\"vocab\":{},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}", "end_of_word_suffix"},
      {"{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.1}}", "dropout"},
      {"{" MODEL "}", "no decoder"},
      {"{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", "its decoder CTC"},
      {"{" MODEL ",\"normalizer\":{\"type\":\"NFKC\"}}", "its normalizer NFKC is not supported"},
      {"{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" LONGER("a") "," LONGER("b") "]}}",
       "the steps of its normalizer lengthen a text by up to 289 times: the limit is 256"},
      {"{" MODEL ",\"normalizer\":" LONGER(
           "a") ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" SEVENTEEN "\"}}",
       "the steps of its pre_tokenizer lengthen a text by up to 289 times"},
      {"{" MODEL ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" LONGER("a") "," LONGER("b") "]}}",
       "the steps of its decoder lengthen a text by up to 289 times"},
      {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}", "its pre_tokenizer Whitespace is not supported"},
      {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x+\"}}}",
       "Split with this behavior"},
      {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\"}}", "Split with no pattern"},
      {SPLIT("x+", "Removed") ",\"invert\":true}}", "Split with a pattern that would remove characters"},
      {SPLIT("x+", "Removed") "}}", "Split with this behavior"},
      {SPLIT("x+(?<=y)", "Isolated") "}}", "Split with a group at byte 3 of its pattern"},
      {SPLIT("x?", "Isolated") "}}", "Split with a match of the empty text"},
      {SPLIT("x+?", "Isolated") "}}", "Split with a second operator at byte 2"},
      {SPLIT("\\\\bx", "Isolated") "}}", "Split with an escaped character at byte 1"},
      {SPLIT("\\\\p{Han}", "Isolated") "}}", "Split with a property other than a general category"},
      {SPLIT("[[:alpha:]]", "Isolated") "}}", "Split with a POSIX class"},
      {SPLIT("(?i:\xC3\x9F)", "Isolated") "}}", "Split with (?i: with characters outside ASCII"},
      {SPLIT("(?i:ss)", "Isolated") "}}", "Split with (?i: with letters of a ligature"},
      {SPLIT("(ab)+", "Isolated") "}}", "Split with an operator behind a group"},
      {SPLIT("(?!ab)c", "Isolated") "}}", "Split with more than one character to look at"},
      {SPLIT("a*a*b", "Isolated") "}}", "Split with an expression that can take too long"},
      {SPLIT("(a", "Isolated") "}}", "Split with a group without an end"},
      {SPLIT("[a", "Isolated") "}}", "Split with a set without an end"},
      {SPLIT("a)", "Isolated") "}}", "Split with ')' at byte 1"},
      {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
       "{\"type\":\"Digits\"}]}}",
       "Digits with another step before it"},
      {"{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\"}}", "BertProcessing with this cls"},
      {"{" MODEL ",\"added_tokens\":[{\"id\":2,\"content\":\"x\"}]}",
       "'x' has number 2, which contradicts the vocabulary"},
      {"{" MODEL ",\"added_tokens\":[{\"id\":9,\"content\":\"x\",\"single_word\":true}]}", "single_word"},
      {"{" MODEL ",\"added_tokens\":[{\"id\":700,\"content\":\"x\"}]}", "the number 700, but the model has 600"},
  };
#undef MODEL
#undef SPLIT
#undef PIECES
#undef LONGER
#undef SEVENTEEN
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char why[PD_WHY] = "";
    struct pd_tokenizer *t = pd_tokenizer_new();
    bool ok = pd_tokenizer_parse_json(t, cases[i][0], strlen(cases[i][0]), CLASSES, why);
    if (ok || !strstr(why, cases[i][1])) {
      fprintf(stderr, "%s: '%s' instead of '%s'\n", cases[i][0], why, cases[i][1]);
      complain("refused", (int)i, "another reason");
    }
    pd_tokenizer_close(t);
  }
}

/* Bytes need no files, and at least 256 tokens; a character that the vocabulary does not have is named. */
static void check_bytes(void) {
  static const char line[] = "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"decoder\":{\"type\":\"Fuse\"}}";
  char why[PD_WHY] = "";
  int32_t *tokens;
  if (pd_tokenizer_open(NULL, 0, 255, why) || !strstr(why, "fewer than the 256 bytes")) complain("bytes", 0, why);
  struct pd_tokenizer *t = pd_tokenizer_open(NULL, 0, 256, why);
  int64_t n = pd_tokenizer_encode(t, "a\xC3\xA9\xFF", 4, &tokens, why);
  if (n != 4 || tokens[1] != 0xC3 || tokens[3] != 0xFF || pd_tokenizer_ends(t, 0)) complain("bytes", 1, "tokens");
  free(tokens);
  check_invalid(t, "bytes");
  pd_tokenizer_close(t);
  t = pd_tokenizer_new();
  if (!pd_tokenizer_parse_json(t, line, sizeof line - 1, CLASSES, why)) complain("missing", 0, why);
  pd_tokenizer_complete(t);
  if (pd_tokenizer_encode(t, "a\xC3\xA9", 3, &tokens, why) != -1 || !strstr(why, "(bytes c3 a9)"))
    complain("missing", 1, why);
  pd_tokenizer_close(t);
}

/* ---- many added tokens, long runs of marks ------------------------------------------------------- */

/* With n added tokens, of which number i has the text that `content` writes. */
static struct pd_tokenizer *with_added(int n, void (*content)(int i, char *to)) {
  static const char head[] =
      "{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]},\"decoder\":{\"type\":\"Fuse\"},"
      "\"added_tokens\":[";
  char why[PD_WHY] = "", *text = pd_grown(NULL, sizeof head + 100 * (size_t)n + 8), *to = text;
  to += sprintf(to, "%s", head);
  for (int i = 0; i < n; i++) {
    char one[32];
    content(i, one);
    to += sprintf(to, "%s{\"id\":%d,\"content\":\"%s\",\"normalized\":%s}", i ? "," : "", i + 2, one,
                  i % 2 ? "true" : "false");
  }
  to += sprintf(to, "]}");
  struct pd_tokenizer *t = pd_tokenizer_new();
  if (!pd_tokenizer_parse_json(t, text, (size_t)(to - text), n + 2, why)) complain("added", n, why);
  pd_tokenizer_complete(t);
  free(text);
  return t;
}

static void random_content(int i, char *to) {
  (void)i;
  int n = 2 + (int)below(5);
  for (int k = 0; k < n; k++) *to++ = "ab"[below(2)];
  *to = 0;
}

static void numbered_content(int i, char *to) { sprintf(to, "<%d>", i); }

/* By looking at all, as it is defined. */
static const struct pd_added *longest(const struct pd_tokenizer *t, const char *text, size_t bytes,
                                      bool normalized) {
  const struct pd_added *found = NULL;
  size_t most = 0;
  for (int i = 0; i < t->n_added; i++) {
    const struct pd_added *a = &t->added[i];
    const char *s = normalized ? a->normalized : a->normalized ? NULL : a->content;
    size_t n = s ? strlen(s) : 0;
    if (n > most && n <= bytes && !memcmp(s, text, n)) most = n, found = a;
  }
  return found;
}

static void check_added(void) {
  for (int round = 0; round < 300; round++) {
    struct pd_tokenizer *t = with_added(1 + (int)below(12), random_content);
    char text[24];
    for (size_t i = 0; i < sizeof text; i++) text[i] = "ab\0"[below(40) ? below(2) : 2];
    for (size_t at = 0; at < sizeof text; at++)
      for (int normalized = 0; normalized < 2; normalized++)
        if (pd_added_at(t, text + at, sizeof text - at, normalized) !=
            longest(t, text + at, sizeof text - at, normalized))
          complain("added", round, "another token is found");
    pd_tokenizer_close(t);
  }
}

/* A letter with n marks below and above it in turn, of classes 220 and 230: those below come first. */
static void check_marks(int n) {
  size_t bytes = 1 + 2 * (size_t)n;
  char *text = pd_grown(NULL, bytes);
  text[0] = 'x';
  for (int i = 0; i < n; i++) memcpy(text + 1 + 2 * i, i % 2 ? "\xCC\xA3" : "\xCC\x8D", 2);
  char *composed = pd_composed(text, &bytes);
  bool good = bytes == 1 + 2 * (size_t)n;
  for (int i = 0; i < n && good; i++) good = !memcmp(composed + 1 + 2 * i, i < n / 2 ? "\xCC\xA3" : "\xCC\x8D", 2);
  if (!good) complain("marks", n, "another order");
  free(composed);
  free(text);
}

/* A text that is n of n added tokens. */
static void check_many_added(int n) {
  struct pd_tokenizer *t = with_added(n, numbered_content);
  char *text = pd_grown(NULL, 16 * (size_t)n), *to = text, why[PD_WHY] = "";
  for (int i = 0; i < n; i++) to += sprintf(to, "<%d>", n - 1 - i);
  int32_t *tokens;
  int64_t got = pd_tokenizer_encode(t, text, (size_t)(to - text), &tokens, why);
  bool good = got == n;
  for (int i = 0; i < n && good; i++) good = tokens[i] == n + 1 - i;
  if (!good) complain("added", n, "other tokens than those of the text");
  free(tokens);
  free(text);
  pd_tokenizer_close(t);
}

/* Characters of the first planes that are no surrogates. */
static int write_character(int i, char *to) {
  int bytes = pd_utf8_write(0x3400 + i + (0x3400 + i >= 0xD800 ? 0x800 : 0), to);
  to[bytes] = 0;
  return bytes;
}

/* A vocabulary of n characters and n pairs of them, n merges, and a word that is all characters. */
static void check_vocabulary(int n) {
  char why[PD_WHY] = "", *json = pd_grown(NULL, 100 * (size_t)n + 200), *to = json;
  char *word = pd_grown(NULL, 4 * (size_t)n + 1), *end = word;
  to += sprintf(to, "{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"vocab\":{");
  for (int i = 0; i < n; i++) {
    char one[8], next[8];
    end += write_character(i, end);
    write_character(i, one);
    write_character((i + 1) % n, next);
    to += sprintf(to, "%s\"%s\":%d,\"%s%s\":%d", i ? "," : "", one, i, one, next, n + i);
  }
  to += sprintf(to, "},\"merges\":[");
  for (int i = 0; i < n; i++) {
    char one[8], next[8];
    write_character(i, one);
    write_character((i + 1) % n, next);
    to += sprintf(to, "%s\"%s %s\"", i ? "," : "", one, next);
  }
  to += sprintf(to, "]}}");
  struct pd_tokenizer *t = pd_tokenizer_new();
  int32_t *tokens = NULL;
  bool good = pd_tokenizer_parse_json(t, json, (size_t)(to - json), 2 * n, why);
  pd_tokenizer_complete(t);
  int64_t got = good ? pd_tokenizer_encode(t, word, (size_t)(end - word), &tokens, why) : -1;
  if (got != n / 2 || tokens[0] != n) complain("vocabulary", n, *why ? why : "other tokens");
  free(tokens);
  free(json);
  free(word);
  pd_tokenizer_close(t);
}

/* n spaces and a letter: a repetition that gives back spaces does not try each of them from each start. */
static void check_spaces(int n) {
  static const char *const patterns[] = {"\\s+$", "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "[A-Z ]*[a-z]+"};
  char why[PD_WHY] = "", *text = memset(pd_grown(NULL, (size_t)n + 1), ' ', (size_t)n);
  text[n] = 'x';
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
    struct pd_pattern *p = pd_pattern_compile(patterns[i], why);
    size_t words = 0;
    for (size_t at = 0; at < (size_t)n + 1 && p; words++)
      at += pd_pattern_word(p, PD_ISOLATED, text + at, (size_t)n + 1 - at);
    if (words != (size_t[]){1, 3, 1}[i]) complain("spaces", (int)i, *why ? why : "another number of words");
    pd_pattern_free(p);
  }
  free(text);
}

static double processor_seconds(void check(int), int n) {
  clock_t start = clock();
  check(n);
  return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* Eight times as much takes eight times as long, with room for caches and other processes; what goes by pairs
 * takes 64. */
static void check_growth(const char *what, void check(int), int n) {
  double once = processor_seconds(check, n), more = processor_seconds(check, 8 * n);
  if (more <= 24 * once + 0.2) return;
  fprintf(stderr, "%d: %.3f s, %d: %.3f s\n", n, once, 8 * n, more);
  complain(what, 0, "time grows faster than its size");
}

int main(int argc, char **argv) {
  static const char *const gpt2[] = {"gpt2.merges.txt", "gpt2.vocab.json"};
  static const char *const names[] = {"prefixed",   "llama3",   "qwen2",     "digits",   "llama2",   "first",
                                      "never",      "always",   "unknown",   "composed", "o200k",    "gpt4",
                                      "tekken",     "deepseek", "deepseek2", "gemma",    "previous", "next",
                                      "contiguous", "bert",     "t5",        "t5_split", "t5_bytes", "bert_cased"};
  if (argc != 2) return 2;
  read_parts(argv[1]);
  check_all(argv[1], "gpt2", gpt2, 2);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char file[64];
    const char *files[] = {file};
    snprintf(file, sizeof file, "%s.json", names[i]);
    check_all(argv[1], names[i], files, 1);
  }
  check_refused();
  check_bytes();
  check_added();
  check_growth("marks", check_marks, 5000);
  check_growth("spaces", check_spaces, 100000);
  check_growth("added", check_many_added, 6000);
  check_growth("vocabulary", check_vocabulary, 6000);
  return failures != 0;
}
