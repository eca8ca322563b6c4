/* `pdc explain`: prints the page of a diagnostic, or a section of docs/reference/layers.md for a layer or
 * primitive. */
#include "build/build.h"

#include <string.h>

static const char mark[] = "#### "; /* of a layer's heading */

static const char *line_end(const char *at) { return at + strcspn(at, "\n"); }
static const char *next_line(const char *at) { return *line_end(at) ? line_end(at) + 1 : line_end(at); }

Strings layer_names(void) {
  Strings names = {0};
  for (const char *at = read_file(own_folder("layers.md"), NULL); at && *at; at = next_line(at))
    if (!strncmp(at, mark, sizeof mark - 1))
      push(&names, format("%.*s", (int)(line_end(at) - at - (int)sizeof mark + 1), at + sizeof mark - 1));
  return names;
}

/* Prints the section after that heading; a '#' between ``` does not end it. */
static bool explain_layer(const char *name, FILE *out) {
  const char *at = read_file(own_folder("layers.md"), NULL), *heading = format("%s%s\n", mark, name);
  while (at && *at && strncmp(at, heading, strlen(heading)) != 0)
    at = next_line(at);
  if (!at || !*at)
    return false;
  bool code = false;
  const char *start = next_line(next_line(at));
  for (at = start; *at && (code || *at != '#'); at = next_line(at))
    code ^= !strncmp(at, "```", 3);
  while (at > start + 1 && at[-1] == '\n' && at[-2] == '\n')
    at--;
  fprintf(out, "%.*s", (int)(at - start), start);
  return true;
}

bool explain_name(const char *name, FILE *out) {
  if (explain(name, out) || explain_layer(name, out))
    return true;
  Strings names = layer_names();
  const char *like = nearest(name, names.at, names.n);
  Diagnostic *d = error_at(NO_SPAN, "PD0608", "there is no diagnostic, layer or primitive '%s'", name);
  if (like)
    help(d, "did you mean '%s'?", like);
  return false;
}
