/* What the sources of tokenize/ have from each other. Functions that fill `why` (PD_WHY bytes) return false then. */
#ifndef PDC_TOKENIZE_INTERNAL_H
#define PDC_TOKENIZE_INTERNAL_H

#include "data/data.h"
#include "shared/beside.h"
#include "shared/why.h"
#include "template/template.h"
#include "tokenize/tokenize.h"
#include "tokens/tokenizer.h"

/* The number of a tokenizer's files, and their paths. */
int tokenizer_files(const char *name, char *path[2]);
/* The tokenizer of a request. NULL after filling `why`. */
struct pd_tokenizer *tokenizer_of(const char *name, char *why);
/* Sets *pad to the token behind texts with labels; -1: the tokenizer names none. */
bool label_padding(const char *tokenizer, const struct pd_tokenizer *t, int32_t *pad, char *why);

/* ---- show_images.c ---------------------------------------------------------------------------------- */

bool is_of_images(const char *path); /* a folder, or by its name a tar or zip file */
bool view_images(DataView *v, const char *path, char *why);

/* ---- show.c ----------------------------------------------------------------------------------------- */

/* Appends the text of n tokens. next: targets, below 0 without loss; NULL: no token has a loss. */
void decode_tokens(const struct pd_tokenizer *t, const int32_t *tokens, const int32_t *next, int64_t n,
                   DataSample *to);
/* Replaces an archive by its array of this name. *unpacked: to be freed, also after a failure; NULL before. */
bool open_npz_array(struct pd_array *a, const char *name, void **unpacked, char *why);

/* ---- show_arrays.c, show_texts.c ----------------------------------------------------------------------- */

bool view_array(DataView *v, const struct pd_array *a, char *why);
bool view_archive(DataView *v, const struct pd_array *archive, char *why);
bool view_table(DataView *v, const struct pd_array *a, char *why);
bool view_text(DataView *v, const char *path, const struct pd_tokenizer *t, char *why);

/* ---- show_model.c: whether a file fits a model ------------------------------------------------------ */

/* Each sets the view's inputs and number of samples. */
bool archive_fits(DataView *v, const struct pd_array *archive, const Graph *g, char *why);
bool table_fits(DataView *v, const struct pd_array *table, const Graph *g, char *why);
bool takes_tables(const Graph *g); /* false: a table is a text for this model */
bool windows_fit(DataView *v, const struct pd_array *tokens, const Graph *g, char *why);
bool images_fit(DataView *v, const Graph *g, char *why);
/* Files of arrays, one for each input in the model's order; archives were checked one by one. */
bool arrays_fit(DataView *views, int n, const Graph *g, int64_t *samples, char *why);
/* An array of numbers of a file by its name: .npy or idx. */
bool parse_array(struct pd_array *a, char *why);
bool is_array_name(const char *path);

/* ---- unpack.c: compressed texts ------------------------------------------------------------------- */

typedef struct Unpacking Unpacking;
/* A file of a packing. `packed` stays mapped until unpack_close(). NULL after filling `why`. */
Unpacking *unpack_open(const char *path, const char *packed, size_t size, char *why);
/* Writes the next bytes of the text to `to`; *n: their number, less than `room` only at the end of the text. */
bool unpack_read(Unpacking *u, char *to, size_t room, size_t *n, char *why);
bool unpack_ended(const Unpacking *u);
size_t unpack_position(const Unpacking *u); /* bytes of the file that were read */
void unpack_close(Unpacking *u);            /* accepts NULL */

/* ---- texts.c: texts in parts that threads encode ------------------------------------------------- */

/* A document or a part of one: its tokens depend on no other part. */
typedef struct Part {
  const char *path, *at;
  size_t bytes;
  int file; /* of the request, at this offset */
  size_t offset;
  int64_t line;     /* of *.jsonl, from 1; 0: a text */
  bool first, last; /* of its document */
  int32_t *tokens;  /* malloc'd */
  char *loss;       /* of samples, malloc'd: by token, 1 if its prediction counts */
  bool numbers;     /* of *.jsonl: its tokens were numbers */
  bool beyond;      /* of a sample that was refused: its rendering exceeds a limit */
  int64_t second;   /* of labelled texts: the first token of type 1 */
  int64_t least;    /* of labelled texts: positions that truncation needs */
  int32_t label;
  int64_t n; /* -1: `why` says what was refused, malloc'd */
  char *why;
} Part;

