/* Diagnostics: collected, sorted by position, printed as text that quotes the source or as JSON. */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/again.h"
#include "shared/why.h"

bool diagnostics_json, diagnostics_werror;

/* ---- sources ------------------------------------------------------------------------------- */

typedef struct Source {
  const char *path, *text;
  Vec(const char *) lines; /* start of each line; filled on first use */
} Source;
static Vec(Source) sources;

int source_add(const char *path, const char *text) {
  push(&sources, ((Source){.path = format("%s", path), .text = text}));
  return sources.n - 1;
}

int source_count(void) { return sources.n; }

const char *source_path(int file) { return file < 0 ? "pdc" : sources.at[file].path; }

bool source_is_file(const char *path) { return *path != '<'; }

const char *source_text(int file) { return sources.at[file].text; }

static void find_lines(Source *s) {
  push(&s->lines, s->text);
  for (const char *p = s->text; (p = strchr(p, '\n'));)
    push(&s->lines, ++p);
}

const char *source_line_start(const char *text, int line) {
  for (int file = sources.n - 1; file >= 0; file--) {
    Source *s = &sources.at[file];
    if (s->text != text)
      continue;
    if (!s->lines.n)
      find_lines(s);
    return line <= s->lines.n ? s->lines.at[line > 1 ? line - 1 : 0] : text + strlen(text);
  }
  return NULL;
}

/* The line without its newline; empty past the end of the text. */
static const char *source_line(int file, int line, int *length) {
  Source *s = &sources.at[file];
  *length = 0;
  if (!s->lines.n)
    find_lines(s);
  if (line > s->lines.n)
    return "";
  const char *p = s->lines.at[line - 1];
  *length = (int)strcspn(p, "\r\n");
  return p;
}

/* ---- collecting ---------------------------------------------------------------------------- */

struct Diagnostic {
  bool warning;
  Span span;
  const char *code;
  char *text;
  int order;
  Vec(Span) underlined;
  Vec(Remark) remarks;
};

static Vec(Diagnostic *) pending;
static int n_errors;

/* Truncates a message, because it may quote a megabyte of a file. */
static char *format_va(const char *pattern, va_list args) {
  enum { LONGEST = 2000 };
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, pattern, again);
  va_end(again);
  size_t room = (size_t)(n < LONGEST ? n : LONGEST) + sizeof "...";
  char *text = alloc(room);
  vsnprintf(text, room, pattern, args);
  if (n > LONGEST)
    memcpy(text + LONGEST, "...", sizeof "...");
  return text;
}

static Diagnostic *collect(bool warning, Span where, const char *code, const char *pattern, va_list args) {
  Diagnostic *d = alloc(sizeof *d);
  *d = (Diagnostic){.warning = warning && !diagnostics_werror, .span = where, .code = code, .order = pending.n};
  d->text = format_va(pattern, args);
  push(&pending, d);
  if (!d->warning)
    n_errors++;
  return d;
}

Diagnostic *error_at(Span where, const char *code, const char *pattern, ...) {
  va_list args;
  va_start(args, pattern);
  Diagnostic *d = collect(false, where, code, pattern, args);
  va_end(args);
  return d;
}

Diagnostic *warning_at(Span where, const char *code, const char *pattern, ...) {
  va_list args;
  va_start(args, pattern);
  Diagnostic *d = collect(true, where, code, pattern, args);
  va_end(args);
  return d;
}

void underline(Diagnostic *d, Span also) {
  for (int i = 0; i < d->underlined.n; i++)
    if (memcmp(&d->underlined.at[i], &also, sizeof also) == 0)
      return;
  push(&d->underlined, also);
}

void note_at(Diagnostic *d, Span where, const char *pattern, ...) {
  va_list args;
  va_start(args, pattern);
  push(&d->remarks, ((Remark){false, where, format_va(pattern, args)}));
  va_end(args);
}

void help(Diagnostic *d, const char *pattern, ...) {
  va_list args;
  va_start(args, pattern);
  push(&d->remarks, ((Remark){true, NO_SPAN, format_va(pattern, args)}));
  va_end(args);
}

Diagnostic *diagnostic_last(void) { return pending.n ? pending.at[pending.n - 1] : NULL; }

