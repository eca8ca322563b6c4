/* Models as C libraries: the functions that an emitted library consists of. A model is constant; an instance is one
 * block of memory, with the model's weights and arena. Instances share nothing, so each may run on a thread of its own.
 * Functions that fail return NULL or -1 after writing the reason to `why` (PD_WHY bytes, or NULL). */
#ifndef PD_LIBRARY_H
#define PD_LIBRARY_H

#include "kernels/objects.h"
#include "pd_runtime.h"
#include "shared/why.h"

#define PD_NOWHERE SIZE_MAX /* no place in the arena */

/* A model, as its emitted file describes it. `at`: bytes into the arena. */
struct pd_model {
  const char *name;
  size_t instance_bytes; /* of the emitted struct, which starts with a struct pd_instance */
  size_t arena_bytes, scratch_bytes;
  int threads; /* planned: more have no scratch memory */
  int64_t microbatch;
  const struct pd_parameter *parameters;
  int n_parameters;
  size_t weights_at;
  const struct pd_input *inputs; /* in the order of the caller's; derived ones are not the caller's */
  const size_t *inputs_at;       /* by input */
  int n_inputs;
  const struct pd_prediction *outputs;
  const size_t *outputs_at;
  int n_outputs;
  const struct pd_generation *generation; /* NULL: outputs instead */
  size_t logits_at;
  void (*setup)(void *instance);   /* makes the objects of kernels, and tables */
  void (*forward)(void *instance); /* one microbatch */
};

/* The head of an instance. */
struct pd_instance {
  const struct pd_model *model;
  char *arena;
  struct pd_objects objects; /* of kernels */
  int threads;
  bool loaded, owned; /* owned: the block is malloc'd */
  float *sample;      /* room for a sample of an input in bf16 */
  /* Of a generator: tokens whose keys and values the caches have, by position, and of these the first that were fed as
   * rows of a prompt; the sequence under way; room for the numbers of all tokens. end: behind the highest position that
   * was fed since position 0, for caches that later positions overwrite. */
  int32_t *held, *tokens, *order;
  int32_t *source; /* of a generator with an encoder: room for a padded source */
  int64_t alike, end;
  bool busy, ends;                /* while it generates; freed by a callback: ends then */
  bool encodes;                   /* this step has a new source */
  struct pd_tokenizer *tokenizer; /* malloc'd; NULL: none */
};

/* The instance's bytes: exact. */
size_t pd_instance_bytes(const struct pd_model *model);
/* memory: 64-byte aligned; NULL: malloc'd. threads: at most the planned ones; 0: these. */
struct pd_instance *pd_instance_new(const struct pd_model *model, void *memory, size_t bytes, int threads,
                                    char *why);
/* In a callback of pd_instance_generate(): the generation ends after this token, and then the instance. */
void pd_instance_free(struct pd_instance *x);
/* Reads all parameters from a .safetensors file, an index of such files or a folder with either. After a failure the
 * instance has no weights. */
int pd_instance_load(struct pd_instance *x, const char *path, char *why);

/* The index of an input of the caller, or of an output; -1: unknown name. */
int pd_model_input(const struct pd_model *model, const char *name);
int pd_model_output(const struct pd_model *model, const char *name);
/* inputs, outputs: [samples][dim...] each; an output may be NULL. */
int pd_instance_run(struct pd_instance *x, int64_t samples, const void *const *inputs, float *const *outputs,
                    char *why);

/* Not 0: the caller wants no more tokens. */
typedef int pd_take_token(void *context, int32_t token);
struct pd_drawing {
  float temperature, top_p;
  int64_t top_k;
  uint64_t seed;
};
/* Continues a prompt by at most `most` tokens. Returns their number: less if `take` stops, or if the context is full. */
int64_t pd_instance_generate(struct pd_instance *x, const int32_t *prompt, int64_t n, int64_t most,
                             const struct pd_drawing *how, pd_take_token *take, void *context, char *why);

/* ---- texts.c: with a tokenizer --------------------------------------------------------------------------- */

/* Reads a tokenizer.json, or those of a folder: 0, or -1. Replaces an earlier one. */
int pd_instance_tokenizer(struct pd_instance *x, const char *path, char *why);
/* Writes the first `most` tokens of the text. Returns the number of all, or -1. */
int64_t pd_instance_encode(const struct pd_instance *x, const char *text, size_t bytes, int32_t *tokens,
                           int64_t most, char *why);
/* Writes the first room - 1 bytes of the tokens' text and a zero byte. Returns the number of all, or -1. */
int64_t pd_instance_decode(const struct pd_instance *x, const int32_t *tokens, int64_t n, char *text, size_t room,
                           char *why);
/* Not 0: the caller wants no more text. */
typedef int pd_take_text(void *context, const char *text, size_t bytes);
/* Continues a text until an end token, before one of the texts `stops`, which end with NULL, or after `most` tokens. Returns
 * the number of tokens drawn; -1. */
int64_t pd_instance_generate_text(struct pd_instance *x, const char *prompt, size_t bytes, int64_t most,
                                  const char *const *stops, const struct pd_drawing *how, pd_take_text *take,
                                  void *context, char *why);

/* False after filling `why`: the caller's instance, or the text or path that it gives, is NULL. */
bool pd_instance_given(const struct pd_instance *x, const void *text, char *why);

/* ---- instance.c: protected calls ---------------------------------------------------------------------------- */

/* Calls f; false after filling `why` if it fails by pd_fail(). */
bool pd_instance_protect(const struct pd_instance *x, void (*f)(void *of), void *of, char *why);

/* ---- instance.c: for run.c and generate.c ----------------------------------------------------------------- */

/* Runs one microbatch. rows: of the microbatch, those that count; 0: all. False after filling `why`. */
bool pd_instance_forward(struct pd_instance *x, int64_t rows, char *why);
/* Buffers for a `why` that is NULL. */
#define PD_WHY_OR(why, buffer) ((why) ? (why) : (buffer))

#endif