typedef struct Texts {
  const TokenizeRequest *request;
  const struct pd_tokenizer *tokenizer;
  int file;        /* the next of the request's */
  const char *map; /* a mapped file, or a piece of a compressed one */
  size_t size, at; /* of the map, and where its next part begins */
  size_t offset;   /* of the map in the text */
  size_t start;    /* of the text, behind a byte order mark */
  bool in_pieces;  /* a compressed text */
  const char *packed;
  Unpacking *unpacking; /* of `packed`; NULL: the map has the end of the text */
  int64_t line;
  int64_t bytes, all; /* read so far, and of all files */
} Texts;

enum { MOST_PARTS = 4096 };
typedef struct Batch {
  Part part[MOST_PARTS];
  int n;
  size_t bytes;                /* of the parts */
  const char *map[MOST_PARTS]; /* files and pieces that end in this batch */
  int n_maps;
} Batch;

/* Where a part begins, and what was written before it. */
typedef struct Place {
  int file;             /* of the request */
  int64_t offset, line; /* lines before it */
  int64_t text, documents, in_document, tokens;
} Place;

bool texts_open(Texts *t, const TokenizeRequest *request, const struct pd_tokenizer *tokenizer, char *why);
/* Continues at a place of an earlier call. */
bool texts_resume(Texts *t, const Place *place, char *why);
/* Some parts in the order of the files, of about 16 MiB; none at the end. */
bool texts_next(Texts *t, Batch *b, char *why);
void texts_close(Texts *t);
void batch_free(Batch *b);

/* ---- tokenize.c ------------------------------------------------------------------------------------- */

/* Sets the tokens of a document or a part of one, or refuses it. field: as in a request. Runs on several threads. */
void encode_document(const struct pd_tokenizer *t, const char *field, Part *p);

/* ---- chats.c: samples of chats, instructions and texts --------------------------------------------- */

/* Tokens after documents: none, or bytes, which have no end of text, so that --end is needed. */
enum { NO_END = -1, END_NEEDED = -2 };

typedef struct ChatReader {
  const struct pd_tokenizer *tokenizer;
  struct pd_template *template; /* NULL: none */
  struct pd_value special;      /* the special tokens by their names in tokenizer_config.json, a dict */
  LossOn loss_on;
  const char *field; /* member of each line that is its text; NULL: by the members of the line */
  int32_t end;       /* or NO_END, END_NEEDED */
} ChatReader;

/* Sets the tokens and the loss of a line of JSON; a blank line has none. False after filling `why`. Uses malloc only, for
 * threads. */
bool sample_of_line(const ChatReader *c, Part *p, char *why);

/* ---- rows.c: samples in rows of the same length ----------------------------------------------------- */

typedef struct Rows Rows;
typedef struct RowCounts {
  int64_t samples, rows, tokens, counted; /* rows written, tokens without padding, positions with loss */
  int64_t too_long, longest, no_loss;     /* skipped or truncated; tokens of the longest; skipped */
  int64_t beyond;                         /* skipped, because their rendering exceeds a limit */
} RowCounts;
/* pad: token behind the last sample of a row. end: token between the samples of a row, or NO_END. */
Rows *rows_open(const TokenizeRequest *request, int32_t pad, int32_t end, char *why);
bool rows_add(Rows *r, const Part *p, char *why);
/* Writes the last rows and completes the file, or, unless good, leaves an earlier output as it was. */
bool rows_close(Rows *r, bool good, RowCounts *counts, char *why);

/* ---- labels.c: texts with a label ---------------------------------------------------------------------- */

typedef struct LabelReader {
  const struct pd_tokenizer *tokenizer;
  const char *field; /* member of each line that is its text */
  int32_t separator; /* behind each text */
  bool doubled;      /* two separators between texts, and all tokens of type 0: RoBERTa's */
  int64_t length;    /* positions of a sample */
  bool truncates;    /* the longer text of a pair first */
} LabelReader;

