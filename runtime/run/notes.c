/* Notes and warnings of rank 0 on standard error. */
#define _GNU_SOURCE /* vasprintf */
#include "run/run.h"

#include <stdarg.h>
#include <stdlib.h>

static void say(const char *kind, const char *format, va_list args) {
  fprintf(stderr, "pd: %s: ", kind);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
}

void pd_note(const char *format, ...) {
  if (pd.self || pd_options.quiet) return;
  char *text;
  va_list args;
  va_start(args, format);
  int n = vasprintf(&text, format, args);
  va_end(args);
  if (n < 0) return;
  pd_make_plain(text);
  fprintf(stderr, "pd: note: %s\n", text);
  free(text);
}

void pd_warn(const char *format, ...) {
  if (pd.self) return;
  va_list args;
  va_start(args, format);
  say("warning", format, args);
  va_end(args);
}
