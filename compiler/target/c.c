/* Processors: C with OpenMP, oneDNN. */
#include "build/build.h"
#include "emit/print.h"
#include "lower/lower.h"
#include "plan/device.h"

const Backend backend_c = {
  .name = "c",
  .device = &processors,
  .lowering = &host_lowering,
  .dialect = &c_dialect,
  .toolchain = &c_toolchain,
};
