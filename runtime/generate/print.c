/* Results on standard output or in --results' file. One sequence is printed while it grows. Others are printed when
 * they end, in the order of their numbers: texts apart by a line, token numbers a line each, or a JSON object a line. */
#include "generate/internal.h"
#include "shared/beside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  FILE *out;
  struct pd_output file; /* of --results */
  int64_t printed;       /* requests whose results are printed */
} results;

static bool grows(void) {
  return !pd_options.prompts && pd_options.output != PD_PRINT_JSON && pd_generated()->samples == 1;
}

void pd_results_open(void) {
  const char *path = pd_options.results;
  results.out = stdout;
  if (pd.rank || !path) return;
  if (pd_is_descriptor(path)) {
    results.out = fopen(path, "w");
  } else if (pd_output_open(&results.file, path)) {
    results.out = results.file.file;
  } else {
    results.out = NULL;
  }
  if (!results.out) pd_fail("cannot write '%s': %s", path, strerror(errno));
}

static void flush(void) {
  const char *path = pd_options.results;
  if (fflush(results.out) || ferror(results.out))
    pd_fail("cannot write to %s%s%s: %s", path ? "'" : "", path ? path : "standard output", path ? "'" : "",
            strerror(errno));
}

void pd_results_close(void) {
  if (pd.rank) return;
  flush();
  if (results.file.file && !pd_output_close(&results.file, true))
    pd_fail("cannot write '%s': %s", pd_options.results, strerror(errno));
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static void put_json_text(const char *text, size_t bytes) {
  fputc('"', results.out);
  for (size_t i = 0; i < bytes; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c == '"' || c == '\\')
      fprintf(results.out, "\\%c", c);
    else if (c == '\n')
      fputs("\\n", results.out);
    else if (c < 0x20 || c == 0x7f)
      fprintf(results.out, "\\u%04x", c);
    else
      fputc(c, results.out);
  }
  fputc('"', results.out);
}

static void put_logprobs(const struct pd_request *r) {
  fputs(", \"logprobs\": [", results.out);
  for (int64_t i = r->n_prompt; i < r->n_result; i++) {
    const struct pd_logprobs *l = &r->logprobs[i - r->n_prompt];
    fprintf(results.out, "%s{\"token\": %d, \"logprob\": %.9g, \"top\": [", i > r->n_prompt ? ", " : "",
            r->tokens[i], (double)l->chosen);
    for (int k = 0; k < l->n; k++)
      fprintf(results.out, "%s[%d, %.9g]", k ? ", " : "", l->token[k], (double)l->logprob[k]);
    fputs("]}", results.out);
  }
  fputc(']', results.out);
}

static void put_json(const struct pd_request *r) {
  static const char *const ends[] = {
      [PD_OPEN] = "length", [PD_AT_LENGTH] = "length", [PD_AT_CONTEXT] = "context", [PD_AT_STOP] = "stop"};
  fprintf(results.out, "{\"index\": %lld", (long long)r->number);
  if (r->id) fprintf(results.out, ", \"id\": %s", r->id);
  if (pd_tokenizer) {
    fputs(", \"text\": ", results.out);
    put_json_text(r->text, r->bytes);
  }
  fputs(", \"tokens\": [", results.out);
  for (int64_t i = r->n_prompt; i < r->n_result; i++)
    fprintf(results.out, "%s%d", i > r->n_prompt ? ", " : "", r->tokens[i]);
  fprintf(results.out, "], \"prompt_tokens\": %lld, \"finish\": \"%s\"", (long long)pd_n_given(r), ends[r->end]);
  if (r->logprobs) put_logprobs(r);
  fputs("}\n", results.out);
}

/* ---- texts and token numbers -------------------------------------------------------------------------- */

static void put_new(struct pd_request *r) {
  if (pd_options.output == PD_PRINT_TOKENS) {
    for (int64_t i = r->n_prompt + (int64_t)r->printed; i < r->n_result; i++)
      fprintf(results.out, i > r->n_prompt ? ",%d" : "%d", r->tokens[i]);
    r->printed = (size_t)(r->n_result - r->n_prompt);
  } else {
    size_t sure = pd_text_sure(r);
    fwrite(r->text + r->printed, 1, sure - r->printed, results.out);
    r->printed = sure;
  }
}

static void put_whole(struct pd_request *r) {
  if (pd_options.output == PD_PRINT_JSON) {
    put_json(r);
    return;
  }
  if (r->number && !r->printed && !grows() && pd_options.output == PD_PRINT_TEXT) fputs("----\n", results.out);
  put_new(r);
  fputc('\n', results.out);
}

void pd_result_grows(struct pd_request *r) {
  if (pd.rank || !grows()) return;
  size_t before = r->printed;
  put_new(r);
  if (r->printed > before) flush();
}

static void release(struct pd_request *r) {
  free(r->tokens);
  free(r->source);
  free(r->features);
  free(r->logprobs);
  free(r->text);
  free((char *)r->id);
  free(r);
}

void pd_result_ends(struct pd_request *r) {
  if (!pd.rank) pd_text_end(r);
  for (; results.printed < pd_n_requests && pd_requests[results.printed]->end != PD_OPEN; results.printed++) {
    if (!pd.rank) {
      put_whole(pd_requests[results.printed]);
      flush();
    }
    if (pd_options.chat) continue; /* the next turn needs it */
    release(pd_requests[results.printed]);
    pd_requests[results.printed] = NULL;
  }
}
