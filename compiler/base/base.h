/* Shared by all passes: arenas, interned names, vectors, source spans, diagnostics. There is no free(): memory
 * lives until an arena mark is released or the process ends. */
#ifndef PDC_BASE_H
#define PDC_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- arena (arena.c) ---------------------------------------------------------------------- */

/* Zeroed memory, aligned to 16 bytes. Never returns NULL: running out of memory ends the process. */
void *alloc(size_t bytes);
void *alloc_copy(const void *from, size_t bytes);

/* A place in the arena. Releasing the mark frees all later allocations, for searches over many plans that keep
 * only a number. The caller must not use that memory again. Interned names survive. The arena in use must be that
 * of the mark. */
typedef struct ArenaMark {
  char *unused;
  size_t unused_bytes;
  struct Block *blocks;
} ArenaMark;
ArenaMark arena_mark(void);
void arena_release(ArenaMark mark);

/* Another arena, for work with a small result: alloc() allocates in the arena in use. NULL: the arena of the
 * process, for tables that outlive the work. */
typedef struct Arena Arena;
Arena *arena_new(void);
Arena *arena_use(Arena *a); /* returns the arena in use before */

/* Equal interned names are equal pointers; compare them with ==. */
typedef const char *Name;
Name intern(const char *text);
Name intern_n(const char *text, size_t length);
Name internf(const char *pattern, ...) __attribute__((format(printf, 1, 2)));
/* Formats into the arena, without interning. */
char *format(const char *pattern, ...) __attribute__((format(printf, 1, 2)));

/* ---- vectors (arena.c) -------------------------------------------------------------------- */

/* Vec(int) v = {0}; push(&v, 3); v.at[0]; v.n. Growing copies within the arena, so pointers into
 * `at` do not survive a push: keep ids. */
/* clang-format off */
#define Vec(T) struct { T *at; int n, room; }
/* clang-format on */
#define push(v, ...)                                                                         \
  ((v)->n == (v)->room ? (v)->at = vec_grow((v)->at, &(v)->room, sizeof *(v)->at) : (v)->at, \
   (v)->at[(v)->n++] = (__VA_ARGS__))
void *vec_grow(void *at, int *room, size_t element);
typedef Vec(int) Ints;

/* ---- text buffers (arena.c) --------------------------------------------------------------- */

typedef struct Text {
  char *at;
  size_t n, room;
} Text;
void text_add(Text *t, const char *pattern, ...) __attribute__((format(printf, 2, 3)));
char *make_utf8(char *text);                       /* replaces invalid UTF-8 by '?'; returns the text (utf8.c) */
size_t skip_mark(const char *text, size_t length); /* bytes of the byte-order mark at the start of the text */
const char *bytes_text(int64_t bytes);             /* "13.0 GiB" */
const char *with_commas(int64_t n);                /* "137,216" */

/* ---- files (file.c) ----------------------------------------------------------------------- */

/* The whole file, NUL-terminated, or NULL with errno set. */
char *read_file(const char *path, size_t *length);
const char *read_failure(int failed); /* strerror of read_file's errno */
/* Writes a temporary file, syncs, renames. False with errno set; an existing file is then unchanged. */
bool write_file(const char *path, const char *text, size_t length);
/* False after PD0605 if writing `output` would replace the file `input`, or a file of the folder `input` whose name does not
 * end with `ending`. Accepts NULL for both paths. */
bool output_is_no_input(const char *output, const char *input, const char *ending);
const char *without_slashes(const char *path); /* at its end */
/* The exit status; not 0, after a message, if standard output could not be written. */
int output_status(int status);
/* SHA-256 of the bytes as 64 hexadecimal digits, in the arena. */
char *sha256_hex(const void *bytes, size_t length);

/* ---- pdc's own files (places.c) ------------------------------------------------------------ */

/* The installation prefix, such as /usr, or the build folder that pdc runs from. */
const char *own_prefix(void);
/* PREFIX/share/pdc/NAME without symbolic links, in the arena. Names: "stdlib_layers", "runtime", "diagnostics". */
const char *own_folder(const char *name);

