/* Offload to a file, in pieces: a piece is read or written while the previous one is copied. Host functions in
 * separate streams access the file, so that CUDA orders them; pieces go through pinned memory. */
#include "spill_place.h"

#include "offload/spill.h"
#include "offload/spill_file.h"

#include <vector>

#ifndef PD_SPILL_PIECE
#define PD_SPILL_PIECE (16 << 20) /* bytes; tests have smaller ones */
#endif

struct Piece { /* argument of the host functions, per block */
  const pd_spill_block *block;
  size_t at, n;
  char *memory; /* pinned buffer of the piece's current or last direction */
  uint64_t checksum;
};

/* One direction: file accesses and copies, in one stream each, with pinned buffers between them. */
enum { BUFFERS = 2 };
struct Way {
  cudaStream_t file, copies;
  struct {
    char *memory;
    cudaEvent_t filled, emptied;
  } buffer[BUFFERS];
  int turn;
};

static struct {
  Way in, out;
  std::vector<std::vector<Piece>> pieces; /* by block */
} disk;

static std::vector<Piece> &pieces_of(const pd_spill_block *b) {
  return disk.pieces[static_cast<size_t>(b - pd_spill_blocks.at)];
}

/* ---- start and end ----------------------------------------------------------------------------------- */

static void start_way(Way *w) {
  w->file = pd_spill_stream(), w->copies = pd_spill_stream();
  for (auto &b : w->buffer) {
    b.memory = static_cast<char *>(pd_cuda_pinned(PD_SPILL_PIECE));
    b.filled = pd_cuda_event(), b.emptied = pd_cuda_event();
  }
}

static bool start(const char *place, int64_t bytes, char *why) {
  if (!pd_spill_file_make(place, bytes, why)) return false;
  disk.pieces.resize(static_cast<size_t>(pd_spill_blocks.n));
  for (int i = 0; i < pd_spill_blocks.n; i++) {
    const pd_spill_block *b = &pd_spill_blocks.at[i];
    for (size_t at = 0; at < b->block.bytes; at += PD_SPILL_PIECE) {
      const size_t left = b->block.bytes - at;
      pieces_of(b).push_back({b, at, left < PD_SPILL_PIECE ? left : static_cast<size_t>(PD_SPILL_PIECE), NULL, 0});
    }
  }
  start_way(&disk.in);
  start_way(&disk.out);
  return true;
}

static void finish() {
  for (cudaStream_t s : {disk.in.file, disk.in.copies, disk.out.file, disk.out.copies}) {
    pd_cuda_check(cudaStreamSynchronize(s), "end work with the spill file");
    pd_cuda_check(cudaStreamDestroy(s), "end a stream");
  }
}

/* ---- pieces ------------------------------------------------------------------------------------------- */

/* After a failure no further access is tried; the next wait ends the launch. */
static void read_piece(void *of) {
  const Piece *p = static_cast<const Piece *>(of);
  if (!pd_spill_file_failure()) pd_spill_file_read(p->block, p->at, p->memory, p->n, p->checksum);
}

static void write_piece(void *of) {
  Piece *p = static_cast<Piece *>(of);
  if (!pd_spill_file_failure()) pd_spill_file_write(p->block, p->at, p->memory, p->n, &p->checksum);
}

static void copy(void *to, const void *from, size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
  pd_cuda_check(cudaMemcpyAsync(to, from, n, kind, stream), "copy a piece of a block");
}

static void call(cudaHostFn_t work, Piece *p, cudaStream_t stream) {
  pd_cuda_check(cudaLaunchHostFunc(stream, work, p), "have the spill file read or written");
}

static void bring(pd_spill_block *b, const pd_spill_events &events) {
  for (Piece &p : pieces_of(b)) {
    auto &buffer = disk.in.buffer[disk.in.turn++ % BUFFERS];
    p.memory = buffer.memory;
    pd_spill_order(disk.in.file, buffer.emptied);
    call(read_piece, &p, disk.in.file);
    pd_spill_record(buffer.filled, disk.in.file);
    pd_spill_order(disk.in.copies, buffer.filled);
    copy(pd.arena + b->block.offset + p.at, p.memory, p.n, cudaMemcpyHostToDevice, disk.in.copies);
    pd_spill_record(buffer.emptied, disk.in.copies);
  }
  pd_spill_record(events.arrived, disk.in.copies);
}

static void send(pd_spill_block *b, const pd_spill_events &events) {
  pd_spill_order(disk.out.copies, events.used);
  for (Piece &p : pieces_of(b)) {
    auto &buffer = disk.out.buffer[disk.out.turn++ % BUFFERS];
    p.memory = buffer.memory;
    pd_spill_order(disk.out.copies, buffer.emptied);
    copy(p.memory, pd.arena + b->block.offset + p.at, p.n, cudaMemcpyDeviceToHost, disk.out.copies);
    pd_spill_record(buffer.filled, disk.out.copies);
    pd_spill_order(disk.out.file, buffer.filled);
    call(write_piece, &p, disk.out.file);
    pd_spill_record(buffer.emptied, disk.out.file);
  }
  pd_spill_record(events.gone, disk.out.file);
}

const pd_spill_place pd_spill_to_disk = {start, finish, bring, send, true, pd_spill_file_failure};
