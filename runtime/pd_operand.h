/* Operands of the library calls: where the elements stand, and in C++, where they can be of several types,
 * which. */
#ifndef PD_OPERAND_H
#define PD_OPERAND_H

#ifndef __cplusplus
#define PD_NORETURN _Noreturn
typedef const float *pd_in;
typedef float *pd_out;
#else
#define PD_NORETURN [[noreturn]]
#include <cstddef>
struct __nv_bfloat16; /* cuda_bf16.h */
enum pd_type { PD_F32, PD_BF16 };
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
