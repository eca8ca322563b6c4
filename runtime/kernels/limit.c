/* oneDNN's instruction set: at most the program's, so that a program for an older processor has the
 * same bits and the planned memory on a newer one. */
#define PD_KERNELS
#include "pd_kernels.h"

#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>

/* Must precede any other call of the library. A setting of the user has priority. */
void pd_limit_library(enum pd_instructions most) {
  static const dnnl_cpu_isa_t isa[] = {[PD_SSE41] = dnnl_cpu_isa_sse41,
                                       [PD_AVX] = dnnl_cpu_isa_avx,
                                       [PD_AVX2] = dnnl_cpu_isa_avx2,
                                       [PD_AVX512] = dnnl_cpu_isa_avx512_core,
                                       [PD_AVX512_BF16] = dnnl_cpu_isa_avx512_core_bf16};
  if (most == PD_ALL_INSTRUCTIONS || getenv("ONEDNN_MAX_CPU_ISA") || getenv("DNNL_MAX_CPU_ISA")) return;
  dnnl_set_max_cpu_isa(isa[most]);
}