Span diagnostic_move(Diagnostic *d, Span where) {
  Span from = d->span;
  d->span = where;
  d->underlined.n = 0;
  return from;
}

int error_count(void) { return n_errors; }

/* ---- printing ------------------------------------------------------------------------------ */

/* Replaces control characters in text and names of files, because terminals interpret them. */
static void print_plain(const char *text, int length) {
  for (size_t i = 0, control; i < (size_t)length; i += control ? control : 1) {
    control = pd_control_bytes(text + i, (size_t)length - i);
    fputc(control && text[i] != '\t' ? '?' : text[i], stderr);
  }
}

static void print_whole(const char *text) { print_plain(text, (int)strlen(text)); }

static bool continues(char c) { return ((unsigned char)c & 0xc0) == 0x80; } /* UTF-8 */

/* The visible part of a long line, bytes *from to *to, around the column. */
static void window(const char *line, int length, int column, int *from, int *to) {
  enum { WIDEST = 240, SHOWN = 200, BEFORE = 60 };
  *from = 0;
  *to = length;
  if (length <= WIDEST)
    return;
  *from = column - 1 - BEFORE < 0 ? 0 : column - 1 - BEFORE;
  if (*from > length - SHOWN)
    *from = length - SHOWN;
  *to = *from + SHOWN;
  while (*from > 0 && continues(line[*from]))
    --*from;
  while (*to < length && continues(line[*to]))
    ++*to;
}

static void mark(char *marks, int length, int line, Span s, char first) {
  if (s.line > line || s.end_line < line)
    return;
  int from = s.line == line ? s.column - 1 : 0;
  int to = s.end_line == line ? s.end_column - 1 : length;
  if (to <= from)
    to = from + 1;
  for (int i = from; i < to && i <= length; i++)
    if (marks[i] == ' ' || first == '^')
      marks[i] = i == from ? first : '~';
}

/* Prints the span's first line with '^~~~' below it, and '~' below further places on that line. */
static void print_snippet(Span s, const Span *underlined, int n) {
  if (s.file < 0 || s.line < 1)
    return;
  int length;
  const char *line = source_line(s.file, s.line, &length);
  char *marks = alloc((size_t)length + 2);
  memset(marks, ' ', (size_t)length + 1);
  mark(marks, length, s.line, s, '^');
  for (int i = 0; i < n; i++)
    if (underlined[i].file == s.file)
      mark(marks, length, s.line, underlined[i], '~');
  int from, to;
  window(line, length, s.column, &from, &to);
  fprintf(stderr, "%3d | %s", s.line, from > 0 ? "..." : "");
  print_plain(line + from, to - from);
  fprintf(stderr, "%s\n    | %s", to < length ? "..." : "", from > 0 ? "   " : "");
  int end = to;
  while (end > from && marks[end] == ' ')
    end--;
  for (int i = from; i <= end; i++) {
    if (i < length && continues(line[i]))
      continue;
    fputc(i < length && line[i] == '\t' && marks[i] == ' ' ? '\t' : marks[i], stderr);
  }
  fputc('\n', stderr);
}

static void print_text(const Diagnostic *d) {
  print_whole(source_path(d->span.file));
  if (d->span.file >= 0 && d->span.line > 0)
    fprintf(stderr, ":%d:%d", d->span.line, d->span.column);
  fprintf(stderr, ": %s: ", d->warning ? "warning" : "error");
  print_whole(d->text);
  fprintf(stderr, " [%s]\n", d->code);
  print_snippet(d->span, d->underlined.at, d->underlined.n);
  for (int i = 0; i < d->remarks.n; i++) {
    const Remark *r = &d->remarks.at[i];
    if (!r->is_help && r->span.file != d->span.file && r->span.file >= 0) {
      print_whole(source_path(r->span.file));
      fprintf(stderr, ":%d:%d: ", r->span.line, r->span.column);
    }
    fprintf(stderr, "%s: ", r->is_help ? "help" : "note");
    print_whole(r->text);
    fputc('\n', stderr);
    print_snippet(r->span, NULL, 0);
  }
}

