/* Opens a tokenizer's files. */
#include "parts.h"
#include "shared/read_file.h"

#include <stdlib.h>
#include <string.h>

/* Reads a file and parses it by one of the parsers below; adds the path to a refusal. */
typedef bool parse(struct pd_tokenizer *t, const char *text, size_t bytes, int64_t classes, char *why);

static bool read_file(struct pd_tokenizer *t, const char *path, parse *parse, int64_t classes, char *why) {
  char cause[PD_WHY] = "";
  size_t bytes;
  char *text = pd_read_file(path, &bytes, why);
  if (!text) return false;
  bool ok = parse(t, text, bytes, classes, cause);
  free(text);
  return ok || pd_refuse(why, "cannot read '%s': %.900s", path, cause);
}

static bool parse_merges(struct pd_tokenizer *t, const char *text, size_t bytes, int64_t classes, char *why) {
  (void)classes;
  return pd_tokenizer_parse_merges(t, text, bytes, why);
}

static bool is_json(const char *path) {
  size_t n = strlen(path);
  return n > 5 && !strcmp(path + n - 5, ".json");
}

static bool read_gpt2(struct pd_tokenizer *t, char *const *paths, int64_t classes, char *why) {
  int vocabulary = is_json(paths[0]) ? 0 : 1;
  if (is_json(paths[0]) == is_json(paths[1]))
    return pd_refuse(why, "'%s' and '%s' are not a vocab.json and a merges.txt", paths[0], paths[1]);
  return read_file(t, paths[vocabulary], pd_tokenizer_parse_vocabulary, classes, why) &&
         read_file(t, paths[!vocabulary], parse_merges, classes, why) && pd_tokenizer_complete_gpt2(t, why);
}

struct pd_tokenizer *pd_tokenizer_open(char *const *paths, int n, int64_t classes, char *why) {
  struct pd_tokenizer *t = pd_tokenizer_new();
  t->bytes = n == 0;
  bool ok =
      n == 0 ? classes >= 256 ||
                   pd_refuse(why,
                             "the model has %lld tokens, fewer than the 256 bytes. help: give --tokenizer FILE...",
                             (long long)classes)
      : n == 1 ? read_file(t, paths[0], pd_tokenizer_parse_json, classes, why)
      : n == 2 ? read_gpt2(t, paths, classes, why)
               : pd_refuse(why, "--tokenizer needs one or two files, not %d", n);
  if (!ok) {
    pd_tokenizer_close(t);
    return NULL;
  }
  if (!t->bytes) pd_tokenizer_complete(t);
  return t;
}
