/* Processors: C with OpenMP, oneDNN. */
#include "target/target.h"

extern const struct Device processors;
extern const struct Lowering host_lowering;
extern const struct Dialect c_dialect;
extern const struct Toolchain c_toolchain;

const Backend backend_c = {
    .name = "c",
    .device = &processors,
    .lowering = &host_lowering,
    .dialect = &c_dialect,
    .toolchain = &c_toolchain,
};
