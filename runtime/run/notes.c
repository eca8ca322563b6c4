/* Notes and warnings of rank 0 on standard error. */
#define _GNU_SOURCE /* vasprintf */
#include "run/run.h"

#include <stdarg.h>
#include <stdlib.h>

static void say(const char *kind, const char *format, va_list args) {
  char *text;
  if (vasprintf(&text, format, args) < 0) return;
  pd_make_plain(text);
  fprintf(stderr, "pd: %s: %s\n", kind, text);
  free(text);
}

void pd_note(const char *format, ...) {
  if (pd.self || pd_options.quiet) return;
  va_list args;
  va_start(args, format);
  say("note", format, args);
  va_end(args);
}

void pd_warn(const char *format, ...) {
  if (pd.self) return;
  va_list args;
  va_start(args, format);
  say("warning", format, args);
  va_end(args);
}
