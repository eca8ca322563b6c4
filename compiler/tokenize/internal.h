/* What the sources of tokenize/ have from each other. Functions that fill `why` (PD_WHY bytes) return false then. */
#ifndef PDC_TOKENIZE_INTERNAL_H
#define PDC_TOKENIZE_INTERNAL_H

#include "shared/beside.h"
#include "shared/why.h"
#include "tokenize/tokenize.h"
#include "tokens/tokenizer.h"

/* ---- texts.c: texts in parts that threads encode ------------------------------------------------- */

/* A document or a part of one: its tokens depend on no other part. */
typedef struct Part {
  const char *path, *at;
  size_t bytes;
  int64_t line;     /* of *.jsonl, from 1; 0: a text */
  bool first, last; /* of its document */
  int32_t *tokens;  /* malloc'd */
  int64_t n;        /* -1: `why` says what was refused, malloc'd */
  char *why;
} Part;

typedef struct Texts {
  const TokenizeRequest *request;
  const struct pd_tokenizer *tokenizer;
  int file; /* the next of the request's */
  const char *map;
  size_t size, at; /* of the file that is mapped, and where its next part begins */
  int64_t line;
  int64_t bytes, all; /* read so far, and of all files */
} Texts;

enum { MOST_PARTS = 4096 };
typedef struct Batch {
  Part part[MOST_PARTS];
  int n;
  struct {
    const char *at;
    size_t bytes;
  } map[MOST_PARTS]; /* files that end in this batch */
  int n_maps;
} Batch;

bool texts_open(Texts *t, const TokenizeRequest *request, const struct pd_tokenizer *tokenizer, char *why);
/* Some parts in the order of the files, of about 16 MiB; none at the end. */
bool texts_next(Texts *t, Batch *b, char *why);
void texts_close(Texts *t);
void batch_free(Batch *b);

/* ---- output.c: token files -------------------------------------------------------------------- */

typedef struct TokenFiles {
  const TokenizeRequest *request;
  int bytes;          /* of a token: 2 or 4 */
  int64_t n, in_file; /* tokens in total, and in the open file */
  int files;          /* number of files begun */
  int complete;       /* number of files with their final names */
  bool open;
  struct pd_output output;
  const char *path; /* of the file that is open */
} TokenFiles;

/* train.bin, or of shards train_000000.bin. */
const char *output_path(const TokenizeRequest *request, int file);
/* Refuses an output that is an input, something other than a regular file, or among the shards of an earlier call. */
bool output_may_be_written(const TokenizeRequest *request, char *why);
bool files_add(TokenFiles *f, const int32_t *tokens, int64_t n, char *why);
/* Completes the last file; or, unless good, removes the shards of this call and leaves an earlier output as it was. */
bool files_close(TokenFiles *f, bool good, char *why);

#endif
