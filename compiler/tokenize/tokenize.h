/* `pdc tokenize`: writes token files from texts, and samples from chats. */
#ifndef PDC_TOKENIZE_H
#define PDC_TOKENIZE_H

#include "base/base.h"

/* Tokens whose prediction counts in the loss. TURNS: texts are whole. */
typedef enum { LOSS_TURNS, LOSS_LAST_TURN, LOSS_ALL } LossOn;
typedef enum { LONG_ERROR, LONG_SKIP, LONG_TRUNCATE } TooLong;

typedef struct TokenizeRequest {
  const char *tokenizer;    /* a folder, a tokenizer.json, or "vocab.json,merges.txt"; NULL: tokens are bytes */
  const char *const *files; /* a text is one document; each line of *.jsonl is a document, in the member `field` */
  int n_files;
  const char
      *output; /* STEM.bin: llm.c's token file, uint16, or uint32 for a tokenizer with more than 65536 tokens.
                         STEM.npz: samples, one a line of *.jsonl, of `length` positions */
  const char *field; /* NULL: "text" */
  const char *end;   /* token after each document; NULL: the tokenizer's own; "none" */
  int64_t shard;     /* maximum tokens per file, with files STEM_000000.bin and so on; 0: one file */
  int threads;       /* 0: all processors */
  int64_t part;      /* minimum bytes of a part for a thread; 0: 256 KiB */
  bool quiet;
  /* Samples: */
  int64_t length;       /* positions of a sample */
  const char *template; /* "auto", a name of pd_template_names(), or a file; NULL: auto */
  int loss_on;          /* LossOn */
  int too_long;         /* TooLong: samples of more than length + 1 tokens */
  bool pack;            /* several samples share a row */
  bool labels;          /* samples are texts with a label, for classifiers */
} TokenizeRequest;

/* Writes the files and prints a summary line. False after diagnostics; then no file of this call remains. */
bool tokenize(const TokenizeRequest *request);

/* Describes a file of samples or tokens (`pdc data --show`). tokenizer: as in a request. */
bool data_show(const char *path, const char *tokenizer, FILE *out);

#endif
