/* The list of targets, in the order in which --help names them. */
#include "target/target.h"

#include <stddef.h>

extern const Backend backend_c, backend_cuda;

const Backend *const all_backends[] = {&backend_c, &backend_cuda, NULL};

const Backend *backend_of(TargetKind kind) { return all_backends[kind]; }

const char *target_name(TargetKind kind) { return backend_of(kind)->name; }

const char *precision_name(Precision precision) {
  static const char *const names[] = {"f32", "tf32", "bf16"};
  return names[precision];
}
