/* The files of a source of samples, as data.c opens them and windows.c reads them. */
#ifndef PD_DATA_PARTS_H
#define PD_DATA_PARTS_H

#include "data/data.h"
#include "data/load.h"

struct part { /* of a column: a file, or a field of its records */
  struct pd_array array;
  struct pd_images *images; /* of a folder, which has no mapped file, or of a tar file */
  struct pd_lines lines;    /* n 0: rows of the array are samples */
  struct pd_documents documents;
  const char
      *columns;  /* of a table with names: those that the input takes, in order, with ", " between; else NULL */
  int64_t first; /* samples of earlier parts; for windows that cross documents: tokens */
};

struct column { /* files of an input; none for derived inputs */
  struct part *parts;
  int n;
};

struct pd_files {
  const struct pd_input *inputs;
  int n_inputs;
  struct pd_reading how;
  bool named;      /* every file names its input */
  int64_t context; /* 0: no windows; else columns[0] is for all inputs */
  bool apart;      /* windows that end with their document, of parts[].documents */
  int64_t samples;
  struct column *columns;
};

/* Derived inputs have no files. */
static inline bool pd_has_files(const struct pd_files *d, int input) { return !pd_is_derived(&d->inputs[input]); }

/* The part that holds a sample: the last one that begins at it or before. */
const struct part *pd_file_of(const struct column *c, int64_t sample);

/* ---- table.c --------------------------------------------------------------------------------- */

/* Reads an input's columns of a .csv file into memory. */
bool pd_open_table(const struct pd_files *d, struct part *p, const struct pd_input *in, char *why);
/* False if both are tables with names, and the input takes other columns of them, or in another order. */
bool pd_same_columns(const struct part *a, const struct part *b, const char *input, char *why);

/* ---- windows.c ------------------------------------------------------------------------------- */

/* Finds the windows of parsed runs of tokens. */
bool pd_windows_open(struct pd_files *d, char *why);
bool pd_windows_read(const struct pd_files *d, int input, int64_t window, int32_t *to, char *why);
/* The part that holds the start of a window, with its tokens [*first, *first + *n) there. */
const struct part *pd_windows_place(const struct pd_files *d, int64_t window, int64_t *first, int64_t *n);

#endif
