/* Input: a chat template and, behind a zero byte, its variables as JSON; or, without a zero byte, a line of chats.jsonl, which
 * is rendered by 'chatml' and encoded as bytes, or a line of labelled texts. */
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

static const struct pd_tokenizer *bytes_tokenizer(void) {
  static struct pd_tokenizer *bytes;
  char why[PD_WHY];
  return bytes ? bytes : (bytes = pd_tokenizer_open(NULL, 0, 256, why));
}

static void read_line(const char *text, size_t n, LossOn loss_on) {
  static struct pd_template *chatml;
  char why[PD_WHY] = "";
  if (!chatml) {
    const char *source = pd_template_named("chatml");
    chatml = pd_template_parse(source, strlen(source), why);
  }
  const ChatReader c = {.tokenizer = bytes_tokenizer(),
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

static void read_labelled(const char *text, size_t n, bool doubled, bool truncates) {
  enum { LENGTH = 9 };
  const LabelReader r = {.tokenizer = bytes_tokenizer(),
                         .field = "text",
                         .separator = 10,
                         .doubled = doubled,
                         .length = LENGTH,
                         .truncates = truncates};
  char why[PD_WHY] = "";
  Part p = {.path = "fuzz", .at = text, .bytes = n, .line = 1};
  const bool good = labelled_of_line(&r, &p, why);
  if (good == (*why != 0) || (good && (p.label < 0 || (truncates && p.n > LENGTH)))) abort();
  for (int64_t i = 0; good && i < p.n; i++)
    if (p.tokens[i] < 0 || p.tokens[i] > 255) abort();
  free(p.tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *copy = malloc(size + 1); /* a separate allocation detects reads past its end */
  memcpy(copy, data, size);
  const char *zero = memchr(copy, 0, size);
  const size_t n = zero ? (size_t)(zero - copy) : size;
  if (zero)
    render(copy, n, zero + 1, size - n - 1);
  else {
    for (int loss_on = LOSS_TURNS; loss_on <= LOSS_ALL; loss_on++) read_line(copy, size, (LossOn)loss_on);
    for (int how = 0; how < 4; how++) read_labelled(copy, size, how & 1, how & 2);
  }
  free(copy);
  return 0;
}
