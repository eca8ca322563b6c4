/* Parsers of data files, one per format. A parser gets a mapped file and refuses an invalid one in `why`, with
 * path and byte offset. Parsers do not allocate memory and are independent of ranks. */
#ifndef PD_DATA_H
#define PD_DATA_H

#include "run/augment.h"
#include "pd_runtime.h"
#include "shared/why.h"
#include "shared/zip.h"

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
  const char *path, *map; /* set with `size` by the caller that maps the file; the parser sets the other members */
  size_t size;
  enum pd_element type;
  size_t first;      /* bytes to the first row */
  int64_t stride;    /* bytes between rows */
  int64_t rows, row; /* number of rows; elements per row */
  int rank;
  int64_t dim[PD_MAX_RANK]; /* of a row */
  bool pixels;              /* values are elements / 255 */
  int64_t document_end;     /* the token that ends documents, plus 1; 0: the file does not say */
};

/* ---- array.c --------------------------------------------------------------------------------- */

int pd_element_bytes(enum pd_element type);
bool pd_is_float(enum pd_element type);
/* True if a row can be a sample of this input: tokens are integers, and the shapes are equal except for axes of
 * size 1, or one shape is flat. */
bool pd_array_fits(const struct pd_array *a, const struct pd_input *in, char *why);
/* Valid tokens: [0, classes), and one negative token that is not counted (derive.c); ignored 0: none. */
struct pd_token_range {
  int64_t classes, ignored;
};
/* Reads rows [first, first + n) as tokens, or with `to` NULL only checks them; false for a token outside the
 * range. */
bool pd_read_tokens(const struct pd_array *a, int64_t first, int64_t n, struct pd_token_range range, int32_t *to,
                    char *why);
/* Element i of a row of whole numbers. */
int64_t pd_whole_number(const struct pd_array *a, int64_t row, int64_t i);
void pd_read_numbers(const struct pd_array *a, int64_t first, int64_t n, float *to);

/* ---- npy.c, idx.c, cifar.c, shard.c ---------------------------------------------------------- */

bool pd_is_npy(const struct pd_array *a);
bool pd_parse_npy(struct pd_array *a, char *why);
bool pd_parse_idx(struct pd_array *a, char *why);
bool pd_parse_cifar(struct pd_array *a, bool label, char *why); /* labels, or images */
/* A row is a token. */
bool pd_is_shard(const struct pd_array *a);
bool pd_parse_shard(struct pd_array *a, char *why);
bool pd_parse_tokens(struct pd_array *a, int bytes,
                     char *why);         /* little-endian, of 1, 2 or 4 bytes, without a header */
void pd_parse_bytes(struct pd_array *a); /* a text with bytes as tokens */

/* ---- foreign.c ------------------------------------------------------------------------------- */

bool pd_is_zip(const struct pd_array *a);
/* Formats of compressed texts, by their first bytes; `pdc tokenize` reads them. */
enum pd_packing { PD_NOT_PACKED, PD_GZIP, PD_XZ, PD_ZSTD };
enum pd_packing pd_packing_of(const char *file, size_t size);
const char *pd_packing_name(enum pd_packing packing);
const char *pd_unpacker(enum pd_packing packing); /* its program, such as "gunzip" */
/* False for a file of a known unsupported format; `why` has the format and a remedy. */
bool pd_refuse_foreign(const struct pd_array *a, char *why);

/* ---- npz.c ----------------------------------------------------------------------------------- */

/* Returns the number of arrays of an archive, the first `room` of them in `to`; -1: invalid archive. */
int pd_npz_arrays(const struct pd_array *a, struct pd_zip_entry *to, int room, char *why);
/* Finds the array with this name or, with `any`, the only array; `why` lists the arrays. */
bool pd_npz_find(const struct pd_array *a, const char *name, bool any, struct pd_zip_entry *e, char *why);
/* Narrows the archive's map and size to the packed array. */
bool pd_npz_open(struct pd_array *a, const struct pd_zip_entry *e, char *why);
/* Unpacks a deflated array to e->size bytes at `to` and sets map and size to them. */
bool pd_npz_unpack(struct pd_array *a, const struct pd_zip_entry *e, char *to, char *why);

