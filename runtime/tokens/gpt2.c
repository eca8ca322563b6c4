/* GPT-2's alphabet, and its merges.txt: "#version: 0.2", then two tokens a line with a blank between. */
#include "parts.h"
#include "unicode.h"

#include <string.h>

/* GPT-2's bytes_to_unicode: printable bytes map to themselves; bytes 0 to 0x20, 0x7F to 0xA0 and 0xAD map, in this
 * order, to 0x100 to 0x143. */
static bool prints(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

int32_t pd_byte_character(unsigned char byte) {
  if (prints(byte)) return byte;
  return byte <= 0x20 ? 0x100 + byte : byte <= 0xA0 ? 0x121 + (byte - 0x7F) : 0x143;
}

int pd_character_byte(int32_t point) {
  if (point >= 0 && point < 0x100) return prints(point) ? point : -1;
  if (point >= 0x100 && point <= 0x120) return point - 0x100;
  if (point >= 0x121 && point <= 0x142) return point - 0x121 + 0x7F;
  return point == 0x143 ? 0xAD : -1;
}

/* The line at *text, without its end; advances *text; NULL after the last line. */
static const char *next_line(const char **text, const char *end, size_t *n) {
  const char *line = *text;
  if (line == end) return NULL;
  const char *newline = memchr(line, '\n', (size_t)(end - line));
  *n = (size_t)((newline ? newline : end) - line);
  *text = newline ? newline + 1 : end;
  if (*n && line[*n - 1] == '\r') --*n;
  return line;
}

bool pd_tokenizer_parse_merges(struct pd_tokenizer *t, const char *text, size_t bytes, char *why) {
  static const char version[] = "#version";
  const char *at = text, *end = text + bytes, *line;
  size_t lines = 0, n;
  while (next_line(&at, end, &n)) lines++;
  pd_bpe_expect(&t->bpe, lines);
  at = text;
  for (size_t number = 1; (line = next_line(&at, end, &n)); number++) {
    if (!n || (number == 1 && n >= sizeof version - 1 && !memcmp(line, version, sizeof version - 1))) continue;
    const char *space = memchr(line, ' ', n);
    if (!space ||
        !pd_bpe_add_merge(&t->bpe, line, (size_t)(space - line), space + 1, n - (size_t)(space + 1 - line)))
      return pd_refuse(why, "its line %zu is not a pair of tokens whose merge is a token", number);
  }
  return true;
}
