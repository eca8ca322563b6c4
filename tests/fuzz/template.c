/* Input: a chat template and, behind a zero byte, its variables as JSON; or, without a zero byte, a line of chats.jsonl, which
 * is rendered by 'chatml' and encoded as bytes. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tokenize/internal.h"

static void render(const char *text, size_t n, const char *json, size_t json_bytes) {
  char why[PD_WHY] = "";
  struct pd_arena a = {0};
  struct pd_value context;
  struct pd_rendered to;
  struct pd_template *t = pd_template_parse(text, n, why);
  if (!t && strncmp(why, "line ", 5)) abort();
  if (t && pd_json_parse(&a, json, json_bytes, &context, why)) {
    if (!pd_template_render(t, &context, &a, &to, why)) {
      if (strncmp(why, "line ", 5)) abort();
    } else
      for (int i = 0; i < to.n_spans; i++)
        if (to.span[i].begin > to.span[i].end || to.span[i].end > to.text.n) abort();
  }
  pd_arena_free(&a);
  pd_template_close(t);
}

static void read_line(const char *text, size_t n, LossOn loss_on) {
  static struct pd_tokenizer *bytes;
  static struct pd_template *chatml;
  char why[PD_WHY] = "";
  if (!bytes) {
    const char *source = pd_template_named("chatml");
    bytes = pd_tokenizer_open(NULL, 0, 256, why);
    chatml = pd_template_parse(source, strlen(source), why);
  }
  const ChatReader c = {.tokenizer = bytes,
                        .template = chatml,
                        .special = {.kind = PD_DICT, .dict = &(struct pd_dict){0}},
                        .loss_on = loss_on,
                        .end = 10};
  Part p = {.path = "fuzz", .at = text, .bytes = n, .line = 1};
  const bool good = sample_of_line(&c, &p, why);
  if (good == (*why != 0)) abort();
  for (int64_t i = 0; good && i < p.n; i++)
    if (p.tokens[i] < 0 || p.tokens[i] > 255 || (p.loss[i] != 0 && p.loss[i] != 1)) abort();
  free(p.tokens);
  free(p.loss);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *copy = malloc(size + 1); /* a separate allocation detects reads past its end */
  memcpy(copy, data, size);
  const char *zero = memchr(copy, 0, size);
  const size_t n = zero ? (size_t)(zero - copy) : size;
  if (zero)
    render(copy, n, zero + 1, size - n - 1);
  else
    for (int loss_on = LOSS_TURNS; loss_on <= LOSS_ALL; loss_on++) read_line(copy, size, (LossOn)loss_on);
  free(copy);
  return 0;
}
