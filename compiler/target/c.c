/* Processors: C with OpenMP, oneDNN. */
#include "build/build.h"
#include "emit/print.h"
#include "lower/lower.h"

extern const Backend backend_c;
const Backend backend_c = {
  .name = "c",
  .lowering = &host_lowering,
  .dialect = &c_dialect,
  .toolchain = &c_toolchain,
};
