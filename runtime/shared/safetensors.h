/* The safetensors format: eight bytes of header length, a JSON header, the tensors' bytes. Independent of MPI. */
#ifndef PD_SAFETENSORS_H
#define PD_SAFETENSORS_H

#include "shared/why.h"

#include <stddef.h>
#include <stdint.h>

enum { PD_TENSOR_RANK = 8 };
enum pd_dtype { PD_DTYPE_F32, PD_DTYPE_F16, PD_DTYPE_BF16, PD_DTYPE_F64, PD_DTYPE_OTHER };

struct pd_entry {
  char *name;
  enum pd_dtype dtype;
  int rank;
  int64_t dim[PD_TENSOR_RANK], elements;
  const unsigned char *data, *end; /* not necessarily aligned */
};

struct pd_safetensors {
  int n, n_metadata;
  struct pd_entry *at;
  char *(*metadata)[2]; /* names and values, as text */
  const void *map;      /* of the file, if pd_safetensors_open mapped it */
  size_t map_size;
};

/* Parses the header of a file's bytes, which must outlive the result. Checks every offset, and the format's rules:
 * tensors fill the file without gaps and overlaps, and names are unique. */
bool pd_safetensors_parse(const void *bytes, size_t size, struct pd_safetensors *to, char *why);
void pd_safetensors_free(struct pd_safetensors *s);
/* The entry with this name, or NULL. */
const struct pd_entry *pd_safetensors_find(const struct pd_safetensors *s, const char *name);
/* Element i as float; dtype is not PD_DTYPE_OTHER. */
float pd_entry_float(const struct pd_entry *e, int64_t i);

/* The metadata value with this name, or "". */
const char *pd_safetensors_metadata(const struct pd_safetensors *s, const char *name);

/* The type of a name such as "bfloat16" (of PyTorch), "bf16" or "BF16"; PD_DTYPE_OTHER: not F32, F16 or BF16. */
enum pd_dtype pd_dtype_of(const char *name);
const char *pd_dtype_name(enum pd_dtype dtype); /* PyTorch's: "bfloat16" */
int64_t pd_dtype_bytes(enum pd_dtype dtype);    /* of an element */
/* Rounds n floats to F32, F16 or BF16, to nearest and ties to even. The index of the first finite number that is
 * beyond the type's range and becomes infinite; -1: none. */
int64_t pd_dtype_round(enum pd_dtype dtype, const float *from, int64_t n, void *to);

/* Header of a file of tensors laid one after another: malloc'd, its eight bytes of length included, a multiple of
 * 8 bytes. Entries need name, dtype, rank, dim and elements. */
unsigned char *pd_safetensors_header(const struct pd_entry *entries, int n, const char *const metadata[][2],
                                     int n_metadata, size_t *bytes);

#endif