/* ---- source positions (diagnostic.c) ------------------------------------------------------ */

/* Lines and columns count from 1; columns are bytes. The end column is one past the last byte.
 * file indexes the list of sources; a span with line 0 names the file only, file -1 nothing. */
typedef struct Span {
  int file, line, column, end_line, end_column;
} Span;
static const Span NO_SPAN = {-1, 0, 0, 0, 0};

/* Registers a source text so that diagnostics can quote it; returns its file number. */
int source_add(const char *path, const char *text);
const char *source_path(int file);
const char *source_text(int file);
/* The start of line `line`, from 1, or the end of a text with fewer lines. NULL: the text is not a registered
 * source. */
const char *source_line_start(const char *text, int line);
/* Whether the name is that of a file, and not of a text such as "<command line>". */
bool source_is_file(const char *path);
int source_count(void); /* for -MD: number of texts read, including "<command line>" */

/* ---- diagnostics (diagnostic.c) ----------------------------------------------------------- */

/* One Diagnostic per root cause, followed by notes and helps. Printed to stderr as text or JSON lines, sorted by
 * position when flushed. A code such as "PD0102" has a page in docs/reference/diagnostics/. Its first two digits:
 *   00 lexical and syntax, 01 names and syntax of layers, 02 arguments and attributes, 03 shapes and types,
 *   04 train settings, 05 planning, 06 files and environment, 07 schedules, 08 inference and generation */
typedef struct Diagnostic Diagnostic;
Diagnostic *error_at(Span where, const char *code, const char *pattern, ...) __attribute__((format(printf, 3, 4)));
Diagnostic *warning_at(Span where, const char *code, const char *pattern, ...)
    __attribute__((format(printf, 3, 4)));
void underline(Diagnostic *d, Span also); /* '~' under a second place on the error's line */
void note_at(Diagnostic *d, Span where, const char *pattern, ...) __attribute__((format(printf, 3, 4)));
void help(Diagnostic *d, const char *pattern, ...) __attribute__((format(printf, 2, 3)));
/* The last reported diagnostic, for a caller's notes; NULL: none is pending. */
Diagnostic *diagnostic_last(void);
/* Moves the diagnostic to another place and drops its underlines; returns the old place. */
Span diagnostic_move(Diagnostic *d, Span where);
enum { MOST_ERRORS = 20 }; /* reported together; a pass with more errors may stop */
int error_count(void);     /* with -Werror warnings count */
/* Drops all diagnostics since the mark, for callers that try alternatives; returns the first error, or NULL. */
int diagnostics_mark(void);
const char *diagnostics_forget(int mark);
/* Sets all diagnostics since the mark aside, so that they count no longer; puts them behind those of now. */
typedef struct Diagnostics {
  int n;
  Diagnostic **at;
} Diagnostics;
Diagnostics diagnostics_take(int mark);
void diagnostics_put(Diagnostics taken);
void diagnostics_flush(void);
/* Passes all diagnostics to `read` instead of printing them, each once and in order; none is pending
 * afterwards. */
typedef struct Remark {
  bool is_help;
  Span span;
  char *text;
} Remark;
typedef struct Told {
  bool warning;
  Span span;
  const char *code, *text;
  const Remark *remarks;
  int n_remarks;
} Told;
void diagnostics_tell(void (*read)(void *context, const Told *told), void *context);
extern bool diagnostics_json, diagnostics_werror;

/* The candidate nearest to `name` by edit distance; NULL: no candidate is near enough to suggest. */
const char *nearest(const char *name, const char *const *candidates, int n);

/* Prints the page docs/reference/diagnostics/CODE.md; false if there is no page. */
bool explain(const char *code, FILE *out);

/* A bug in pdc: prints the message with the command line to reproduce it, and exits with 70. */
_Noreturn void bug(const char *file, int line, const char *pattern, ...) __attribute__((format(printf, 3, 4)));
#define BUG(...) bug(__FILE__, __LINE__, __VA_ARGS__)
#define ensure(condition) ((condition) ? (void)0 : BUG("%s", #condition))

#endif