/* ---- inflate.c ------------------------------------------------------------------------------- */

/* Unpacks deflated data to exactly `size` bytes; false: invalid data or another size. */
bool pd_inflate(const char *from, size_t packed, char *to, size_t size);

/* ---- lines.c --------------------------------------------------------------------------------- */

/* The lines of a text, with the start of every PD_MARK-th line. */
enum { PD_MARK = 32 };
struct pd_lines {
  int64_t n, *marks;
  bool numbers; /* tokens are decimal numbers, not bytes */
};
int64_t pd_count_lines(const struct pd_array *text);
/* Fills lines->marks, which has room for all; false for a line of more tokens than a sample of the input has. */
bool pd_mark_lines(const struct pd_array *text, const struct pd_input *in, struct pd_lines *lines, char *why);
/* Reads a line's tokens, followed by `pad`. False for a token outside the input's classes. */
bool pd_read_line(const struct pd_array *text, const struct pd_lines *lines, int64_t line,
                  const struct pd_input *in, int64_t pad, int32_t *to, char *why);

/* ---- documents.c ----------------------------------------------------------------------------- */

/* Windows of up to context + 1 tokens that end with their document, at a stride of context. */
struct pd_documents {
  int64_t context, end;         /* end: the token that ends documents */
  int64_t n, *starts;           /* of windows: the first token; kept until the program ends */
  int64_t documents, positions; /* in the array; tokens of the windows without each document's first */
};
/* Finds the windows of an array of tokens, with `context` and `end` set. False: out of memory. */
bool pd_find_documents(const struct pd_array *a, struct pd_documents *d, char *why);
/* The number of tokens of the window at token `start`. */
int64_t pd_document_tokens(const struct pd_array *a, const struct pd_documents *d, int64_t start);

/* ---- csv.c ----------------------------------------------------------------------------------- */

/* A table of numbers with a row of names, or without. Fields may stand in double quotes. */
struct pd_csv {
  char between; /* the character between fields */
  bool named;   /* the first row has the columns' names */
  size_t first; /* bytes to the first row of numbers */
  int64_t columns, rows;
};
/* Checks that all rows have the same number of fields. */
bool pd_parse_csv(const struct pd_array *a, struct pd_csv *csv, char *why);
/* A field of the first row in the file, without blanks at its ends; not terminated. */
struct pd_csv_name {
  const char *at;
  size_t n;
};
/* The names of all columns of a table that has them. */
bool pd_csv_names(const struct pd_array *a, const struct pd_csv *csv, struct pd_csv_name *to, char *why);
/* Reads n columns of all rows, as int32 for tokens, else as float. column: by number. */
bool pd_read_csv(const struct pd_array *a, const struct pd_csv *csv, const int64_t *column, int64_t n, bool tokens,
                 void *to, char *why);

/* ---- columns.c ------------------------------------------------------------------------------- */

struct pd_table {
  struct pd_csv csv;
  struct pd_csv_name *names; /* by column, all different; NULL: the file has none */
};
bool pd_table_open(const struct pd_array *a, struct pd_table *t, char *why);
void pd_table_close(struct pd_table *t);
/* Writes names of n columns, of the first n if `column` is NULL, with ", " between; the end may be cut off. */
void pd_table_names(const struct pd_table *t, const int64_t *column, int64_t n, char *to, size_t room);
/* The inputs of a model. named: the file was given for one of them by its name. */
struct pd_takers {
  const struct pd_input *inputs;
  int n;
  bool named;
};
/* Chooses the columns of input `index`, one for each element in their order. */
bool pd_table_choose(const struct pd_takers *d, int index, const struct pd_array *a, const struct pd_table *t,
                     int64_t *column, char *why);

/* ---- tar.c ----------------------------------------------------------------------------------- */

