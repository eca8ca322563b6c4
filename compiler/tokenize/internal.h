/* Shared by the files of tokenize/. Functions with `why` (PD_WHY bytes) fill it and return false on failure. */
#ifndef PDC_TOKENIZE_INTERNAL_H
#define PDC_TOKENIZE_INTERNAL_H

#include "shared/beside.h"
#include "shared/why.h"
#include "tokenize/tokenize.h"
#include "tokens/tokenizer.h"

/* ---- texts.c: texts in parts, encoded by threads -------------------------------------------------- */

/* A document or a section of one; its tokens depend on no other part. */
typedef struct Part {
  const char *path, *at;
  size_t bytes;
  int64_t line;     /* of *.jsonl, from 1; 0: a plain text */
  bool first, last; /* of its document */
  int32_t *tokens;  /* malloc'd */
  int64_t n;        /* -1: `why`, malloc'd, has the reason for refusal */
  char *why;
} Part;

typedef struct Texts {
  const TokenizeRequest *request;
  const struct pd_tokenizer *tokenizer;
  int file; /* index of the request's next file */
  const char *map;
  size_t size, at; /* size of the mapped file, and start of its next part */
  int64_t line;
  int64_t bytes, all; /* read until now, and of all files */
} Texts;

enum { MOST_PARTS = 4096 };
typedef struct Batch {
  Part part[MOST_PARTS];
  int n;
  struct {
    const char *at;
    size_t bytes;
  } map[MOST_PARTS]; /* mapped files that end in this batch */
  int n_maps;
} Batch;

bool texts_open(Texts *t, const TokenizeRequest *request, const struct pd_tokenizer *tokenizer, char *why);
/* The next parts in file order, about 16 MiB; none at the end. */
bool texts_next(Texts *t, Batch *b, char *why);
void texts_close(Texts *t);
void batch_free(Batch *b);

/* ---- output.c: token files -------------------------------------------------------------------- */

typedef struct TokenFiles {
  const TokenizeRequest *request;
  int bytes;          /* of a token: 2 or 4 */
  int64_t n, in_file; /* tokens in total, and in the open file */
  int files;          /* number of files begun */
  bool open;
  struct pd_output output;
  const char *path; /* of the open file */
} TokenFiles;

bool files_add(TokenFiles *f, const int32_t *tokens, int64_t n, char *why);
/* Completes the last file; if not `good`, removes all files. */
bool files_close(TokenFiles *f, bool good, char *why);

#endif
