/* The instruction sets that a program was compiled with. On a processor without one of them the program ends with
 * a message, before any code uses it. oneDNN is limited to them. */
#include "processor.h"

#include "pd_kernels.h"

#include <unistd.h>

#ifdef __x86_64__

/* Compiled for baseline x86-64, so that this code runs where other code ends with SIGILL. */
#define BASELINE \
  __attribute__((target("no-avx,no-bmi,no-bmi2,no-lzcnt,no-movbe,no-popcnt,no-sse4.1,no-sse3"), noinline))

/* The newest instruction set of the program that the processor lacks; NULL: none. */
BASELINE static const char *lacking(void) {
#define NEEDS(feature, name) \
  if (!__builtin_cpu_supports(feature)) return name
  __builtin_cpu_init();
#ifdef __AVX512BF16__
  NEEDS("avx512bf16", "AVX-512 with bf16");
#endif
#ifdef __AVX512VPOPCNTDQ__
  NEEDS("avx512vpopcntdq", "AVX-512 VPOPCNTDQ");
#endif
#ifdef __AVX512BITALG__
  NEEDS("avx512bitalg", "AVX-512 BITALG");
#endif
#ifdef __AVX512VBMI2__
  NEEDS("avx512vbmi2", "AVX-512 VBMI2");
#endif
#ifdef __AVX512VBMI__
  NEEDS("avx512vbmi", "AVX-512 VBMI");
#endif
#ifdef __AVX512VNNI__
  NEEDS("avx512vnni", "AVX-512 VNNI");
#endif
#ifdef __AVX512BW__
  NEEDS("avx512bw", "AVX-512");
  NEEDS("avx512dq", "AVX-512");
  NEEDS("avx512vl", "AVX-512");
#endif
#ifdef __AVX512F__
  NEEDS("avx512f", "AVX-512");
#endif
#ifdef __AVX2__
  NEEDS("avx2", "AVX2");
#endif
#ifdef __FMA__
  NEEDS("fma", "FMA");
#endif
#ifdef __BMI2__
  NEEDS("bmi2", "BMI2");
#endif
#ifdef __BMI__
  NEEDS("bmi", "BMI");
#endif
#ifdef __AVX__
  NEEDS("avx", "AVX");
#endif
#ifdef __SSE4_2__
  NEEDS("sse4.2", "SSE4.2");
#endif
#undef NEEDS
  return NULL;
}

BASELINE static void say(const char *text) {
  size_t n = 0;
  while (text[n]) n++;
  if (write(STDERR_FILENO, text, n) < 0) _exit(1);
}

BASELINE static void require(int argc, char **argv, char **environment) {
  (void)argc, (void)argv, (void)environment;
  const char *name = lacking();
  if (!name) return;
  say("pd: this program was compiled for a processor with ");
  say(name);
  say(", and this one has none: compile it on this machine, or for both with pdc --march x86-64-v3 (or -v2)\n");
  _exit(1);
}

/* Runs before the constructors of libraries. */
__attribute__((section(".preinit_array"), used)) static void (*const before)(int, char **, char **) = require;

#endif

void pd_limit_to_compiled(void) {
#if !defined __x86_64__ || defined __AMX_BF16__
  pd_limit_library(PD_ALL_INSTRUCTIONS);
#elif defined __AVX512BF16__
  pd_limit_library(PD_AVX512_BF16);
#elif defined __AVX512BW__ && defined __AVX512VL__ && defined __AVX512DQ__
  pd_limit_library(PD_AVX512);
#elif defined __AVX2__
  pd_limit_library(PD_AVX2);
#elif defined __AVX__
  pd_limit_library(PD_AVX);
#else
  pd_limit_library(PD_SSE41);
#endif
}
