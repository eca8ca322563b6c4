/* Pages of memory that come to addresses of the arena and go: memory is got once, at the start, as so many pages, and each
 * is where it is needed. A page in which several blocks stand stays until the last of them has gone. */
#include "pages.h"

#include "internal.h"
#include "pd_cuda.h"
#include "spill.h"

#include <cuda.h>
#include <vector>

/* The driver's functions: found by name, so that programs which do not spill need no more of the driver than others. */
static struct {
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) unreserve;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) allow;
} driver;

struct Page {
  int standing; /* blocks that are in memory and stand in it, and what never leaves as one more */
  CUmemGenericAllocationHandle memory;
};

static std::vector<Page> pages;                          /* of the arena, from its beginning */
static std::vector<CUmemGenericAllocationHandle> unused; /* memory of no page */
static CUmemAllocationProp kind;

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
  return find("cuMemGetAllocationGranularity", &driver.granularity) &&
         find("cuMemAddressReserve", &driver.reserve) && find("cuMemAddressFree", &driver.unreserve) &&
         find("cuMemCreate", &driver.create) && find("cuMemRelease", &driver.release) &&
         find("cuMemMap", &driver.map) && find("cuMemUnmap", &driver.unmap) &&
         find("cuMemSetAccess", &driver.allow);
}

bool pd_pages_reserve(char *why) {
  size_t least = 0;
  CUdeviceptr arena;
  int device;
  pd_cuda_check(cudaGetDevice(&device), "ask for the device");
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  if (!find_functions())
    return pd_refuse(why,
                     "this machine's CUDA driver cannot move memory between addresses, which parts that come and "
                     "go need: it is older than CUDA 12's");
  check(driver.granularity(&least, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "ask for the size of pages");
  if (page_bytes() % least)
    return pd_refuse(why, "this GPU's memory comes in pages of %zu bytes, and the plan counts with %zu", least,
                     page_bytes());
  pages.resize((pd.stage->arena_bytes + page_bytes() - 1) / page_bytes());
  check(driver.reserve(&arena, pages.size() * page_bytes(), 0, 0, 0), "reserve addresses");
  pd.arena = reinterpret_cast<char *>(arena);
  return true;
}

/* As pdc's allocate/spill.c counts: pages have something that never leaves, unless blocks in a row cover them. */
static void find_lasting() {
  enum { ALIGNMENT = 64 };
  const pd_spill_block *block = pd_spill_blocks.at;
  for (Page &p : pages) p.standing = 1;
  for (int i = 0, next; i < pd_spill_blocks.n; i = next) {
    const size_t from = block[i].block.offset;
    size_t to = from + block[i].block.bytes;
    for (next = i + 1; next < pd_spill_blocks.n && block[next].block.offset - to < ALIGNMENT; next++)
      to = block[next].block.offset + block[next].block.bytes;
    for (size_t page = (from + page_bytes() - 1) / page_bytes(); page < to / page_bytes(); page++)
      pages[page].standing = 0;
  }
}

static void put(size_t page, CUmemGenericAllocationHandle memory) {
  pages[page].memory = memory;
  check(driver.map(address(page), page_bytes(), 0, memory, 0), "give memory to a page");
}

static void allow(size_t first, size_t end) {
  const CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (first < end) check(driver.allow(address(first), (end - first) * page_bytes(), &access, 1), "open pages");
}

bool pd_pages_start(char *why) {
  const size_t bytes = pd.stage->spilled->resident;
  for (size_t got = 0; got < bytes; got += page_bytes()) {
    CUmemGenericAllocationHandle memory;
    if (driver.create(&memory, page_bytes(), &kind, 0) != CUDA_SUCCESS)
      return pd_refuse(why, "cannot get the %.1f MiB this stage was planned to use: %s has no more than %.1f free",
                       static_cast<double>(bytes) / (1 << 20), pd_device_name(),
                       static_cast<double>(got) / (1 << 20));
    unused.push_back(memory);
  }
  find_lasting();
  for (size_t page = 0; page < pages.size(); page++)
    if (pages[page].standing) {
      if (unused.empty()) pd_fail("internal: %zu bytes are planned, and more never leaves", bytes);
      put(page, unused.back());
      unused.pop_back();
      allow(page, page + 1);
    }
  return true;
}

/* ---- blocks ---------------------------------------------------------------------------------------- */

bool pd_pages_give(size_t offset, size_t bytes) {
  const size_t first = offset / page_bytes(), end = (offset + bytes - 1) / page_bytes() + 1;
  size_t missing = 0, given = first;
  for (size_t page = first; page < end; page++) missing += !pages[page].standing;
  if (missing > unused.size()) return false;
  for (size_t page = first; page < end; page++) { /* pages in a row are opened together */
    if (pages[page].standing++) {
      allow(given, page);
      given = page + 1;
      continue;
    }
    put(page, unused.back());
    unused.pop_back();
  }
  allow(given, end);
  return true;
}

static void take(size_t page) {
  check(driver.unmap(address(page), page_bytes()), "take a page's memory");
  unused.push_back(pages[page].memory);
}

void pd_pages_take(size_t offset, size_t bytes) {
  for (size_t page = offset / page_bytes(); page <= (offset + bytes - 1) / page_bytes(); page++)
    if (!--pages[page].standing) take(page);
}

void pd_pages_finish() {
  for (size_t page = 0; page < pages.size(); page++)
    if (pages[page].standing) take(page);
  for (CUmemGenericAllocationHandle memory : unused) check(driver.release(memory), "give back memory");
  check(driver.unreserve(reinterpret_cast<CUdeviceptr>(pd.arena), pages.size() * page_bytes()),
        "give back addresses");
  pages.clear();
  unused.clear();
}
