/* Templates of .pdm text: $name or ${name} inserts a value; [[name: text]] keeps the text if the value is true,
 * [[!name: text]] if it is false. Parts may nest. */
#include <ctype.h>
#include <string.h>

#include "import/internal.h"

static size_t name_length(const char *at) {
  size_t n = 0;
  while (isalnum((unsigned char)at[n]) || at[n] == '_')
    n++;
  return n;
}

/* The end of the part whose text starts here: its "]]". */
static const char *part_end(const char *at, const char *end) {
  for (int depth = 1; at + 1 < end; at++) {
    if (!strncmp(at, "[[", 2))
      depth++, at++;
    else if (!strncmp(at, "]]", 2) && !--depth)
      return at;
    else if (!strncmp(at, "]]", 2))
      at++;
  }
  BUG("a template's part has no end");
}

static void fill(const Import *m, const char *at, const char *end, Text *to) {
  while (at < end) {
    if (*at == '$') {
      const bool braces = at[1] == '{';
      const char *name = at + 1 + braces;
      const size_t n = name_length(name);
      ensure(n && (!braces || name[n] == '}'));
      text_add(to, "%s", known(m, format("%.*s", (int)n, name)));
      at = name + n + braces;
    } else if (end - at > 1 && !strncmp(at, "[[", 2)) {
      const bool negated = at[2] == '!';
      const char *name = at + 2 + negated;
      const size_t n = name_length(name);
      ensure(n && !strncmp(name + n, ": ", 2));
      const char *text = name + n + 2, *close = part_end(text, end);
      if (is_known(m, format("%.*s", (int)n, name)) != negated)
        fill(m, text, close, to);
      at = close + 2;
    } else {
      text_add(to, "%c", *at++);
    }
  }
}

char *template_fill(const Import *m, const char *text) {
  Text to = {0};
  text_add(&to, "%s", "");
  fill(m, text, text + strlen(text), &to);
  return to.at;
}
