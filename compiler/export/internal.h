/* Shared by the files of export/. */
#ifndef PDC_EXPORT_INTERNAL_H
#define PDC_EXPORT_INTERNAL_H

#include "export/export.h"
#include "import/import.h"

/* ---- gguf.c: the file format ------------------------------------------------------------------------ */

typedef enum { GGML_F32 = 0, GGML_F16 = 1, GGML_Q8_0 = 8 } GgmlType;

/* How the rows or elements of a tensor stand in the file. */
typedef enum {
  ORDER_SAME,
  ORDER_TRANSPOSED,   /* the folder has [in, out] */
  ORDER_ROTARY_PAIRS, /* by head: the halves of a head in turns, as llama.cpp rotates neighbours */
  ORDER_BY_PART       /* rows (head, part) become (part, head): q, k and v behind one another */
} Order;

typedef struct Exported { /* a tensor of the file */
  const char *name;
  const Tensor *from; /* NULL: `numbers` */
  /* Of a tensor of all experts: a tensor of the folder for each, `rows` rows in all; else NULL. */
  const Tensor **experts;
  int64_t n_experts;
  const float *numbers;
  int64_t rows, columns; /* in the file; a vector has one row */
  bool vector;
  GgmlType type;
  Order order;
  int64_t heads; /* of ORDER_ROTARY_PAIRS and ORDER_BY_PART */
  float plus;    /* added to each element */
} Exported;

typedef struct Bytes {
  char *at;
  size_t n, room;
} Bytes;

/* Metadata and tensors of a file. */
typedef struct Gguf {
  Bytes fields;
  uint64_t n_fields;
  Vec(Exported) tensors;
} Gguf;

void gguf_text(Gguf *g, const char *key, const char *text);
void gguf_uint(Gguf *g, const char *key, uint64_t x);
void gguf_float(Gguf *g, const char *key, double x);
void gguf_bool(Gguf *g, const char *key, bool x);
void gguf_texts(Gguf *g, const char *key, const char *const *texts, int64_t n);
void gguf_ints(Gguf *g, const char *key, const int32_t *x, int64_t n);
void gguf_floats(Gguf *g, const char *key, const float *x, int64_t n);
/* False after a diagnostic. */
bool gguf_write(const Gguf *g, const char *path);

/* ---- families.c: names, orders and metadata of llama.cpp's architectures ------------------------------ */

/* Adds the fields and tensors of the model; false after a diagnostic. */
bool export_model(const Imported *m, GgmlType type, Gguf *g);

/* ---- tokens.c: the tokenizer --------------------------------------------------------------------------- */

/* Adds the folder's tokenizer for a model of `classes` tokens; false after a diagnostic. */
bool export_tokens(const char *folder, int64_t classes, Gguf *g);

#endif
