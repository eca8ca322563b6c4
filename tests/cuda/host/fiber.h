/* Fibers: contexts of execution with stacks of their own, switched by hand. */
#ifndef CUDA_HOST_FIBER_H
#define CUDA_HOST_FIBER_H

#include <cstddef>

constexpr size_t FIBER_STACK = 256 << 10; /* bytes, of which those used are ever touched */

struct Fiber;
Fiber *fiber_main(); /* the program's own context */
/* A fiber that runs entry() when first switched to; entry never returns. */
Fiber *fiber_new(void (*entry)());
extern "C" void fiber_switch(Fiber *from, Fiber *to);
bool fiber_overflowed(const void *address); /* the address lies in the page below a fiber's stack */

#endif
