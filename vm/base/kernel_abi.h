/* The interface between the VM and a native kernel: plain C, versioned, no outside symbols.
 *
 * A kernel is SPMD: the VM calls it once per share of a parallel region with the same
 * arguments; `thread` of `threads` decides which share of the work it does. A given
 * (shape, threads) always splits the same way, so a thread finds its share in its own cache.
 * One that waits at the barrier has a thread for each share. One that never does may be given
 * more shares than there are threads, done in any order (vm/runtime/thread_pool.h).
 * Buffers are dense row-major unless the kernel's contract says otherwise; the VM has checked
 * dtypes, ranks and the relations among dims before the call.
 */
#ifndef NIMBLE_VM_BASE_KERNEL_ABI_H_
#define NIMBLE_VM_BASE_KERNEL_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NIMBLE_KERNEL_ABI_VERSION 1

typedef struct nimble_barrier nimble_barrier;
struct nimble_barrier {
  /* Returns when all threads of the region have called it. Orders memory between them. */
  void (*wait)(nimble_barrier* self, int32_t thread);
};

typedef struct nimble_kernel_args {
  uint32_t version; /* NIMBLE_KERNEL_ABI_VERSION */
  uint32_t buffer_count;
  void* const* buffers;   /* inputs, then outputs, in the contract's order */
  const int64_t* symbols; /* values of the contract's symbols, in its order */
  void* scratch;          /* shared by the threads; 64-byte aligned; contents undefined */
} nimble_kernel_args;

/* 0 on success; any other value is a run-time check of the kernel that failed
 * (for example an index out of range), reported with the kernel's name. */
typedef int32_t (*nimble_kernel_fn)(const nimble_kernel_args* args, int32_t thread, int32_t threads,
                                    nimble_barrier* barrier);

#ifdef __cplusplus
}
#endif
#endif
