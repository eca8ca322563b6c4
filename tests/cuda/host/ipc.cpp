/* Device memory and events that other processes use, by files without a name that these open through /proc. What
 * CUDA leaves undefined ends the program: memory is given back while another process has it mapped, an event is. The
 * memory of one process may be written by the copies of another at any time that streams and events allow.
 *   CUDA_HOST_IPC=0      nothing can be shared, as in some containers
 *   CUDA_HOST_IPC=blind  copies to another process's memory leave nothing there, as with some IOMMUs */
#include "stream.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, WHOLE = 2 << 20 /* of what an allocation shares */ };

/* What a handle says; and the first bytes of a page that both processes see. */
struct Handle {
  uint64_t token;
  int32_t pid, fd, device;
  uint64_t file, at, bytes;
};
struct Page {
  uint64_t token;
  std::atomic<int64_t> users; /* in other processes */
  std::atomic<uint64_t> recorded, happened;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

static bool is(const char *what) {
  const char *text = getenv("CUDA_HOST_IPC");
  return text && !strcmp(text, what);
}

static uint64_t new_token() {
  static uint64_t count;
  return (uint64_t)getpid() << 32 | ++count;
}

/* The other process's file; -1: it is not there. */
static int open_file(const Handle &h) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)h.pid, (int)h.fd);
  return h.pid == getpid() ? -1 : open(path, O_RDWR | O_CLOEXEC);
}

/* ---- memory -------------------------------------------------------------------------------------- */

struct Shared {
  Page *page;
  Handle handle;
};
static std::map<void *, Shared> &exported = *new std::map<void *, Shared>,
                                &imported = *new std::map<void *, Shared>;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *p) {
  if (is("0")) return cuda_host_error(cudaErrorNotSupported);
  auto found = exported.find(p);
  if (found == exported.end()) {
    size_t file, at, bytes;
    void *page;
    int fd = cuda_host_share_memory(p, &file, &at, &bytes, &page);
    if (fd < 0) return cuda_host_error(cudaErrorInvalidValue);
    if (bytes % WHOLE) cuda_host_die("%zu bytes are shared: 2 MiB are, and others' memory may be in them", bytes);
    Shared s = {(Page *)page, {new_token(), (int32_t)getpid(), fd, 0, file, at, bytes}};
    cudaGetDevice(&s.handle.device);
    s.page->token = s.handle.token;
    found = exported.insert({p, s}).first;
  }
  memcpy(handle, &found->second.handle, sizeof(Handle));
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t handle, unsigned flags) {
  Handle h;
  int mine, can = 0;
  memcpy(&h, &handle, sizeof h);
  cudaGetDevice(&mine);
  if (h.device != mine) cudaDeviceCanAccessPeer(&can, mine, h.device);
  if (h.device != mine && (!can || flags != cudaIpcMemLazyEnablePeerAccess))
    return cuda_host_error(cudaErrorMapBufferObjectFailed);
  int fd = open_file(h);
  if (fd < 0) return cuda_host_error(cudaErrorInvalidValue);
  void *page;
  *p = cuda_host_map_shared(fd, h.file, h.at, h.bytes, &page);
  close(fd);
  if (((Page *)page)->token != h.token) cuda_host_die("cudaIpcOpenMemHandle of memory that is gone");
  ((Page *)page)->users++;
  imported[*p] = {(Page *)page, h};
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *p) {
  auto found = imported.find(p);
  if (found == imported.end()) return cuda_host_error(cudaErrorInvalidValue);
  cudaError_t e = cudaDeviceSynchronize();
  found->second.page->users--;
  cuda_host_unmap_shared(p, found->second.page);
  imported.erase(found);
  return e;
}

void cuda_host_check_free(void *p) {
  auto found = exported.find(p);
  if (found == exported.end()) return;
  if (found->second.page->users > 0) cuda_host_die("cudaFree of memory that another process has mapped");
  munmap(found->second.page, PAGE);
  close(found->second.handle.fd);
  exported.erase(found);
}

bool cuda_host_is_blind(const void *to) {
  if (imported.empty() || !is("blind")) return false;
  auto next = imported.upper_bound(const_cast<void *>(to));
  if (next == imported.begin()) return false;
  const auto &[at, s] = *std::prev(next);
  return (const char *)to < (const char *)at + s.handle.bytes;
}

/* ---- events -------------------------------------------------------------------------------------- */

struct cuda_host_shared_event {
  Page *page;
  Handle handle;
  bool imported;
};

static Page *page_of(int fd) {
  void *page = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED) cuda_host_die("a shared event cannot be mapped");
  return (Page *)page;
}

cuda_host_shared_event *cuda_host_new_shared_event() {
  int fd = memfd_create("cuda_host event", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, PAGE)) cuda_host_die("no memory for a shared event");
  auto *e = new cuda_host_shared_event{page_of(fd), {new_token(), (int32_t)getpid(), fd, 0, 0, 0, 0}, false};
  e->page->token = e->handle.token;
  return e;
}

uint64_t cuda_host_record_shared(cuda_host_shared_event *e) { return ++e->page->recorded; }
void cuda_host_happens(cuda_host_shared_event *e, uint64_t record) { e->page->happened = record; }
uint64_t cuda_host_recorded(const cuda_host_shared_event *e) { return e->page->recorded; }
bool cuda_host_has_happened(const cuda_host_shared_event *e, uint64_t record) {
  return e->page->happened >= record;
}

void cuda_host_end_shared_event(cuda_host_shared_event *e) {
  if (e->imported)
    e->page->users--;
  else if (e->page->users > 0)
    cuda_host_die("cudaEventDestroy of an event that another process has opened");
  munmap(e->page, PAGE);
  if (!e->imported) close(e->handle.fd);
  delete e;
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
  cuda_host_event *e = cuda_host_valid_event(event, "cudaIpcGetEventHandle");
  if (is("0")) return cuda_host_error(cudaErrorNotSupported);
  if (!e->shared || e->imported) return cuda_host_error(cudaErrorInvalidResourceHandle);
  memcpy(handle, &e->shared->handle, sizeof(Handle));
  return cudaSuccess;
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
  Handle h;
  memcpy(&h, &handle, sizeof h);
  int fd = open_file(h);
  if (fd < 0) return cuda_host_error(cudaErrorInvalidResourceHandle);
  auto *e = new cuda_host_shared_event{page_of(fd), h, true};
  close(fd);
  if (e->page->token != h.token) cuda_host_die("cudaIpcOpenEventHandle of an event that is gone");
  e->page->users++;
  *event = cuda_host_import_event(e);
  return cudaSuccess;
}
