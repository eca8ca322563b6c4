/* A switch saves what the calling convention says a function keeps, on x86-64 and aarch64; elsewhere ucontext
 * does, at the price of two system calls. */
#include "fiber.h"

#include "host.h"

#include <sys/mman.h>
#include <vector>

#if defined __x86_64__ || defined __aarch64__

struct Fiber {
  void *stack_pointer;
};

#ifdef __x86_64__
asm(R"(
    .text
    .globl fiber_switch
    .type fiber_switch, @function
fiber_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq (%rsi), %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    retq
    .size fiber_switch, . - fiber_switch
)");

/* As if entry had been about to start when it was switched away from. */
static void *prepare(char *top, void (*entry)()) {
  void **at = (void **)top;
  *--at = nullptr; /* where entry would return to; keeps the stack aligned as after a call */
  *--at = (void *)entry;
  for (int i = 0; i < 6; i++) *--at = nullptr;
  return at;
}
#else
asm(R"(
    .text
    .globl fiber_switch
    .type fiber_switch, %function
fiber_switch:
    stp x19, x20, [sp, #-160]!
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    ldr x2, [x1]
    mov sp, x2
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    ldp x19, x20, [sp], #160
    ret
    .size fiber_switch, . - fiber_switch
)");

static void *prepare(char *top, void (*entry)()) {
  void **at = (void **)(top - 160);
  for (int i = 0; i < 20; i++) at[i] = nullptr;
  at[11] = (void *)entry; /* x30 */
  return at;
}
#endif

static void make(Fiber *f, char *stack, size_t bytes, void (*entry)()) {
  f->stack_pointer = prepare(stack + bytes, entry);
}

#else

#include <ucontext.h>

struct Fiber {
  ucontext_t context;
};

static void make(Fiber *f, char *stack, size_t bytes, void (*entry)()) {
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = stack;
  f->context.uc_stack.ss_size = bytes;
  makecontext(&f->context, entry, 0);
}

void fiber_switch(Fiber *from, Fiber *to) { swapcontext(&from->context, &to->context); }

#endif

constexpr size_t PAGE = 64 << 10; /* the largest page there is, of guards */

static std::vector<char *> guards;

Fiber *fiber_main() {
  static Fiber f;
  return &f;
}

Fiber *fiber_new(void (*entry)()) {
  char *at = (char *)mmap(nullptr, PAGE + FIBER_STACK, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) cuda_host_die("no memory for the stacks of a block's threads");
  mprotect(at, PAGE, PROT_NONE);
  /* Stacks start at different lines of a page, so that those of a block do not all meet in the same cache sets. */
  size_t colour = guards.size() * 320 % 4096 / 64 * 64;
  guards.push_back(at);
  Fiber *f = new Fiber;
  make(f, at + PAGE, FIBER_STACK - colour, entry);
  return f;
}

bool fiber_overflowed(const void *address) {
  for (char *guard : guards)
    if ((const char *)address >= guard && (const char *)address < guard + PAGE) return true;
  return false;
}
