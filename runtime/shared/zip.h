/* Zip archives by their directory, also with 64-bit sizes: .npz files and PyTorch's. PKWARE's APPNOTE.TXT describes
 * the format. */
#ifndef PD_ZIP_H
#define PD_ZIP_H

#include "shared/why.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PD_ZIP_STORED = 0, PD_ZIP_DEFLATED = 8 };
struct pd_zip_entry {
  const char *name;
  int name_length, method;
  bool encrypted;
  uint32_t checksum;
  uint64_t local, packed, size; /* file offset; bytes packed and unpacked */
};

/* An archive's bytes, and the part of its directory that is not read yet. */
struct pd_zip {
  const char *map;
  size_t size, at, end;
};

/* Finds the directory. Functions fill `why` to follow the file's name: "is cut short or damaged at ..". */
bool pd_zip_open(struct pd_zip *z, const void *bytes, size_t size, const char *kind, char *why);
/* Reads the directory's next entry; call while at < end. */
bool pd_zip_next(struct pd_zip *z, struct pd_zip_entry *e, char *why);
/* The entry's packed bytes, `e->packed` of them; NULL after filling `why`. */
const char *pd_zip_data(const struct pd_zip *z, const struct pd_zip_entry *e, char *why);

#ifdef __cplusplus
}
#endif

#endif
