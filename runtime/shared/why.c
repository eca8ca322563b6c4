#include "shared/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t pd_control_bytes(const char *text, size_t n) {
  const unsigned char *c = (const unsigned char *)text;
  if (n >= 1 && (c[0] < 32 || c[0] == 127)) return 1;
  if (n >= 2 && c[0] == 0xC2 && c[1] >= 0x80 && c[1] <= 0x9F) return 2;
  if (n < 3 || c[0] != 0xE2) return 0;
  const bool embeds = c[1] == 0x80 && c[2] >= 0xAA && c[2] <= 0xAE,
             isolates = c[1] == 0x81 && c[2] >= 0xA6 && c[2] <= 0xA9;
  return embeds || isolates ? 3 : 0;
}

void pd_make_plain(char *text) {
  char *to = text;
  for (size_t left = strlen(text), control; left > 0; left -= control ? control : 1) {
    control = pd_control_bytes(text, left);
    *to++ = *text;
    if (control) to[-1] = '?';
    text += control ? control : 1;
  }
  *to = 0;
}

bool pd_refuse(char *why, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(why, PD_WHY, format, args);
  va_end(args);
  pd_make_plain(why);
  return false;
}
