/* Repairs UTF-8 (Unicode 16, table 3-7), because JSON requires valid text and names and contents of files are
 * arbitrary. */
#include "base/base.h"

#include <string.h>

/* The length in bytes of the valid character that starts here; 0: none. */
static int character_bytes(const unsigned char *s) {
  const int n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;
  for (int i = 1; i < n; i++)
    if ((s[i] & 0xc0) != 0x80)
      return 0;
  const bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90),
             none = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f); /* surrogates; past U+10FFFF */
  return overlong || none ? 0 : n;
}

size_t skip_mark(const char *text, size_t length) {
  return length >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
}

char *make_utf8(char *text) {
  for (unsigned char *s = (unsigned char *)text; *s;) {
    const int n = character_bytes(s);
    if (!n)
      *s = '?';
    s += n ? n : 1;
  }
  return text;
}
