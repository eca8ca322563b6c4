#define _GNU_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "autodiff/autodiff.h"
#include "base/again.h"
#include "elaborate/elaborate.h"
#include "layout/permutes.h"
#include "ops/expression.h"
#include "ops/op.h"
#include "simplify/simplify.h"

const char *fuzz_file(const uint8_t *data, size_t size) {
  static int fd = -1;
  if (fd < 0) fd = memfd_create("fuzz", 0);
  if (pwrite(fd, data, size, 0) != (ssize_t)size || ftruncate(fd, (off_t)size)) abort();
  return format("/proc/self/fd/%d", fd);
}

/* ---- standard layers, read once: the linker sends calls of parse_file here --------------------------- */

Ast *__real_parse_file(const char *path);
Ast *__wrap_parse_file(const char *path);

static struct {
  const char *path;
  Ast *file;
} standard[32];
static int n_standard;

Ast *__wrap_parse_file(const char *path) {
  for (int i = 0; i < n_standard; i++)
    if (!strcmp(standard[i].path, path)) return standard[i].file;
  return __real_parse_file(path);
}

static void read_standard_layers(void) {
  static const char folder[] = PDC_SOURCE_DIR "/stdlib_layers";
  DIR *dir = opendir(folder);
  if (!dir) abort();
  for (struct dirent *d; (d = readdir(dir));) {
    size_t n = strlen(d->d_name);
    if (n < 4 || strcmp(d->d_name + n - 4, ".pdm")) continue;
    if (n_standard == sizeof standard / sizeof *standard) abort();
    const char *path = format("%s/%s", folder, d->d_name);
    standard[n_standard].file = __real_parse_file(path);
    standard[n_standard++].path = path;
  }
  closedir(dir);
}

/* ---- one input after the other ------------------------------------------------------------------------- */

static void make_model(void);

int fuzz_afresh(int (*run)(const uint8_t *data, size_t size), const uint8_t *data, size_t size) {
  static bool ready;
  static char messages[1 << 16];
  if (!ready) {
    make_model();
    setvbuf(stderr, messages, _IOFBF,
            sizeof messages); /* without a buffer of ours each character is written alone */
    read_standard_layers();
    op_expression(all_ops[0]);
    run((const uint8_t *)" ", 1); /* what is made once and kept, made before */
    run(data, size);
    diagnostics_flush();
    base_keep();
    ready = true;
  }
  base_restart();
  return run(data, size);
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

void fuzz_passes(Graph *g) {
  graph_verify(g);
  move_permutes(g);
  graph_verify(g);
  autodiff(g);
  graph_verify(g);
  simplify(g);
  graph_verify(g);
  Pieces p = cut(g);
  pieces_verify(g, &p);
}

const Graph *fuzz_graph(void) {
  make_model();
  return graph;
}

const Pieces *fuzz_pieces(void) {
  make_model();
  return &pieces;
}
