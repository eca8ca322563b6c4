/* Texts compressed by gzip, xz or zstd, read piece by piece: a row of a table for each kind of file. */
#include <stdlib.h>
#include <string.h>
#ifdef PDC_WITH_ZLIB
#include <zlib.h>
#endif
#ifdef PDC_WITH_LZMA
#include <lzma.h>
#endif
#ifdef PDC_WITH_ZSTD
#include <zstd.h>
#endif

#include "tokenize/internal.h"

/* Limits the memory that a header can ask for: files of `zstd --long=31` need 2 GiB. */
enum { MOST_WINDOW_BITS = 31, MOST_AT_ONCE = 1 << 30 };

typedef enum Step { GOES_ON, ENDED, DAMAGED, TOO_LARGE } Step; /* ENDED: of a member; another may follow */

struct Unpacking {
  const struct Kind *kind;
  enum pd_packing packing;
  const char *path, *packed, *from;
  size_t size, left; /* bytes of the file, and those from `from` on */
  char *to;
  size_t room;
  void *state; /* of the library */
  bool ended;  /* the last member that began has ended */
};

typedef struct Kind {
  const char *library, *package;
  bool (*open)(Unpacking *); /* NULL: pdc was built without the library */
  Step (*step)(Unpacking *); /* moves `from` and `to` */
  void (*close)(Unpacking *);
} Kind;

/* ---- the libraries ------------------------------------------------------------------------------- */

#if defined PDC_WITH_ZLIB || defined PDC_WITH_LZMA || defined PDC_WITH_ZSTD
static void moved(Unpacking *u, size_t read, size_t written) {
  u->from += read, u->left -= read;
  u->to += written, u->room -= written;
}
#endif

#ifdef PDC_WITH_ZLIB
static bool gzip_open(Unpacking *u) {
  z_stream *z = u->state = calloc(1, sizeof *z);
  return z && inflateInit2(z, 15 + 16) == Z_OK; /* the largest window, and gzip's header */
}

static Step gzip_step(Unpacking *u) {
  z_stream *z = u->state;
  const unsigned n = (unsigned)(u->left < MOST_AT_ONCE ? u->left : MOST_AT_ONCE),
                 room = (unsigned)(u->room < MOST_AT_ONCE ? u->room : MOST_AT_ONCE);
  z->next_in = (unsigned char *)u->from, z->avail_in = n;
  z->next_out = (unsigned char *)u->to, z->avail_out = room;
  const int code = inflate(z, Z_NO_FLUSH);
  moved(u, n - z->avail_in, room - z->avail_out);
  if (code == Z_STREAM_END)
    return inflateReset(z) == Z_OK ? ENDED : DAMAGED;
  return code == Z_OK || code == Z_BUF_ERROR ? GOES_ON : DAMAGED;
}

static void gzip_close(Unpacking *u) {
  if (u->state)
    inflateEnd(u->state);
  free(u->state);
}
#else
#define gzip_open NULL
#define gzip_step NULL
#define gzip_close NULL
#endif

#ifdef PDC_WITH_LZMA
static bool xz_open(Unpacking *u) {
  lzma_stream *x = u->state = malloc(sizeof *x);
  if (x)
    *x = (lzma_stream)LZMA_STREAM_INIT;
  return x && lzma_stream_decoder(x, (uint64_t)1 << MOST_WINDOW_BITS, LZMA_CONCATENATED) == LZMA_OK;
}

/* All members at once. */
static Step xz_step(Unpacking *u) {
  lzma_stream *x = u->state;
  const size_t n = u->left, room = u->room;
  x->next_in = (const uint8_t *)u->from, x->avail_in = n;
  x->next_out = (uint8_t *)u->to, x->avail_out = room;
  const lzma_ret code = lzma_code(x, LZMA_FINISH);
  moved(u, n - x->avail_in, room - x->avail_out);
  if (code == LZMA_MEMLIMIT_ERROR)
    return TOO_LARGE;
  return code == LZMA_STREAM_END ? ENDED : code == LZMA_OK || code == LZMA_BUF_ERROR ? GOES_ON : DAMAGED;
}

static void xz_close(Unpacking *u) {
  if (u->state)
    lzma_end(u->state);
  free(u->state);
}
#else
#define xz_open NULL
#define xz_step NULL
#define xz_close NULL
#endif

