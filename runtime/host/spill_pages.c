/* A block has whole chunks of pages from its first whole page, remaining pages after them, and pages at both ends
 * that it may share with adjacent blocks. Chunks are moved between blocks (mremap). All other pages are returned
 * to the kernel; shared ones once the adjacent block is not resident either. */
#define _GNU_SOURCE /* mremap */
#include "spill_pages.h"
#include "offload/spill.h"
#include "shared/moves.h"

#include <sys/mman.h>

enum { PAGE = 4096, LEAST_CHUNK = 256 << 10, MOST_CHUNKS = 1 << 14, NONE = -1, ITS_OWN = -2 };

static struct {
  size_t chunk;      /* bytes; each chunk is a mapping, and the kernel allows 65530 per process */
  int *first;        /* first chunk by block, with one more entry */
  char **address;    /* by chunk */
  int *left, *place; /* free chunks with pages; by chunk: index in the list, or NONE */
  int n_left;
  bool *taken; /* by block: has pages */
  size_t taken_bytes;
  bool idle;
} pages;

static size_t up(size_t n) { return (n + PAGE - 1) / PAGE * PAGE; }
static size_t down(size_t n) { return n / PAGE * PAGE; }
static size_t block_end(const struct pd_spill_block *b) { return b->block.offset + b->block.bytes; }
static int index_of(const struct pd_spill_block *b) { return (int)(b - pd_spill_blocks.at); }

/* ---- chunks ------------------------------------------------------------------------------------ */

static int chunks_of(const struct pd_spill_block *b) {
  size_t from = up(b->block.offset), to = down(block_end(b));
  return from < to ? (int)((to - from) / pages.chunk) : 0;
}

void pd_pages_start(void) {
  const int n = pd_spill_blocks.n;
  pages.chunk = LEAST_CHUNK;
  while (pd.stage->arena_bytes / pages.chunk > MOST_CHUNKS) pages.chunk *= 2;
  pages.first = pd_allocate(sizeof *pages.first * ((size_t)n + 1));
  pages.taken = pd_allocate(sizeof *pages.taken * (size_t)n);
  for (int i = 0; i < n; i++) pages.first[i + 1] = pages.first[i] + chunks_of(&pd_spill_blocks.at[i]);
  pages.address = pd_allocate(sizeof *pages.address * ((size_t)pages.first[n] + 1));
  pages.left = pd_allocate(sizeof *pages.left * ((size_t)pages.first[n] + 1));
  pages.place = pd_allocate(sizeof *pages.place * ((size_t)pages.first[n] + 1));
  for (int i = 0; i < n; i++) {
    const struct pd_block *b = &pd_spill_blocks.at[i].block;
    for (int k = pages.first[i]; k < pages.first[i + 1]; k++) {
      pages.address[k] = pd.arena + up(b->offset) + (size_t)(k - pages.first[i]) * pages.chunk;
      pages.place[k] = NONE;
    }
    /* small pages, because parts of large pages would not be freed */
    madvise(pd.arena + down(b->offset), b->bytes + PAGE, MADV_NOHUGEPAGE);
  }
}

static void remove_left(int k) {
  pages.left[pages.place[k]] = pages.left[--pages.n_left];
  pages.place[pages.left[pages.place[k]]] = pages.place[k];
  pages.place[k] = NONE;
}

/* At most the memory that blocks leave free. */
static void trim(void) {
  const size_t room = pages.idle ? 0 : pd.stage->spilled->room;
  while (pages.n_left && pages.taken_bytes + (size_t)pages.n_left * pages.chunk > room) {
    int k = pages.left[pages.n_left - 1];
    remove_left(k);
    madvise(pages.address[k], pages.chunk, MADV_DONTNEED);
  }
}

/* If the move fails, `to` may be unmapped: maps new pages. */
static void move_chunk(int from, int to) {
  if (mremap(pages.address[from], pages.chunk, pages.chunk, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
             pages.address[to]) != MAP_FAILED)
    return;
  madvise(pages.address[from], pages.chunk, MADV_DONTNEED);
  if (mmap(pages.address[to], pages.chunk, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
    pd_fail("cannot get %zu bytes of memory for blocks of the spill file", pages.chunk);
  madvise(pages.address[to], pages.chunk, MADV_NOHUGEPAGE);
}

void pd_pages_take(const struct pd_spill_block *b) {
  const int i = index_of(b);
  if (pages.taken[i]) return;
  pages.taken[i] = true;
  pages.taken_bytes += pd_paged(PAGE, b->block.bytes);
  pages.idle = false;
  for (int k = pages.first[i]; k < pages.first[i + 1]; k++)
    if (pages.place[k] != NONE) { /* not taken by another block */
      remove_left(k);
      pages.place[k] = ITS_OWN;
    }
  for (int k = pages.first[i]; k < pages.first[i + 1]; k++)
    if (pages.place[k] == NONE && pages.n_left) {
      int from = pages.left[pages.n_left - 1];
      remove_left(from);
      move_chunk(from, k);
    } else {
      pages.place[k] = NONE;
    }
  trim();
}

/* ---- pages at the ends ------------------------------------------------------------------------- */

/* True if the adjacent block does not need its bytes in a shared page: it is neither resident nor being read, and
 * only padding is between. */
static bool is_free(const struct pd_spill_block *neighbour, size_t between) {
  enum { ALIGNMENT = 64 };
  return !neighbour->here && !neighbour->pending[0] && !neighbour->pending[1] && between < ALIGNMENT;
}

static void give_back(size_t from, size_t to) {
  if (from < to) madvise(pd.arena + from, to - from, MADV_DONTNEED);
}

static void give_back_ends(const struct pd_spill_block *b) {
  const struct pd_spill_block *all = pd_spill_blocks.at, *last = all + pd_spill_blocks.n - 1, *p;
  size_t low = b->block.offset, high = block_end(b), from = down(low), to = up(high);
  const size_t chunks = (size_t)chunks_of(b) * pages.chunk, inner = up(low);
  for (p = b; p > all && low > from && is_free(p - 1, low - block_end(p - 1)); p--) low = p[-1].block.offset;
  for (p = b; p < last && high < to && is_free(p + 1, p[1].block.offset - high); p++) high = block_end(p + 1);
  if (low > from) from += PAGE;
  if (high < to) to -= PAGE;
  if (chunks) give_back(from, inner);
  give_back(chunks ? inner + chunks : from, to);
}

void pd_pages_leave(const struct pd_spill_block *b) {
  const int i = index_of(b);
  give_back_ends(b);
  if (!pages.taken[i]) return;
  pages.taken[i] = false;
  pages.taken_bytes -= pd_paged(PAGE, b->block.bytes);
  for (int k = pages.first[i]; k < pages.first[i + 1]; k++) {
    pages.place[k] = pages.n_left;
    pages.left[pages.n_left++] = k;
  }
  trim();
}

void pd_pages_idle(void) {
  pages.idle = true;
  trim();
}