/* Sets the tokens, the second text and the label of a line of JSON; a blank line has none. False after filling `why`. Uses
 * malloc only, for threads. */
bool labelled_of_line(const LabelReader *r, Part *p, char *why);

typedef struct Labelled Labelled;
/* pad: token behind a sample. NULL after filling `why`. */
Labelled *labelled_open(const TokenizeRequest *request, int32_t pad, char *why);
bool labelled_add(Labelled *l, const Part *p, char *why);
/* Completes the file and prints a summary line unless quiet, or, unless good, leaves an earlier output as it was. */
bool labelled_close(Labelled *l, bool good, char *why);

/* ---- npz.c: an archive of arrays ---------------------------------------------------------------------- */

typedef struct Archive Archive;
enum { TOKENS, NEXT, DOCUMENTS, POSITIONS, MOST_ARRAYS };
typedef struct Column {
  const char *name; /* "tokens.npy" */
  int64_t length;   /* int32 of a row */
} Column;
/* An array for each of n columns, which stay the caller's. NULL after filling `why`. */
Archive *archive_open(const char *path, const Column *columns, int n, char *why);
bool archive_add(Archive *a, const int32_t *const *rows, char *why);
bool archive_close(Archive *a, bool good, char *why);

/* ---- output.c: token files -------------------------------------------------------------------- */

typedef struct Shard {
  const char *path;
  struct Shard *before;
} Shard;

typedef struct TokenFiles {
  const TokenizeRequest *request;
  int bytes;          /* of a token: 2 or 4 */
  int32_t end;        /* token after documents; below 0: none */
  int64_t n, in_file; /* tokens in total, and in the open file */
  int files;          /* number of files begun */
  Shard *shards;      /* with their final names, the last first; --resume keeps them: none */
  uint64_t call;      /* of --resume: a checksum of the texts and options */
  Place place;        /* of the part that is being written */
  int64_t skip;       /* tokens from the place on that earlier shards have */
  int64_t earlier;    /* tokens of earlier calls */
  bool open;
  struct pd_output output;
  const char *path; /* of the file that is open */
} TokenFiles;

enum { SHARD_HEADER = 1024 }; /* bytes */
/* A path without characters that terminals interpret, for messages. */
const char *plain_path(const char *path);
/* train.bin, or of shards train_000000.bin. */
const char *output_path(const TokenizeRequest *request, int file);
/* Refuses an output that is an input, something other than a regular file, or among the shards of an earlier call, and a
 * name that does not end as the request's kind of output does. */
bool output_may_be_written(const TokenizeRequest *request, char *why);
bool files_add(TokenFiles *f, const int32_t *tokens, int64_t n, char *why);
/* Opens a file beside its name, without those that ended processes left there. False with errno. */
bool open_beside(struct pd_output *o, const char *path);
bool close_beside(struct pd_output *o, bool ok);
/* Completes the last file; or, unless good, removes the shards of this call and leaves an earlier output as it was. */
bool files_close(TokenFiles *f, bool good, char *why);

/* ---- resume.c: shards of an interrupted call ----------------------------------------------------- */

bool resume_is_possible(const TokenizeRequest *request); /* an earlier call left its place */
/* Identifies the call, and continues an earlier one: sets its place, and the number of complete shards. */
bool resume_read(TokenFiles *f, char *why);
/* Writes the place after a complete shard. */
bool resume_write(const TokenFiles *f, char *why);
void resume_end(const TokenizeRequest *request); /* all shards are complete */

/* ---- ending.c: signals and shortened files ------------------------------------------------------ */

/* From here on SIGINT, SIGTERM and SIGHUP remove the call's files before they end pdc, and a file of map_watched() that
 * becomes shorter is an error. files: NULL: none are written. */
void signals_watch(const TokenFiles *files);
void signals_restore(void);
/* Delays these signals while a file is opened or closed, so that each file is known to the handler. */
void signals_hold(bool hold);
/* NULL after filling `why`. */
const char *map_watched(const char *path, size_t *bytes, char *why);
/* Memory of zeros that unmap_watched() gives back. NULL after filling `why`. */
char *map_memory(const char *path, size_t bytes, char *why);
void unmap_watched(const char *at); /* accepts NULL */

#endif