struct pd_tar_sample {
  size_t at, bytes; /* of the image, in the file; 0 bytes: an empty image */
  int32_t label;    /* -1: none */
  const char *name; /* of the image; not terminated */
  size_t name_length;
};
struct pd_tar_ignored { /* keys without image and class */
  int64_t keys;
  const char *example; /* not terminated */
  size_t length;
};
bool pd_is_tar(const struct pd_array *a); /* or zeros in a file that ends in .tar */
/* Returns the number of samples, the first `room` of them in `to`; -1: invalid. */
int64_t pd_tar_samples(const struct pd_array *a, struct pd_tar_sample *to, int64_t room,
                       struct pd_tar_ignored *ignored, char *why);

/* A decimal number, with blanks around it as Python's int() takes them; -1: none. */
int32_t pd_class_in(const char *text, size_t n);

/* ---- names.c --------------------------------------------------------------------------------- */

/* Bytes of the UTF-8 character at the start of a text; 0: a control character (pd_control_bytes), or invalid. */
int pd_plain_character(const char *text);
bool pd_is_plain_utf8(const char *name);
bool pd_ends_with_any(const char *name, const char *const *suffixes); /* NULL behind the last; ignores case */
bool pd_is_image_name(const char *name);
bool pd_is_lines_name(const char *path); /* each line is an object of JSON; may be compressed */
/* By folder, then by name, as bytes: the order of sorted(os.walk()) in Python. */
int pd_compare_paths(const char *a, const char *b);

/* ---- zip_images.c ---------------------------------------------------------------------------- */

/* Images of a zip file, in the order that they have in the unpacked folder. */
struct pd_zip_images {
  struct pd_zip_image {
    const char *name; /* in `texts` */
    struct pd_zip_entry entry;
    int32_t label;   /* -1: none */
  } * image, *other; /* other: folders and .cls files */
  int64_t n, n_other, ignored;
  int n_classes;       /* with names: the part of an image's name from `root` to a slash */
  size_t root;         /* length of the folders that hold everything */
  const char *example; /* an ignored file */
  char *texts;
};
bool pd_is_image_zip(const struct pd_array *a); /* or an empty archive, but no .npz */
/* Free *z also after a failure. */
bool pd_zip_images(const struct pd_array *a, struct pd_zip_images *z, char *why);
void pd_zip_images_free(struct pd_zip_images *z);
/* The unpacked bytes of an image or class, e->size of them; the caller frees *owned, NULL after a failure. */
bool pd_zip_unpack(const struct pd_array *a, const struct pd_zip_entry *e, const char *name, const char **bytes,
                   char **owned, char *why);

/* ---- image_folder.c -------------------------------------------------------------------------- */

/* The images of a folder, class by class, or of a tar or zip file; kept until the program ends. */
struct pd_images {
  const char *path;
  const char *map;                     /* of a tar or zip file; NULL: a folder */
  size_t map_size;                     /* of a zip file */
  const struct pd_tar_sample *members; /* of a tar file, by image */
  const struct pd_zip_entry *entries;  /* of a zip file, by image */
  char *list; /* names of the classes, then of the files relative to `path`, each with a zero behind it */
  size_t bytes;
  int64_t n;
  size_t *at;      /* by image: the name in `list` */
  int32_t *labels; /* by image */
  uint8_t *broken; /* by image, with --skip-broken: known to be unreadable */
  int n_labels;    /* labels are below; 0: the images have no labels */
  int n_classes;   /* with names; 0: classes have no names */
  const char **classes;
};
struct pd_images *pd_list_images(const char *path, char *why);
struct pd_images *pd_list_tar(const struct pd_array *a, char *why);
struct pd_images *pd_list_zip(const struct pd_array *a, char *why);
bool pd_same_classes(const struct pd_images *a, const struct pd_images *b, char *why);
/* Numbers the classes as in `names`, which must stay, of the weights of `path`. */
bool pd_renumber_classes(struct pd_images *m, const char **names, int n, const char *path, char *why);

/* ---- decode_image.c -------------------------------------------------------------------------- */

/* Rows of pixels, each of 1 byte, or of 4: red, green, blue, and one without meaning. Zeroed at first; the decoder
 * reuses `at` and makes it larger. */
