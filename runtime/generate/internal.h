/* Shared by the files of generate/. All ranks have the same requests and take the same steps; rank 0 alone has texts. */
#ifndef PD_GENERATE_INTERNAL_H
#define PD_GENERATE_INTERNAL_H

#include "generate/generate.h"
#include "generate/sampling.h"
#include "template/template.h"
#include "tokens/tokenizer.h"

static inline const struct pd_generation *pd_generated(void) { return pd.stage->generation; }
/* Whether an encoder reads numbers: its source then comes from --features, and a prompt begins the decoder's sequence. */
static inline bool pd_reads_features(void) {
  const struct pd_generation *g = pd_generated();
  return g->encoder && !pd.stage->inputs[g->source].token;
}
static inline bool pd_reads_source(void) { return pd_generated()->encoder && !pd_reads_features(); }
/* The most tokens of a prompt: of the context, or of an encoder's source. */
static inline int64_t pd_most_prompt(void) {
  const struct pd_generation *g = pd_generated();
  return pd_reads_source() ? pd.stage->inputs[g->source].elements : g->context;
}
/* The tokens below which those of a prompt are. */
static inline int64_t pd_prompt_classes(void) {
  const struct pd_generation *g = pd_generated();
  return pd_reads_source() ? pd.stage->inputs[g->source].classes : g->classes;
}

/* A sequence to continue. */
struct pd_request {
  int64_t number;            /* of its random numbers and results, from 0 */
  bool turns;                /* ends at the tokenizer's end tokens, also without --stop */
  int64_t n_prompt, n_known; /* tokens; known: the prompt, and those drawn */
  int64_t capacity;          /* tokens at the end; 0: not begun */
  int32_t *tokens;
  int32_t *source; /* of a model with an encoder: the tokens that it reads; the prompt is then the first token */
  int64_t n_source;
  float *features;              /* of a model whose encoder reads numbers: its source */
  struct pd_logprobs *logprobs; /* of drawn tokens, with --logprobs */
  enum pd_end { PD_OPEN, PD_AT_LENGTH, PD_AT_CONTEXT, PD_AT_STOP } end;
  int64_t n_result; /* known tokens without an end token */
  /* rank 0 */
  const char *id; /* of its line, as JSON; NULL: none */
  struct pd_decoding decoding;
  char *text; /* of the drawn tokens */
  size_t bytes, room, printed;
  bool cut; /* before a text of --stop */
};

/* ---- prompts.c: the prompts of the command line ---------------------------------------------------- */

extern struct pd_tokenizer *pd_tokenizer; /* on rank 0; NULL: tokens are numbers in input and output */
extern char *pd_end_tokens;               /* by token: ends a text or a turn; on all ranks */
/* All requests so far, and their number. A request is NULL after its result was printed. */
extern struct pd_request **pd_requests;
extern int64_t pd_n_requests;

/* malloc'd memory; ends the launch without any. */
void *pd_own(void *old, size_t bytes);
/* The tokens that were given. */
static inline int64_t pd_n_given(const struct pd_request *r) { return r->source ? r->n_source : r->n_prompt; }
/* Adds a request; n tokens of the prompt or, with an encoder, of the source, malloc'd. */
struct pd_request *pd_request_add(int32_t *tokens, int64_t n);
/* Adds a request with a source of numbers, and n tokens of the prompt behind the first token; both malloc'd. */
struct pd_request *pd_request_add_features(float *features, int32_t *tokens, int64_t n);
/* Whether a prompt has tokens and fits the context; `what` is the subject of `why`. */
bool pd_prompt_fits(const int32_t *tokens, int64_t n, const char *what, char *why);
/* Collective: sends the requests from `first` on to all ranks. */
void pd_requests_share(int64_t first);
void pd_request_begin(struct pd_request *r); /* room for its tokens */
void pd_broadcast(void *what, size_t bytes, int root, const char *text);

/* ---- features.c: sources of numbers ----------------------------------------------------------------- */

struct pd_features { /* n sources in a row, malloc'd */
  float *at;
  int64_t n;
};
/* Rank 0: reads the sources of a file. False after filling `why`; free to->at in either case. */
bool pd_features_read(const char *path, struct pd_features *to, char *why);

/* ---- chat.c: messages to tokens ------------------------------------------------------------------- */

bool pd_chat_open(char *why); /* on rank 0: reads the template */
/* The prompt of a list of messages, malloc'd; -1 after filling `why`. tools: NULL: none. */
int64_t pd_chat_tokens(const struct pd_value *messages, const struct pd_value *tools, int32_t **tokens, char *why);
/* Collective, --chat: adds the request of the next turn after `last`, its reply, or NULL. Returns NULL at the end of the input. */
struct pd_request *pd_chat_turn(const struct pd_request *last);

/* ---- texts.c: drawn tokens to texts, on rank 0 ------------------------------------------------------ */

/* Adds the text of the last known token. Returns whether a text of --stop is complete, which ends the text before it. */
bool pd_text_add(struct pd_request *r);
void pd_text_end(struct pd_request *r); /* completes the last character */
/* Bytes that no text of --stop can remove any more. */
size_t pd_text_sure(const struct pd_request *r);

/* ---- print.c: results, by rank 0 ------------------------------------------------------------------- */

void pd_results_open(void);
void pd_result_grows(struct pd_request *r); /* tokens were added */
void pd_result_ends(struct pd_request *r);  /* prints it after those before it, and frees printed ones */
void pd_results_close(void);

#endif
