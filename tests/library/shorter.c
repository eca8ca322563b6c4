/* Prompts of an instance that get shorter:  shorter WEIGHTS
 * Each begins like the prompt before it and has another last token. A new instance has the same tokens. */
#include "common.h"
#include "model.h"

enum { TOKENS = 1 };
struct taken {
  int32_t token[TOKENS];
  int n;
};

static int take(void *context, int32_t token) {
  struct taken *t = context;
  t->token[t->n++] = token;
  return 0;
}

static model *loaded(const char *path) {
  char why[MODEL_WHY];
  model *m = model_new(NULL, 0, 0, why);
  NEED(m && !model_load(m, path, why), "%s", why);
  return m;
}

static struct taken tokens_of(model *m, const int32_t *prompt, int64_t n, uint64_t seed) {
  char why[MODEL_WHY];
  struct taken t = {.n = 0};
  const model_drawing how = {.temperature = 1, .seed = seed};
  NEED(model_generate(m, prompt, n, TOKENS, &how, take, &t, why) == TOKENS, "%s", why);
  return t;
}

int main(int argc, char **argv) {
  NEED(argc == 2, "arguments");
  int32_t prompt[MODEL_CONTEXT];
  uint32_t random = 1;
  for (int less = 1; less < 8; less++) {
    model *m = loaded(argv[1]);
    for (int n = MODEL_CONTEXT - TOKENS; n > 0; n -= less) {
      for (int i = n < MODEL_CONTEXT - TOKENS ? n - 1 : 0; i < n; i++) {
        random = random * 1664525u + 1013904223u;
        prompt[i] = (int32_t)((random >> 8) % MODEL_TOKENS);
      }
      model *fresh = loaded(argv[1]);
      const struct taken found = tokens_of(m, prompt, n, random), expected = tokens_of(fresh, prompt, n, random);
      NEED(!memcmp(&found, &expected, sizeof found), "a prompt of %d tokens, each %d shorter than before", n,
           less);
      model_free(fresh);
    }
    model_free(m);
  }
  return 0;
}
