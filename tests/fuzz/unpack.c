/* Input: a compressed file. Unpacks up to 256 KiB of it in one piece, and in pieces of another size, with the same result. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "tokenize/internal.h"

enum { MOST = 1 << 18 };

/* Bytes of the text; false: refused. */
static bool unpack(const char *packed, size_t size, size_t piece, char *to, size_t *n) {
  char why[PD_WHY] = "";
  Unpacking *u = unpack_open("fuzz", packed, size, why);
  bool good = u != NULL;
  size_t some = piece;
  for (*n = 0; good && some == piece && *n + piece <= MOST; *n += good ? some : 0)
    good = unpack_read(u, to + *n, piece, &some, why);
  if (good && some > piece) abort();
  if (good && some < piece && !unpack_ended(u)) abort();
  if (u && unpack_position(u) > size) abort();
  if (good == (*why != 0)) abort();
  unpack_close(u);
  return good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static char whole[MOST], pieces[MOST];
  const char *packed = (const char *)data;
  size_t n, m;
  if (!pd_packing_of(packed, size)) return 0;
  const bool good = unpack(packed, size, MOST, whole, &n);
  const size_t piece = (size_t)64 << (data[size - 1] % 13);
  const bool again = unpack(packed, size, piece, pieces, &m);
  if (good != again || (good && (n != m || memcmp(whole, pieces, n) != 0))) abort();
  return 0;
}