static void print_json_string(const char *text) {
  fputc('"', stderr);
  for (const unsigned char *p = (const unsigned char *)make_utf8(format("%s", text)); *p; p++) {
    if (*p == '"' || *p == '\\')
      fprintf(stderr, "\\%c", *p);
    else if (*p < 32)
      fprintf(stderr, "\\u%04x", *p);
    else
      fputc(*p, stderr);
  }
  fputc('"', stderr);
}

static void print_json_place(Span s) {
  fprintf(stderr, "\"file\":");
  if (s.file >= 0)
    print_json_string(source_path(s.file));
  else
    fprintf(stderr, "null");
  fprintf(stderr, ",\"line\":%d,\"column\":%d,\"end_line\":%d,\"end_column\":%d", s.line, s.column, s.end_line,
          s.end_column);
}

static void print_json(const Diagnostic *d) {
  fprintf(stderr, "{\"severity\":\"%s\",\"code\":\"%s\",\"message\":", d->warning ? "warning" : "error", d->code);
  print_json_string(d->text);
  fputc(',', stderr);
  print_json_place(d->span);
  fprintf(stderr, ",\"underlined\":[");
  for (int i = 0; i < d->underlined.n; i++) {
    fprintf(stderr, i ? ",{" : "{");
    print_json_place(d->underlined.at[i]);
    fputc('}', stderr);
  }
  fprintf(stderr, "],\"remarks\":[");
  for (int i = 0; i < d->remarks.n; i++) {
    const Remark *r = &d->remarks.at[i];
    fprintf(stderr, "%s{\"kind\":\"%s\",\"message\":", i ? "," : "", r->is_help ? "help" : "note");
    print_json_string(r->text);
    fputc(',', stderr);
    print_json_place(r->span);
    fputc('}', stderr);
  }
  fprintf(stderr, "]}\n");
}

static int by_position(const void *a, const void *b) {
  const Diagnostic *x = *(Diagnostic *const *)a, *y = *(Diagnostic *const *)b;
  if (x->span.file != y->span.file)
    return x->span.file < y->span.file ? -1 : 1;
  if (x->span.line != y->span.line)
    return x->span.line < y->span.line ? -1 : 1;
  if (x->span.column != y->span.column)
    return x->span.column < y->span.column ? -1 : 1;
  return x->order < y->order ? -1 : 1;
}

/* Whether two diagnostics are the same; a layer inlined many times repeats its errors. */
static bool same(const Diagnostic *a, const Diagnostic *b) {
  return a->span.line > 0 && a->span.file == b->span.file && a->span.line == b->span.line &&
         a->span.column == b->span.column && strcmp(a->code, b->code) == 0;
}

/* "pdc: 7 more errors": the count of omitted diagnostics. */
static void print_rest(int told, int most, const char *what) {
  if (told > most && !diagnostics_json)
    fprintf(stderr, "pdc: %d more %s%s\n", told - most, what, told - most == 1 ? "" : "s");
}

void diagnostics_flush(void) {
  enum { MOST_WARNINGS = 100 };
  int errors = 0, warnings = 0;
  fflush(stdout);
  if (pending.n)
    qsort(pending.at, (size_t)pending.n, sizeof *pending.at, by_position);
  for (int i = 0, last = -1; i < pending.n; i++) {
    if (last >= 0 && same(pending.at[last], pending.at[i]))
      continue;
    last = i;
    if (pending.at[i]->warning ? ++warnings > MOST_WARNINGS : ++errors > MOST_ERRORS)
      continue;
    if (diagnostics_json)
      print_json(pending.at[i]);
    else
      print_text(pending.at[i]);
  }
  print_rest(errors, MOST_ERRORS, "error");
  print_rest(warnings, MOST_WARNINGS, "warning");
  pending.n = 0;
  fflush(stderr);
}

void diagnostics_tell(void (*read)(void *context, const Told *told), void *context) {
  if (pending.n)
    qsort(pending.at, (size_t)pending.n, sizeof *pending.at, by_position);
  for (int i = 0; i < pending.n; i++) {
    const Diagnostic *d = pending.at[i];
    if (i == 0 || !same(pending.at[i - 1], d))
      read(context, &(Told){d->warning, d->span, d->code, d->text, d->remarks.at, d->remarks.n});
  }
  pending.n = 0;
}

