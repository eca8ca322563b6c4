/* Device memory that is remapped between addresses of the arena. CUDA's driver needs the same time to map 2 MiB
 * and 128 MiB, so each block gets one piece of memory of its size. A free piece of another size is freed and
 * allocated again; device memory is paged and does not fragment. A page shared by several blocks is a separate
 * piece, mapped until the last of the blocks is released. */
#include "pages.h"

#include "run/upward.h"
#include "pd_cuda.h"
#include "offload/spill.h"

#include <algorithm>
#include <cuda.h>
#include <iterator>
#include <map>
#include <vector>

typedef CUmemGenericAllocationHandle Memory;
struct Page {
  int standing; /* resident blocks in the page, plus one for always resident data */
  int blocks;   /* that may stand in it */
  size_t piece; /* pages of the piece of memory that starts here; 0: none */
  Memory memory;
};

static struct {
  /* The driver's functions, looked up by name, so that programs without offload do not depend on them. */
  struct {
    decltype(&cuMemGetAllocationGranularity) granularity;
    decltype(&cuMemAddressReserve) reserve;
    decltype(&cuMemAddressFree) unreserve;
    decltype(&cuMemCreate) create;
    decltype(&cuMemRelease) release;
    decltype(&cuMemMap) map;
    decltype(&cuMemUnmap) unmap;
    decltype(&cuMemSetAccess) allow;
  } driver;
  std::vector<Page> pages;              /* of the arena, from its beginning */
  std::multimap<size_t, Memory> unused; /* by its pages */
  size_t n_unused;                      /* pages */
  CUmemAllocationProp kind;
} paging;

static size_t page_bytes() { return pd.stage->spilled->page; }
static CUdeviceptr address(size_t page) { return reinterpret_cast<CUdeviceptr>(pd.arena) + page * page_bytes(); }

static void check(CUresult status, const char *what) {
  if (status != CUDA_SUCCESS)
    pd_fail("CUDA's driver reports error %d at: %s; the stage's last work was %s", static_cast<int>(status), what,
            pd_last_work());
}

/* ---- start ----------------------------------------------------------------------------------------- */

template <class F> static bool find(const char *name, F *function) {
  enum { SINCE = 12000 };
  cudaDriverEntryPointQueryResult found;
  void *at = NULL;
#if CUDART_VERSION >= 12050
  cudaError_t status = cudaGetDriverEntryPointByVersion(name, &at, SINCE, cudaEnableDefault, &found);
#else
  cudaError_t status = cudaGetDriverEntryPoint(name, &at, cudaEnableDefault, &found);
#endif
  *function = reinterpret_cast<F>(at);
  return status == cudaSuccess && found == cudaDriverEntryPointSuccess && at;
}

static bool find_functions() {
  return find("cuMemGetAllocationGranularity", &paging.driver.granularity) &&
         find("cuMemAddressReserve", &paging.driver.reserve) &&
         find("cuMemAddressFree", &paging.driver.unreserve) && find("cuMemCreate", &paging.driver.create) &&
         find("cuMemRelease", &paging.driver.release) && find("cuMemMap", &paging.driver.map) &&
         find("cuMemUnmap", &paging.driver.unmap) && find("cuMemSetAccess", &paging.driver.allow);
}

