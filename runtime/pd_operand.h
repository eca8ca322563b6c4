/* Operands of library calls: address and element type. Programs pass plain pointers, which convert implicitly in
 * C++ and by the macros of pd_calls.h in C. */
#ifndef PD_OPERAND_H
#define PD_OPERAND_H

enum pd_type { PD_F32, PD_BF16 };

#ifndef __cplusplus
#include <stdint.h>
#define PD_NORETURN _Noreturn
/* The upper half of a float, in a struct to prevent arithmetic by mistake; kernels/pd_bf16.h converts. */
typedef struct pd_bf16 {
  uint16_t bits;
} pd_bf16;
typedef struct pd_in {
  const void *at;
  enum pd_type type;
} pd_in;
typedef struct pd_out {
  void *at;
  enum pd_type type;
} pd_out;
#else
#define PD_NORETURN [[noreturn]]
#include <cstddef>
struct __nv_bfloat16; /* cuda_bf16.h */
struct pd_in {
  const void *at;
  pd_type type;
  pd_in(std::nullptr_t) : at(nullptr), type(PD_F32) {}
  pd_in(const float *x) : at(x), type(PD_F32) {}
  pd_in(const __nv_bfloat16 *x) : at(x), type(PD_BF16) {}
};
struct pd_out {
  void *at;
  pd_type type;
  pd_out(std::nullptr_t) : at(nullptr), type(PD_F32) {}
  pd_out(float *x) : at(x), type(PD_F32) {}
  pd_out(__nv_bfloat16 *x) : at(x), type(PD_BF16) {}
};
#endif

#endif
