/* `pdc tokenize`: writes token files from texts, and samples from chats. */
#ifndef PDC_TOKENIZE_H
#define PDC_TOKENIZE_H

#include "base/base.h"
#include "graph/graph.h"

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
  bool resume;       /* of shards: keep complete ones when the call ends early, and continue after them */
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
/* Prints the first line that is not blank of a text, which may be compressed. False after a diagnostic. */
bool print_first_line(const char *path, FILE *out);
/* Formats of compressed texts that pdc reads, such as "gzip, xz, zstd"; NULL: none. */
const char *unpacked_kinds(void);

/* ---- pdc data --show ------------------------------------------------------------------------------- */

enum { DATA_BINS = 8 };

/* A part of a sample's text: UTF-8, its tokens all with loss or all without. */
typedef struct DataRun {
  char *text;
  bool loss;
} DataRun;

typedef struct DataSample {
  int64_t row;
  Vec(DataRun) runs;
  bool cut;       /* the sample goes on */
  int32_t label;  /* of DATA_LABELS */
  int64_t second; /* the first position of type 1; -1: none */
} DataSample;

/* A class of images, or a label of rows. */
typedef struct DataClass {
  const char *name;
  int64_t samples;
} DataClass;

/* A JPEG or PNG file. */
typedef struct DataImage {
  const char *name, *class; /* class NULL: none */
  const char *bytes;
  size_t size;
  int width, height; /* 0: damaged */
  bool png;
} DataImage;

/* An input of a model, and where it comes from. */
typedef struct DataInput {
  const char *name, *type, *source; /* "tokens[128]", "token(256)", "array 'tokens'" */
} DataInput;

/* An array of numbers, or a column of a table. */
typedef struct DataArray {
  const char *name,
      *type; /* name NULL: the file is the array; type "u1[28, 28]"; NULL: a column that has no numbers */
  double least, most, mean;
  int64_t not_finite;
} DataArray;

/* A file of samples, of tokens, of images, of numbers, or a text, as texts and pages show it. */
typedef struct DataView {
  const char *path;
  enum { DATA_ROWS, DATA_LABELS, DATA_TOKENS, DATA_IMAGES, DATA_ARRAYS, DATA_TEXT } kind;
  int64_t bytes, text_tokens; /* of DATA_TEXT, whose rows are documents */
  Vec(DataArray) arrays;
  int64_t rows, length, least, most; /* length: positions of a row; least, most: tokens */
  double loss, padding;              /* shares of positions */
  int64_t bins[DATA_BINS];           /* rows by positions filled, each bin an eighth of `length` */
  Vec(DataSample) samples;
  Vec(DataClass) classes;
  Vec(DataImage) images;
  const char *model;        /* NULL: none */
  Vec(DataInput) inputs;    /* of the model, in their order */
  int64_t samples_of_epoch; /* of the model */
  int64_t context, run;     /* of windows of tokens: positions, and tokens of the file; 0: rows are samples */
  int64_t documents;        /* in windows that end with them; 0: windows cross their ends */
  const char *unread;       /* arrays that the model does not read; NULL: none */
} DataView;

/* Reads what is shown of a file, or of a folder of images. tokenizer: as in a request. model: an elaborated graph, whose inputs
 * the file must fit; NULL: none. False after a diagnostic. */
bool data_view(DataView *v, const char *path, const char *tokenizer, const Graph *model);
/* The files that arguments stand for: patterns, folders without images. False after a diagnostic. */
typedef Vec(const char *) DataFiles;
bool data_files(const char *const *arguments, int n, DataFiles *files);
/* The number of samples of n files that a model takes together, as `train --data` joins them; -1 after a diagnostic. */
int64_t data_samples(DataView *views, int n, const Graph *model);
/* The first and the last position of a bin; false: the bin has none. */
bool data_bin(const DataView *v, int bin, int64_t *from, int64_t *to);
void data_print(const DataView *v, FILE *out);
/* Prints n > 1 files, and the number of samples that a model takes of all; -1: no model. */
void data_print_all(const DataView *views, int n, int64_t samples, FILE *out);

#endif
