/* The units of the language and of the command line. */
#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Unit {
  const char *name, *base;
  double scale;
} Unit;

/* clang-format off */
static const Unit units[] = {
  {"B", "bytes", 1}, {"KB", "bytes", 1e3}, {"MB", "bytes", 1e6}, {"GB", "bytes", 1e9}, {"TB", "bytes", 1e12},
  {"KiB", "bytes", 0x1p10}, {"MiB", "bytes", 0x1p20}, {"GiB", "bytes", 0x1p30}, {"TiB", "bytes", 0x1p40},
  {"B/s", "bytes/s", 1}, {"KB/s", "bytes/s", 1e3}, {"MB/s", "bytes/s", 1e6}, {"GB/s", "bytes/s", 1e9},
  {"TB/s", "bytes/s", 1e12}, {"MiB/s", "bytes/s", 0x1p20}, {"GiB/s", "bytes/s", 0x1p30},
  {"bit/s", "bytes/s", 1.0 / 8}, {"Kbit/s", "bytes/s", 1e3 / 8}, {"Mbit/s", "bytes/s", 1e6 / 8},
  {"Gbit/s", "bytes/s", 1e9 / 8}, {"Tbit/s", "bytes/s", 1e12 / 8},
  {"s", "seconds", 1}, {"ms", "seconds", 1e-3}, {"us", "seconds", 1e-6}, {"ns", "seconds", 1e-9},
  {"FLOPS", "operations/s", 1}, {"MFLOPS", "operations/s", 1e6}, {"GFLOPS", "operations/s", 1e9},
  {"TFLOPS", "operations/s", 1e12}, {"PFLOPS", "operations/s", 1e15},
};
/* clang-format on */

enum { N_UNITS = sizeof units / sizeof *units };

const char *const *unit_names(int *n) {
  static const char *names[N_UNITS];
  for (int i = 0; i < N_UNITS; i++)
    names[i] = units[i].name;
  *n = N_UNITS;
  return names;
}

bool quantity_read(const char *text, double *value, const char **base) {
  char *end;
  double number = strtod(text, &end);
  if (end == text)
    return false;
  end += strspn(end, " \t");
  for (size_t i = 0; i < N_UNITS; i++)
    if (!strcmp(end, units[i].name)) {
      *value = number * units[i].scale;
      *base = units[i].base;
      return isfinite(*value);
    }
  return false;
}
