/* `pdc explain`: prints the page of a diagnostic, or a section of docs/reference/layers.md for a layer or
 * primitive. */
#include "build/build.h"

#include <string.h>

static const char mark[] = "#### "; /* of a layer's heading */

static const char *line_end(const char *at) { return at + strcspn(at, "\n"); }
static const char *next_line(const char *at) { return *line_end(at) ? line_end(at) + 1 : line_end(at); }

/* The first line of the section on primitives; NULL: the page is not there. */
static const char *primitives(void) {
  const char *page = read_file(own_folder("layers.md"), NULL);
  return page ? strstr(page, "\n## Primitives\n") : NULL;
}

Strings layer_names(void) {
  Strings names = {0};
  for (const char *at = read_file(own_folder("layers.md"), NULL); at && *at; at = next_line(at))
    if (!strncmp(at, mark, sizeof mark - 1))
      push(&names, format("%.*s", (int)(line_end(at) - at - (int)sizeof mark + 1), at + sizeof mark - 1));
  for (const char *at = primitives(); at && (at = strchr(at, '`')) != NULL; at += strcspn(at + 1, "`\n") + 2) {
    const size_t name = strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (name > 0 && at[name + 1] == '(')
      push(&names, format("%.*s", (int)name, at + 1));
  }
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

/* Primitives stand in tables, "| `select(condition, a, b)` | text |", or as "`exp(x)`" below the text that describes several. */
static bool explain_primitive(const char *name, FILE *out) {
  const char *start = format("`%s(", name), *above = NULL, *at = primitives();
  for (; at && *at; at = next_line(at)) {
    const char *signature = strstr(at, start), *end = line_end(at);
    if (signature && signature < end) {
      const char *close = strchr(signature + 1, '`'),
                 *text = strncmp(at, "| ", 2) ? above : close + strlen("` | ");
      const char *last = text == above ? strstr(text, "\n\n") : end - strlen(" |");
      fprintf(out, "%.*s\n\n%.*s\n", (int)(close - signature - 1), signature + 1, (int)(last - text), text);
      return true;
    }
    if (at[0] >= 'A' && at[0] <= 'Z' && at[-1] == '\n' && at[-2] == '\n')
      above = at;
  }
  return false;
}

bool explain_name(const char *name, FILE *out) {
  if (explain(name, out) || explain_layer(name, out) || explain_primitive(name, out))
    return true;
  Strings names = layer_names();
  const char *like = nearest(name, names.at, names.n);
  Diagnostic *d = error_at(NO_SPAN, "PD0608", "there is no diagnostic, layer or primitive '%s'", name);
  if (like)
    help(d, "did you mean '%s'?", like);
  return false;
}
