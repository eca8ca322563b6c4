#include "why.h"

#include <stdarg.h>
#include <stdio.h>

bool pd_refuse(char *why, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(why, PD_WHY, format, args);
  va_end(args);
  return false;
}
