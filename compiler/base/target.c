#include "base/target.h"

const char *target_name(TargetKind kind) { return kind == TARGET_CUDA ? "cuda" : "c"; }

const char *precision_name(Precision precision) {
  static const char *const names[] = {"f32", "tf32", "bf16"};
  return names[precision];
}
