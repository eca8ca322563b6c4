/* The processors to compile for: this machine's, or those of --march. Scratch memory is planned for the
 * instructions that oneDNN may use there. */
#include "build/build.h"
#include "device/device.h"

#include <string.h>

#include "pd_kernels.h"

/* Clang before 15 lacks -march=native on Arm; -mcpu=native also sets the scheduling model. */
#ifdef __aarch64__
#define NATIVE "-mcpu=native"
#else
#define NATIVE "-march=native"
#endif

static const char *march_flag(const char *march) {
  if (!march)
    march = PDC_MARCH;
  return strcmp(march, "native") ? format("-march=%s", march) : NATIVE;
}

void add_march(Strings *c, const char *march) {
  push(c, march_flag(march));
  /* Clang 19 warns about the AVX10.1 that it finds itself; older compilers do not know that warning. */
  push(c, "-Wno-unknown-warning-option");
  push(c, "-Wno-invalid-feature-combination");
}

static bool defines(const char *macros, const char *name) {
  return strstr(macros, format("#define %s 1\n", name));
}

/* Must agree with runtime/host/processor.c, which uses the same macros. */
static enum pd_instructions instructions_of(const char *macros) {
  if (!defines(macros, "__x86_64__") || defines(macros, "__AMX_BF16__"))
    return PD_ALL_INSTRUCTIONS;
  if (defines(macros, "__AVX512BF16__"))
    return PD_AVX512_BF16;
  if (defines(macros, "__AVX512BW__") && defines(macros, "__AVX512VL__") && defines(macros, "__AVX512DQ__"))
    return PD_AVX512;
  return defines(macros, "__AVX2__") ? PD_AVX2 : defines(macros, "__AVX__") ? PD_AVX : PD_SSE41;
}

bool march_prepare(const Options *o) {
  const char *march = o->march ? o->march : PDC_MARCH;
  Target target = o->plan.target;
  if (!strcmp(march, "native") || backend_of(&target)->device->has_arch)
    return true;
  static const char *const ask[] = {"-dM", "-E", "-x", "c", "/dev/null"};
  Strings c = compiler_command(o, &c_toolchain);
  add_march(&c, march);
  add_all(&c, ask, sizeof ask / sizeof *ask);
  char *macros = command_output(&c, format("asking the compiler about '%s'", march_flag(march)));
  if (!macros) {
    help(diagnostic_last(),
         "'--march' takes the values of the compiler's -march: x86-64-v2, x86-64-v3, x86-64-v4, or a processor");
    return false;
  }
  pd_limit_library(instructions_of(macros));
  return true;
}
