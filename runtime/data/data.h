/* What data files hold, format by format. A parser gets a mapped file and refuses a broken one in `why`, with
 * its path and an offset in bytes; nothing here allocates or knows other ranks. */
#ifndef PD_DATA_H
#define PD_DATA_H

#include "run/augment.h"
#include "pd_runtime.h"
#include "shared/why.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pd_element {
  PD_TYPE_U8,
  PD_TYPE_U16,
  PD_TYPE_U32,
  PD_TYPE_I32,
  PD_TYPE_I64,
  PD_TYPE_F32,
  PD_TYPE_F64,
  PD_TYPE_F16
};

/* Rows of elements in a mapped file: all rows lie within the file once a parser has returned true. */
struct pd_array {
  const char *path, *map; /* whoever maps the file sets these and size; parsers the rest */
  size_t size;
  enum pd_element type;
  size_t first;      /* bytes to the first row */
  int64_t stride;    /* bytes between rows */
  int64_t rows, row; /* their number; elements of one */
  int rank;
  int64_t dim[PD_MAX_RANK]; /* of a row */
  bool pixels;              /* a number is an element / 255 */
};

/* ---- array.c --------------------------------------------------------------------------------- */

int pd_element_bytes(enum pd_element type);
bool pd_is_float(enum pd_element type);
/* Whether a row can be a sample of this input: tokens are integers, and the shapes are equal but for axes of
 * size 1, or one of them is flat. */
bool pd_array_fits(const struct pd_array *a, const struct pd_input *in, char *why);
/* Tokens from 0 to below `classes`, and one below 0 that is not counted (derive.c); 0: none is. */
struct pd_token_range {
  int64_t classes, ignored;
};
/* Rows [first, first + n) as tokens, or into NULL only to compare them; false for one outside the range. */
bool pd_read_tokens(const struct pd_array *a, int64_t first, int64_t n, struct pd_token_range range, int32_t *to,
                    char *why);
void pd_read_numbers(const struct pd_array *a, int64_t first, int64_t n, float *to);

/* ---- npy.c, idx.c, cifar.c, shard.c ---------------------------------------------------------- */

bool pd_is_npy(const struct pd_array *a);
bool pd_parse_npy(struct pd_array *a, char *why);
bool pd_parse_idx(struct pd_array *a, char *why);
bool pd_parse_cifar(struct pd_array *a, bool label, char *why); /* its labels, else its images */
/* A row is a token. */
bool pd_is_shard(const struct pd_array *a);
bool pd_parse_shard(struct pd_array *a, char *why);
bool pd_parse_tokens(struct pd_array *a, int bytes,
                     char *why);         /* little-endian, of 1, 2 or 4 bytes, without a header */
void pd_parse_bytes(struct pd_array *a); /* a text, whose bytes are tokens */

/* ---- foreign.c ------------------------------------------------------------------------------- */

bool pd_is_zip(const struct pd_array *a);
/* False for a file of a format that is known to be no data for pdc, with its name and what to do. */
bool pd_refuse_foreign(const struct pd_array *a, char *why);

/* ---- npz.c ----------------------------------------------------------------------------------- */

enum { PD_NPZ_STORED = 0, PD_NPZ_DEFLATED = 8 };
struct pd_npz_entry {
  const char *name; /* in the archive, without .npy */
  int name_length, method;
  bool encrypted;
  uint32_t checksum;
  uint64_t local, packed, size; /* where it starts; bytes there, and unpacked */
};
/* How many arrays an archive has, the first `room` of them in `to`; -1: it is broken. */
int pd_npz_arrays(const struct pd_array *a, struct pd_npz_entry *to, int room, char *why);
/* The array of this name, or with `any` the only one; says which there are. */
bool pd_npz_find(const struct pd_array *a, const char *name, bool any, struct pd_npz_entry *e, char *why);
/* Makes of the archive's map and size those of its array as it is packed. */
bool pd_npz_open(struct pd_array *a, const struct pd_npz_entry *e, char *why);
/* And of a deflated one those of the array itself, unpacked to e->size bytes at `to`. */
bool pd_npz_unpack(struct pd_array *a, const struct pd_npz_entry *e, char *to, char *why);

/* ---- inflate.c ------------------------------------------------------------------------------- */

/* Unpacks deflated data to exactly `size` bytes; false: it is broken, or unpacks to more or less. */
bool pd_inflate(const char *from, size_t packed, char *to, size_t size);
uint32_t pd_crc32(const char *at, size_t n); /* zip's checksum */

/* ---- lines.c --------------------------------------------------------------------------------- */

/* A text's lines; where every PD_MARK-th of them starts is noted. */
enum { PD_MARK = 32 };
struct pd_lines {
  int64_t n, *marks;
  bool numbers; /* tokens are written as numbers; else they are the bytes */
};
int64_t pd_count_lines(const struct pd_array *text);
/* Fills lines->marks, which has room for all; false for a line of more tokens than a sample of the input has. */
bool pd_mark_lines(const struct pd_array *text, const struct pd_input *in, struct pd_lines *lines, char *why);
/* A line's tokens, `pad` behind them. False for a token outside the input's classes. */
bool pd_read_line(const struct pd_array *text, const struct pd_lines *lines, int64_t line,
                  const struct pd_input *in, int64_t pad, int32_t *to, char *why);

/* ---- augment.c ------------------------------------------------------------------------------- */

bool pd_is_image(const struct pd_input *in); /* [channels, height, width], of numbers */
/* Whether these inputs have images and all are larger than `crop`. */
bool pd_augment_fits(const struct pd_augment *a, const struct pd_input *inputs, int n, char *why);
/* sample: the run's global index, from which with the seed all random choices follow. */
void pd_augment_image(const struct pd_augment *a, const struct pd_input *in, uint64_t seed, int64_t sample,
                      const float *from, float *to);
/* Torchvision's Normalize, of a PD_IMAGE input's sample. */
void pd_normalise(const struct pd_input *in, float *pixels);

/* ---- derive.c -------------------------------------------------------------------------------- */

bool pd_is_derived(const struct pd_input *in);
bool pd_is_weight(const struct pd_input *in); /* of counted positions */
/* The number below 0 that files of this input may hold, where another one of n counts all tokens but it; 0: none. */
int64_t pd_ignored(const struct pd_input *inputs, int n, int input);
/* The input whose tokens pd_derive is given. */
int pd_derived_from(const struct pd_input *inputs, int input);
/* One sample of a derived input from the tokens x of another; weights are 1 at counted positions, not yet
 * scaled. seed, sample: what random choices follow from. */
void pd_derive(const struct pd_input *inputs, int input, const int32_t *x, uint64_t seed, int64_t sample,
               void *to);

#ifdef __cplusplus
}
#endif

#endif
