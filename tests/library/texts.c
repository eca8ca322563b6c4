/* Text behind a text:  texts WEIGHTS TOKENIZER TOKENS STOP PROMPT
 * Prints it; STOP "": none. Checks encoding, decoding and what is refused. */
#include "common.h"
#include "model.h"

struct taken {
  char text[4096];
  size_t n;
  int calls, most;
};

static int take(void *context, const char *text, size_t bytes) {
  struct taken *t = context;
  memcpy(t->text + t->n, text, bytes);
  t->n += bytes;
  return ++t->calls == t->most;
}

int main(int argc, char **argv) {
  NEED(argc == 6, "arguments");
  char why[MODEL_WHY], text[4096];
  const char *prompt = argv[5], *stops[] = {argv[4], NULL};
  const size_t bytes = strlen(prompt);
  const int64_t most = atoi(argv[3]);
  int32_t tokens[512];
  struct taken first = {.calls = 0}, again = {.calls = 0}, few = {.most = 1};
  model *m = model_new(NULL, 0, 0, why);
  NEED(m, "%s", why);
  NEED(!model_load(m, argv[1], why), "%s", why);
  NEED(model_encode(m, prompt, bytes, tokens, 512, why) == -1 && strstr(why, "has no tokenizer"), "%s", why);
  NEED(model_generate_text(m, prompt, bytes, 1, NULL, NULL, take, &first, why) == -1,
       "generates without a tokenizer");
  NEED(model_tokenizer(m, "/nowhere", why) == -1 && strstr(why, "/nowhere"), "%s", why);
  NEED(model_tokenizer(m, "/", why) == -1 && strstr(why, "neither tokenizer.json nor"), "%s", why);
  NEED(!model_tokenizer(m, argv[2], why), "%s", why);
  NEED(!model_tokenizer(m, argv[2], why), "%s", why);
  const int64_t n = model_encode(m, prompt, bytes, tokens, 512, why);
  NEED(n > 2 && n < 512 && model_encode(m, prompt, bytes, NULL, 0, why) == n, "%s", why);
  NEED(model_decode(m, tokens, n, text, sizeof text, why) == (int64_t)bytes && !strcmp(text, prompt), "'%s'",
       text);
  NEED(model_decode(m, tokens, n, text, 3, why) == (int64_t)bytes && !strncmp(text, prompt, 2) && !text[2], "'%s'",
       text);
  tokens[1] = MODEL_TOKENS;
  NEED(model_decode(m, tokens, n, text, sizeof text, why) == -1 && strstr(why, "token 1 is"), "%s", why);
  const int64_t drawn =
      model_generate_text(m, prompt, bytes, most, *argv[4] ? stops : NULL, NULL, take, &first, why);
  NEED(drawn >= 0, "%s", why);
  NEED(model_generate_text(m, prompt, bytes, most, *argv[4] ? stops : NULL, NULL, take, &again, why) == drawn,
       "%s", why);
  NEED(first.n == again.n && !memcmp(first.text, again.text, first.n), "another time, another text");
  NEED(!first.n || model_generate_text(m, prompt, bytes, most, NULL, NULL, take, &few, why) >= 0, "%s", why);
  NEED(few.calls <= 1, "goes on behind the end");
  NEED(model_generate_text(m, prompt, 0, 1, NULL, NULL, take, &few, why) == -1, "an empty prompt");
  fwrite(first.text, 1, first.n, stdout);
  puts("");
  model_free(m);
  return 0;
}
