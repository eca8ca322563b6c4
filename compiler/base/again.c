#include "base/again.h"

void base_keep(void) {
  names_keep();
  diagnostics_keep();
  arena_keep();
}

void base_restart(void) {
  names_restart();
  diagnostics_restart();
  arena_restart();
}