bool pd_pages_reserve(char *why) {
  size_t least = 0;
  CUdeviceptr arena;
  int device;
  pd_cuda_check(cudaGetDevice(&device), "ask for the device");
  paging.kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  paging.kind.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  if (!find_functions())
    return pd_refuse(
        why,
        "this machine's CUDA driver cannot remap memory, which offload needs. help: install a driver for CUDA 12 "
        "or newer");
  check(paging.driver.granularity(&least, &paging.kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "ask for the size of pages");
  if (page_bytes() % least)
    return pd_refuse(why, "this GPU has memory pages of %zu bytes, but the plan expects %zu", least, page_bytes());
  paging.pages.resize((pd.stage->arena_bytes + page_bytes() - 1) / page_bytes());
  check(paging.driver.reserve(&arena, paging.pages.size() * page_bytes(), 0, 0, 0), "reserve addresses");
  pd.arena = reinterpret_cast<char *>(arena);
  return true;
}

/* As pdc's allocate/spill.c counts: pages are always resident unless consecutive blocks cover them. */
static void find_lasting() {
  enum { ALIGNMENT = 64 };
  const pd_spill_block *block = pd_spill_blocks.at;
  for (Page &p : paging.pages) p.standing = 1;
  for (int i = 0, next; i < pd_spill_blocks.n; i = next) {
    const size_t from = block[i].block.offset;
    size_t to = from + block[i].block.bytes;
    for (next = i + 1; next < pd_spill_blocks.n && block[next].block.offset - to < ALIGNMENT; next++)
      to = block[next].block.offset + block[next].block.bytes;
    for (size_t page = (from + page_bytes() - 1) / page_bytes(); page < to / page_bytes(); page++)
      paging.pages[page].standing = 0;
  }
}

static size_t first_page(size_t offset) { return offset / page_bytes(); }
static size_t end_page(size_t offset, size_t bytes) { return (offset + bytes - 1) / page_bytes() + 1; }

static void count_blocks() {
  for (int i = 0; i < pd_spill_blocks.n; i++) {
    const pd_block &b = pd_spill_blocks.at[i].block;
    for (size_t page = first_page(b.offset); page < end_page(b.offset, b.bytes); page++)
      paging.pages[page].blocks++;
  }
}

static bool allocate(size_t n) {
  Memory memory;
  if (paging.driver.create(&memory, n * page_bytes(), &paging.kind, 0) != CUDA_SUCCESS) return false;
  paging.unused.emplace(n, memory);
  paging.n_unused += n;
  return true;
}

static void release(std::multimap<size_t, Memory>::iterator piece) {
  check(paging.driver.release(piece->second), "give back memory");
  paging.n_unused -= piece->first;
  paging.unused.erase(piece);
}

/* Combines the largest free pieces into a piece of `n` pages. Another program may allocate the memory in
 * between. */
static void reshape(size_t n) {
  size_t got = 0;
  while (got < n) {
    const auto largest = std::prev(paging.unused.end());
    got += largest->first;
    release(largest);
  }
  if (!allocate(n) || (got > n && !allocate(got - n)))
    pd_fail("cannot allocate the %.1f MiB that this stage freed on %s: another program on this GPU uses memory",
            static_cast<double>(got * page_bytes()) / (1 << 20), pd_device_name());
}

static void put(size_t page, size_t n) {
  const CUmemAccessDesc access = {paging.kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (paging.unused.find(n) == paging.unused.end()) reshape(n);
  const auto piece = paging.unused.find(n);
  paging.pages[page].piece = n;
  paging.pages[page].memory = piece->second;
  check(paging.driver.map(address(page), n * page_bytes(), 0, piece->second, 0), "give memory to pages");
  check(paging.driver.allow(address(page), n * page_bytes(), &access, 1), "open pages");
  paging.n_unused -= n;
  paging.unused.erase(piece);
}

static void take(size_t page) {
  Page &p = paging.pages[page];
  check(paging.driver.unmap(address(page), p.piece * page_bytes()), "take pages' memory");
  paging.unused.emplace(p.piece, p.memory);
  paging.n_unused += p.piece;
  p.piece = 0;
}

bool pd_pages_start(char *why) {
  enum { PIECE = 64 << 20 }; /* so that a refusal says how much there is */
  const size_t wanted = pd.stage->spilled->resident / page_bytes(), most = PIECE / page_bytes();
  while (paging.n_unused < wanted)
    if (!allocate(std::min(wanted - paging.n_unused, std::max<size_t>(most, 1))))
      return pd_refuse(why, "cannot get the %.1f MiB that the plan gives this stage: %s has %.1f MiB free",
                       static_cast<double>(wanted * page_bytes()) / (1 << 20), pd_device_name(),
                       static_cast<double>(paging.n_unused * page_bytes()) / (1 << 20));
  find_lasting();
  count_blocks();
  for (size_t page = 0, end; page < paging.pages.size(); page = end) {
    for (end = page; end < paging.pages.size() && paging.pages[end].standing; end++)
      ;
    if (end - page > paging.n_unused)
      pd_fail("internal: %zu pages are planned, but more are always resident", wanted);
    if (end > page) put(page, end - page);
    end += end == page;
  }
  return true;
}

/* ---- blocks ---------------------------------------------------------------------------------------- */

bool pd_pages_give(size_t offset, size_t bytes) {
  const size_t end = end_page(offset, bytes);
  size_t missing = 0;
  for (size_t page = first_page(offset); page < end; page++) missing += !paging.pages[page].standing;
  if (missing > paging.n_unused) return false;
  for (size_t page = first_page(offset), next; page < end; page = next) {
    next = page + 1;
    if (paging.pages[page].standing++) continue;
    if (paging.pages[page].blocks == 1)
      while (next < end && paging.pages[next].blocks == 1 && !paging.pages[next].standing)
        paging.pages[next++].standing++;
    put(page, next - page);
  }
  return true;
}

void pd_pages_take(size_t offset, size_t bytes) {
  for (size_t page = first_page(offset); page < end_page(offset, bytes); page++)
    if (!--paging.pages[page].standing && paging.pages[page].piece) take(page);
}

void pd_pages_finish() {
  for (size_t page = 0; page < paging.pages.size(); page++)
    if (paging.pages[page].piece) take(page);
  while (!paging.unused.empty()) release(paging.unused.begin());
  check(paging.driver.unreserve(reinterpret_cast<CUdeviceptr>(pd.arena), paging.pages.size() * page_bytes()),
        "give back addresses");
  paging.pages.clear();
}