#ifdef PDC_WITH_ZSTD
static bool zstd_open(Unpacking *u) {
  u->state = ZSTD_createDCtx();
  return u->state && !ZSTD_isError(ZSTD_DCtx_setParameter(u->state, ZSTD_d_windowLogMax, MOST_WINDOW_BITS));
}

static Step zstd_step(Unpacking *u) {
  ZSTD_inBuffer in = {u->from, u->left, 0};
  ZSTD_outBuffer out = {u->to, u->room, 0};
  const size_t left = ZSTD_decompressStream(u->state, &out, &in);
  moved(u, in.pos, out.pos);
  return ZSTD_isError(left) ? DAMAGED : left ? GOES_ON : ENDED;
}

static void zstd_close(Unpacking *u) { ZSTD_freeDCtx(u->state); }
#else
#define zstd_open NULL
#define zstd_step NULL
#define zstd_close NULL
#endif

/* ---- kinds of files ------------------------------------------------------------------------------ */

static const Kind kinds[] = {
    [PD_GZIP] = {"zlib", "zlib1g-dev", gzip_open, gzip_step, gzip_close},
    [PD_XZ] = {"liblzma", "liblzma-dev", xz_open, xz_step, xz_close},
    [PD_ZSTD] = {"libzstd", "libzstd-dev", zstd_open, zstd_step, zstd_close},
};

const char *unpacked_kinds(void) {
  const char *list = NULL;
  for (enum pd_packing p = PD_GZIP; p <= PD_ZSTD; p++)
    if (kinds[p].open)
      list = format("%s%s%s", list ? list : "", list ? ", " : "", pd_packing_name(p));
  return list;
}

/* ---- reading ------------------------------------------------------------------------------------- */

Unpacking *unpack_open(const char *path, const char *packed, size_t size, char *why) {
  const enum pd_packing packing = pd_packing_of(packed, size);
  const Kind *k = &kinds[packing];
  if (!k->open) {
    pd_refuse(why,
              "'%s' is compressed by %s, and pdc was built without %s. help: unpack the file with %s, or install "
              "%s and build pdc again",
              path, pd_packing_name(packing), k->library, pd_unpacker(packing), k->package);
    return NULL;
  }
  Unpacking *u = calloc(1, sizeof *u);
  ensure(u);
  *u = (Unpacking){
      .kind = k, .packing = packing, .path = path, .packed = packed, .from = packed, .size = size, .left = size};
  if (k->open(u))
    return u;
  pd_refuse(why, "cannot unpack '%s': no memory for %s", path, k->library);
  unpack_close(u);
  return NULL;
}

/* Behind the last member: nothing, or zeros that fill a block. */
static bool only_zeros(const Unpacking *u) {
  for (size_t i = 0; i < u->left; i++)
    if (u->from[i])
      return false;
  return true;
}

static bool refuse_packed(const Unpacking *u, const char *cause, char *why) {
  return pd_refuse(why, "cannot unpack '%s' from byte %zu of %zu on: %s. help: try '%s -t' on it", u->path,
                   u->size - u->left, u->size, cause, pd_packing_name(u->packing));
}

bool unpack_read(Unpacking *u, char *to, size_t room, size_t *n, char *why) {
  u->to = to, u->room = room;
  while (u->room > 0 && !(u->ended && only_zeros(u))) {
    const size_t left = u->left, before = u->room;
    if (u->ended && pd_packing_of(u->from, u->left) != u->packing)
      return refuse_packed(u, "the bytes behind its end are not of its format", why);
    const Step step = u->kind->step(u);
    u->ended = step == ENDED;
    if (step == TOO_LARGE)
      return refuse_packed(u, "it needs more than 2 GiB to unpack", why);
    if (step == DAMAGED)
      return refuse_packed(u, "it is damaged", why);
    if (step == GOES_ON && u->left == left && u->room == before)
      return refuse_packed(u, u->left ? "it is damaged" : "it ends too early", why);
  }
  *n = room - u->room;
  return true;
}

bool unpack_ended(const Unpacking *u) { return u->ended && only_zeros(u); }

size_t unpack_position(const Unpacking *u) { return u->size - u->left; }

void unpack_close(Unpacking *u) {
  if (!u)
    return;
  u->kind->close(u);
  free(u);
}
