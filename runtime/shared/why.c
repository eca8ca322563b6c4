#include "shared/why.h"

#include <stdarg.h>
#include <stdio.h>

void pd_make_plain(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 32 || *text == 127) *text = '?';
}

bool pd_refuse(char *why, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(why, PD_WHY, format, args);
  va_end(args);
  pd_make_plain(why);
  return false;
}
