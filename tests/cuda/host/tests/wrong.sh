#!/bin/sh
# wrong.sh PROGRAM: each of its programs fails with the words that belong to its mistake, whatever the seed
# ("always"), or, where the order of things decides, for some of the seeds and not for others ("sometimes").
program=$1
bad=0
while IFS='|' read -r name how words; do
  failed=0
  for seed in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    out=$(CUDA_HOST_SEED=$seed "$program" "$name" 2>&1)
    status=$?
    [ $status = 0 ] && continue
    failed=$((failed + 1))
    case $out in
    *"$words"*) ;;
    *) echo "$name, seed $seed: '$words' is not in: $out"; bad=1 ;;
    esac
    [ $status = 1 ] || [ $status = 3 ] || { echo "$name, seed $seed: exit status $status"; bad=1; }
  done
  case $how in
  always) [ $failed = 16 ] ;;
  sometimes) [ $failed -gt 0 ] && [ $failed -lt 16 ] ;;
  esac || { echo "$name: $failed of 16 seeds fail, which must be: $how"; bad=1; }
done <<'END'
out_of_bounds|always|kernel 'reach', block (0, 0, 0), thread (999, 0, 0): a read of 4 bytes at index 1000
below|always|a read of 4 bytes at index -1 of a buffer of 1000 elements is out of bounds
too_small|always|launch of 'reach': a buffer to read is of 4000 bytes at byte 0 of an allocation of 3996
host_memory|always|is in no memory of the device
in_place|always|a buffer of 4000 bytes that is written overlaps with another parameter's of 4000
cursor|always|an access of 4 bytes at index 1000 of a buffer of 1000 elements is out of bounds
vector_beyond|always|a read of 16 bytes at index 998 of a buffer of 1000 elements is out of bounds
misaligned|always|an access of 16 bytes at index 6 of elements of 4 bytes is misaligned
misaligned_plain|always|must be a multiple of 16
misaligned_half|always|must be a multiple of 8
guard|always|touches byte 4096 of an allocation of 4096 bytes of device memory: out of bounds
slack|always|somebody has written byte 4000 of an allocation of 4000 bytes
shared_part|always|4000 bytes are shared: 2 MiB are
null|always|touches address (nil)
shared_index|always|index 64 of an array 'float[64]' is out of bounds
dynamic_beyond|always|touches byte 256 of 256 bytes of dynamic shared memory
stack|always|a thread's stack of 256 KiB has overflowed
poison|always|index 0 of a buffer of 1000 elements is read, which nobody has written
shared_poison|always|shared memory that nobody has written is no number
race|always|a barrier is missing
missed_barrier|always|__syncthreads is missed by thread (7, 0, 0), which has ended
diverged|always|wait at different __syncthreads: the block's threads have diverged
lane_missing|always|__shfl_xor_sync waits for lane 9 of its warp, which has ended (lanes missing: 0x00000200)
lanes_of_no_thread|always|__syncwarp waits for lane 8 of its warp, which the block does not have
mask|always|__shfl_sync: the mask 0x0000ffff does not name lane
source|always|reads lane 20, which takes no part
warp_diverged|always|the warp's lanes have diverged
launch_bounds|always|a block of 96 threads, beyond __launch_bounds__(64)
block|always|a block of 2048 threads: 1024 is the most
grid|always|a grid of (0, 1, 1) blocks
dynamic_size|always|65536 bytes of dynamic shared memory: the kernel may have 49152 (cudaFuncSetAttribute)
default_stream|always|kernel 'idle' is launched on the default stream (0): name a stream
default_copy|always|cudaMemsetAsync on the default stream (0): name a stream
destroyed|always|on a stream that does not exist or has been destroyed
two_streams|sometimes|an event between two streams is missing
pinned_reused|sometimes|pinned memory was reused too early
pinned_late|sometimes|pinned memory was written too late
read_early|sometimes|the host reads before the copy is done
copy_and_other_stream|sometimes|a non-blocking stream does not wait for cudaMemcpy
stuck|always|nothing has come from outside; stream 1 (1 operations): a message
unfinished|sometimes|1 operations have not run
leak|always|1 allocations of device and pinned memory, together 4000 bytes, have not been freed
host_access|always|touches byte 0 of 40 of device memory from the host
copy_beyond|always|cudaMemsetAsync: what is set is of 41 bytes at byte 0 of an allocation of 40
copy_kind|always|the destination (4 bytes at
freed_twice|always|cudaFree of what is not allocated
END
exit $bad
