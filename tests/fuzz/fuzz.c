#define _GNU_SOURCE
#include "fuzz.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "autodiff/autodiff.h"
#include "elaborate/elaborate.h"
#include "layout/permutes.h"
#include "simplify/simplify.h"

const char *fuzz_file(const uint8_t *data, size_t size) {
  static int fd = -1;
  if (fd < 0) fd = memfd_create("fuzz", 0);
  if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
  return format("/proc/self/fd/%d", fd);
}

static Graph *graph;
static Pieces pieces;

static void make_model(void) {
  if (graph) return;
  Ast *file = parse_file(PDC_SOURCE_DIR "/tests/fuzz/small.pdm");
  graph = file ? elaborate(file, &(ElaborateOptions){0}) : NULL;
  if (!graph) {
    diagnostics_flush();
    abort();
  }
  move_permutes(graph);
  autodiff(graph);
  simplify(graph);
  pieces = cut(graph);
}

const Graph *fuzz_graph(void) {
  make_model();
  return graph;
}

const Pieces *fuzz_pieces(void) {
  make_model();
  return &pieces;
}