struct pd_pixels {
  uint8_t *at;
  size_t room;
  int64_t width, height;
  int channels;
};
enum { PD_MOST_PIXELS = 1 << 28 }; /* of an image */
bool pd_images_supported(void);    /* false: built without libjpeg-turbo and libpng */
const char *pd_image_libraries(void);
/* Decodes a JPEG or PNG file of up to `most` pixels as grey (channels 1) or colour. The path is for messages. */
bool pd_decode_image(const char *path, const void *bytes, size_t size, int channels, int64_t most,
                     struct pd_pixels *to, char *why);

/* ---- resample.c ------------------------------------------------------------------------------ */

struct pd_box {
  int64_t left, top, width, height;
};
/* A part of a box of an image that is resized to width x height. */
struct pd_frame {
  struct pd_box box;
  int64_t width, height;
  struct pd_box part; /* within width x height */
};
struct pd_resize_room { /* zeroed at first, then reused */
  void *at;
  size_t bytes;
};
/* Writes the part as planes of numbers in [0, 1]. */
bool pd_resize(const struct pd_pixels *from, const struct pd_frame *f, struct pd_resize_room *room, float *to,
               char *why);

/* ---- augment.c ------------------------------------------------------------------------------- */

bool pd_is_image(const struct pd_input *in); /* [channels, height, width], of numbers */
bool pd_augments(const struct pd_augment *a);
/* True if these inputs have images that allow the changes. folders: whether images come from image files. */
bool pd_augment_fits(const struct pd_augment *a, const struct pd_input *inputs, int n, bool folders, char *why);
/* The side to which an input's images are resized before the central part is cut out: `resize`, or if 0
 * height / 0.875, rounded. */
int64_t pd_resized_height(const struct pd_input *in, int64_t resize);
/* Torchvision's Resize and CenterCrop for an image file of width x height pixels. */
struct pd_frame pd_central_frame(const struct pd_input *in, int64_t resize, int64_t width, int64_t height);
/* Torchvision's RandomResizedCrop. seed, sample: as below. */
struct pd_frame pd_random_frame(const struct pd_augment *a, const struct pd_input *in, uint64_t seed,
                                int64_t sample, int64_t width, int64_t height);
/* sample: global index of the run; seed and sample determine all random choices. */
void pd_augment_image(const struct pd_augment *a, const struct pd_input *in, uint64_t seed, int64_t sample,
                      const float *from, float *to);
/* A change of torchvision's ColorJitter. */
enum pd_color_kind { PD_BRIGHTNESS, PD_CONTRAST, PD_SATURATION, PD_COLORS };
struct pd_color {
  enum pd_color_kind kind;
  float factor;
};
/* Changes a sample of 1 or 3 planes of numbers in [0, 1]. */
void pd_change_color(const struct pd_input *in, struct pd_color change, float *pixels);
/* Torchvision's Normalize for a sample of a PD_IMAGE input. */
void pd_normalise(const struct pd_input *in, float *pixels);

/* ---- derive.c -------------------------------------------------------------------------------- */

bool pd_is_derived(const struct pd_input *in); /* computed: it has no file */
bool pd_is_random(const struct pd_input *in);  /* computed from no other input */
bool pd_is_weight(const struct pd_input *in);  /* a weight of counted positions */
/* The negative token that files of this input may hold, because another input counts all tokens except it; 0:
 * none. */
int64_t pd_ignored(const struct pd_input *inputs, int n, int input);
/* The source input of pd_derive. */
int pd_derived_from(const struct pd_input *inputs, int input);
/* Computes a sample of a derived input from the tokens x of its source; weights are 1 at counted positions,
 * unscaled. seed and sample determine random choices. */
void pd_derive(const struct pd_input *inputs, int input, const int32_t *x, uint64_t seed, int64_t sample,
               void *to);

/* ---- noise.c --------------------------------------------------------------------------------- */

/* Makes a sample of an input of random numbers from the seed, the input's name and the sample's number. */
void pd_make_noise(const struct pd_input *in, uint64_t seed, int64_t sample, void *to);

#ifdef __cplusplus
}
#endif

#endif
