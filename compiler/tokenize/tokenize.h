/* `pdc tokenize`: texts to files of tokens. */
#ifndef PDC_TOKENIZE_H
#define PDC_TOKENIZE_H

#include "base/base.h"

typedef struct TokenizeRequest {
  const char *tokenizer;    /* a folder, a tokenizer.json, or "vocab.json,merges.txt"; NULL: tokens are bytes */
  const char *const *files; /* texts, a document each; *.jsonl: a document a line, in the member `field` */
  int n_files;
  const char *output; /* llm.c's token file: uint16, or uint32 where the tokenizer has more tokens than 65536 */
  const char *field;  /* NULL: "text" */
  const char *end;    /* token behind each document; NULL: the tokenizer's own; "none" */
  int64_t shard;      /* most tokens of a file, and then files are STEM_000000.bin ..; 0: one file */
  int threads;        /* 0: all processors */
  int64_t part;       /* bytes behind which texts are divided among threads; 0: 256 KiB */
  bool quiet;
} TokenizeRequest;

/* Writes the files and prints one line about them; false after diagnostics, and no file of this call is left then. */
bool tokenize(const TokenizeRequest *request);

#endif