static int n_kept_sources;
static Source *kept_sources;
static int kept_room;

void diagnostics_keep(void) {
  ensure(pending.n == 0);
  for (int i = 0; i < sources.n; i++)
    if (!sources.at[i].lines.n)
      find_lines(&sources.at[i]);
  n_kept_sources = sources.n;
  kept_sources = sources.at;
  kept_room = sources.room;
}

void diagnostics_restart(void) {
  sources.n = n_kept_sources;
  sources.at = kept_sources;
  sources.room = kept_room;
  pending.at = NULL;
  pending.n = pending.room = 0;
  n_errors = 0;
}

int diagnostics_mark(void) { return pending.n; }

const char *diagnostics_forget(int mark) {
  const char *first = NULL;
  for (int i = pending.n - 1; i >= mark; i--)
    if (!pending.at[i]->warning) {
      first = pending.at[i]->text;
      n_errors--;
    }
  pending.n = mark;
  return first;
}

Diagnostics diagnostics_take(int mark) {
  Diagnostics taken = {.n = pending.n - mark, .at = alloc((size_t)(pending.n - mark) * sizeof *taken.at)};
  for (int i = 0; i < taken.n; i++)
    taken.at[i] = pending.at[mark + i];
  diagnostics_forget(mark);
  return taken;
}

void diagnostics_put(Diagnostics taken) {
  for (int i = 0; i < taken.n; i++) {
    taken.at[i]->order = pending.n;
    n_errors += !taken.at[i]->warning;
    push(&pending, taken.at[i]);
  }
}

/* ---- suggestions --------------------------------------------------------------------------- */

/* Optimal string alignment distance: insertions, deletions, substitutions and transpositions of neighbours. */
static int edit_distance(const char *a, const char *b) {
  enum { MOST = 64 };
  int n = (int)strlen(a), m = (int)strlen(b);
  if (n >= MOST || m >= MOST)
    return MOST;
  int row[3][MOST];
  for (int j = 0; j <= m; j++)
    row[0][j] = j;
  for (int i = 1; i <= n; i++) {
    int *now = row[i % 3], *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
    now[0] = i;
    for (int j = 1; j <= m; j++) {
      int d = before[j - 1] + (a[i - 1] != b[j - 1]);
      if (before[j] + 1 < d)
        d = before[j] + 1;
      if (now[j - 1] + 1 < d)
        d = now[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && earlier[j - 2] + 1 < d)
        d = earlier[j - 2] + 1;
      now[j] = d;
    }
  }
  return row[n % 3][m];
}

const char *nearest(const char *name, const char *const *candidates, int n) {
  const char *best = NULL;
  int limit = (int)strlen(name) / 3 + 1, least = (limit > 3 ? 3 : limit) + 1;
  for (int i = 0; i < n; i++) {
    int d = edit_distance(name, candidates[i]);
    if (d < least && d < (int)strlen(candidates[i])) {
      least = d;
      best = candidates[i];
    }
  }
  return best;
}

/* ---- pages about diagnostics, bugs --------------------------------------------------------- */

bool explain(const char *code, FILE *out) {
  if (strlen(code) != 6 || strncmp(code, "PD", 2) != 0 || strspn(code + 2, "0123456789") != 4)
    return false;
  char *page = read_file(format("%s/%s.md", own_folder("diagnostics"), code), NULL);
  if (!page)
    return false;
  fputs(page, out);
  return true;
}

void bug(const char *file, int line, const char *pattern, ...) {
  diagnostics_flush();
  fprintf(stderr, "pdc: bug at %s:%d: ", file, line);
  va_list args;
  va_start(args, pattern);
  vfprintf(stderr, pattern, args);
  va_end(args);
  size_t n = 0;
  char *command = read_file("/proc/self/cmdline", &n);
  char *where = getcwd(NULL, 0);
  fprintf(stderr, "\nreproduce with: cd %s &&", where ? where : ".");
  for (size_t i = 0; command && i < n; i += strlen(command + i) + 1)
    fprintf(stderr, " '%s'", command + i);
  fprintf(stderr, "\n");
  exit(70);
}
