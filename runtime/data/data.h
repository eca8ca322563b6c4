/* What data files hold, format by format. A parser gets a mapped file and refuses a broken one in `why`, with
 * its path and an offset in bytes; nothing here allocates or knows other ranks. */
#ifndef PD_DATA_H
#define PD_DATA_H

#include "pd_runtime.h"
#include "why.h"

#ifdef __cplusplus
extern "C" {
#endif

enum pd_element { PD_TYPE_U8, PD_TYPE_U16, PD_TYPE_U32, PD_TYPE_I32, PD_TYPE_I64, PD_TYPE_F32, PD_TYPE_F64 };

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
/* Whether a row can be a sample of this input: tokens are integers, and the shapes are equal but for axes of
 * size 1, or one of them is flat. */
bool pd_array_fits(const struct pd_array *a, const struct pd_input *in, char *why);
/* Rows [first, first + n) as tokens, or into NULL only to compare them; false for one outside [0, classes). */
bool pd_read_tokens(const struct pd_array *a, int64_t first, int64_t n, int64_t classes, int32_t *to, char *why);
void pd_read_numbers(const struct pd_array *a, int64_t first, int64_t n, float *to);

/* ---- npy.c, idx.c, cifar.c, shard.c ---------------------------------------------------------- */

bool pd_parse_npy(struct pd_array *a, char *why);
bool pd_parse_idx(struct pd_array *a, char *why);
bool pd_parse_cifar(struct pd_array *a, bool label, char *why); /* its labels, else its images */
/* A row is a token. */
bool pd_is_shard(const struct pd_array *a);
bool pd_parse_shard(struct pd_array *a, char *why);
void pd_parse_bytes(struct pd_array *a); /* a text, whose bytes are tokens */

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

struct pd_augment {
  bool flip;
  int64_t crop; /* pixels on each side; 0: none */
};
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
