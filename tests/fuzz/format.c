/* Formatting keeps words, comments and Ast of any valid text, and is idempotent; format_text() checks both. Inputs
 * are files, or valid models with changed spaces and added comments. */
#include "fuzz.h"

#include <string.h>

#include "format/format.h"
#include "maker.h"

static const char *pulled_apart(const char *text, const uint8_t *data, size_t size) {
  static const char *const between[] = {
      " ",       "\n", "  ", "\n\n\n", " # one\n", "\n# two\n", "\t# three\n\n", "\n\n # four\r\n# five\n",
      " \n \n ", " "};
  enum { N = sizeof between / sizeof *between };
  Tokens tokens = {0};
  parse_text("made", text, strlen(text), &tokens);
  Text t = {0};
  text_add(&t, "%s", "");
  for (int i = 0; i < tokens.n; i++) {
    unsigned how = size ? data[(size_t)i % size] + (unsigned)i / (unsigned)size : 0;
    text_add(&t, "%s%s", tokens.at[i].text, between[how % (how % 3 ? 2 : N)]); /* mostly the usual spacing */
  }
  return t.at;
}

static int run(const uint8_t *data, size_t size) {
  bool smooth;
  if (size > 1 && data[0] % 2) {
    const char *text = pulled_apart(make_model_text(data + 1, size - 1, &smooth), data, size);
    if (!format_text("made", text, strlen(text))) BUG("a valid model is refused:\n%s", text);
    return 0;
  }
  char *text = alloc(size + 1);
  memcpy(text, data, size);
  format_text("file", text, size);
  diagnostics_flush();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }
