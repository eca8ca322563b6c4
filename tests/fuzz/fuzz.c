#define _GNU_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "base/again.h"
#include "elaborate/elaborate.h"
#include "layout/permutes.h"
#include "ops/expression.h"
#include "ops/op.h"
#include "simplify/simplify.h"

/* ---- files: the linker redirects these four calls to this file. Inputs are not files, and standard layers are
 * read once, because the kernel would take a third of a model's time ------------------------------------------ */

static const char given_path[] = "given.pdm";
static const uint8_t *given;
static size_t given_bytes;

const char *fuzz_file(const uint8_t *data, size_t size) {
  given = data;
  given_bytes = size;
  return given_path;
}

Ast *__real_parse_file(const char *path);
Ast *__wrap_parse_file(const char *path);
char *__real_read_file(const char *path, size_t *length);
char *__wrap_read_file(const char *path, size_t *length);
char *__real_realpath(const char *path, char *to);
char *__wrap_realpath(const char *path, char *to);
const char *__real_own_folder(const char *name);
const char *__wrap_own_folder(const char *name);

static const char standard_folder[] = PDC_SOURCE_DIR "/stdlib_layers";
static struct {
  const char *path;
  Ast *file;
} standard[32];
static int n_standard;

static int find_standard(const char *path) {
  size_t n = sizeof standard_folder - 1;
  if (strncmp(path, standard_folder, n) != 0 || path[n] != '/') return -1;
  for (int i = 0; i < n_standard; i++)
    if (!strcmp(standard[i].path + n, path + n)) return i;
  return -1;
}

Ast *__wrap_parse_file(const char *path) {
  int i = find_standard(path);
  return i < 0 ? __real_parse_file(path) : standard[i].file;
}

char *__wrap_read_file(const char *path, size_t *length) {
  if (path != given_path) return __real_read_file(path, length);
  char *text = alloc(given_bytes + 1);
  if (given_bytes) memcpy(text, given, given_bytes);
  if (length) *length = given_bytes;
  return text;
}

char *__wrap_realpath(const char *path, char *to) {
  if (!to && n_standard) {
    if (path == given_path || find_standard(path) >= 0 || !strcmp(path, standard_folder)) return strdup(path);
    if (!strchr(path, '/')) { /* files used by a model are not beside it */
      errno = ENOENT;
      return NULL;
    }
  }
  return __real_realpath(path, to);
}

const char *__wrap_own_folder(const char *name) {
  return strcmp(name, "stdlib_layers") == 0 ? standard_folder : __real_own_folder(name);
}

static void read_standard_layers(void) {
  DIR *dir = opendir(standard_folder);
  if (!dir) abort();
  for (struct dirent *d; (d = readdir(dir));) {
    size_t n = strlen(d->d_name);
    if (n < 4 || strcmp(d->d_name + n - 4, ".pdm")) continue;
    if (n_standard == sizeof standard / sizeof *standard) abort();
    const char *path = format("%s/%s", standard_folder, d->d_name);
    standard[n_standard].file = __real_parse_file(path);
    standard[n_standard++].path = path;
  }
  closedir(dir);
}

/* ---- input by input ------------------------------------------------------------------------------------ */

static void make_model(void);

int fuzz_afresh(int (*run)(const uint8_t *data, size_t size), const uint8_t *data, size_t size) {
  static bool ready;
  static char messages[1 << 16];
  if (!ready) {
    make_model();
    setvbuf(stderr, messages, _IOFBF,
            sizeof messages); /* without this buffer, characters are written one by one */
    read_standard_layers();
    op_expression(all_ops[0]);
    run((const uint8_t *)" ", 1); /* initializes persistent state */
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
