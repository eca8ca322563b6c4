"""Rates of a GPU for `estimate`. A figure with three values is a range: fast, likely, slow. Sources stand beside each
figure; an assumption says that it is one. None of them is a measurement of pdc's programs: the rates were set before
any such measurement was compared with them.

Of a GPU (data sheets and NVIDIA's white papers, as compiler/cluster/kinds.c):
  multiprocessors, hertz; peak: operations a second on tensor cores, bf16, dense; bandwidth: bytes a second

Of products, which run in waves of tiles over the multiprocessors:
  tiles        (rows, columns, share of `large` in the tile's inner loop). NVIDIA's CUTLASS has the same sizes among its
               defaults; the share of the smaller tile, which reads a third more bytes for each operation, is an assumption
  large        operations a second inside tiles, without their epilogues. sm_90: 880 T. With `epilogue` and `start` it
               explains 43 published times of cuBLAS on an H100 with K from 256 to 4096 within 3 % (root mean square;
               OpenXLA, xla/service/gpu/model/matmul_interpolator_data.h, 2025). It also explains DeepGEMM's times of
               cuBLAS on an H100 SXM for M = 4096, N = 4096 to 32768 and K = 512 to 16384, which were not fitted
               (github.com/waynehacking8/blackwell-tensorcore-kernels, results/reference/deepgemm.txt).
               sm_80: 0.89 of the peak, the same share; an assumption
  sustained    share of `large` in a run that heats the GPU. Fast: 1, as in short runs. Likely: 0.91, cuBLAS at 4096 and
               8192 cubed on an H100 SXM, 733 and 762 TFLOP/s (same repository, results/bench.csv), where this model has
               806 and 834 without it. Slow: 0.8; an assumption (github.com/pranjalssh/fast.cu, issue 13, reports 519
               TFLOP/s at 8192 cubed with CUDA 12.4, 0.62)
  epilogue     bytes a second of all multiprocessors between a tile's last product and the next tile. sm_90: 5.3 T, the
               same fit: 64 KiB of each tile of 128 x 256 take 1.6 us. Slow: 4 T, because an epilogue that reads another
               matrix reached 2.7 to 4.7 T (deepgemm.txt, acc=1). sm_80: scaled by the peak of bandwidth; an assumption
  start        seconds of a product beside its waves and `launch`; the same fit has 5 us for both
  gelu         instructions for each value of GELU, and of its gradient, in an epilogue: those of our own loops
               (docs/results/gpu.md); gelu_seen: share of them that no other tile's products hide; an assumption
  sums_seen    share of the time of reading a factor that adding it up costs a product; an assumption
  epilogues    whether products end in GELU and add up a factor, or a kernel follows them (runtime/cuda/matmul.cu)

Of attention, by the loop over tiles that nvdisasm shows:
  mma          multiply-adds a clock and multiprocessor by mma.sync: 63 % of the peak on sm_90 (Luo et al., "Benchmarking
               and Dissecting the Nvidia Hopper GPU Architecture", 2024)
  of_forward, of_backward
               share of the busiest unit's rate in long sequences without a mask. FlashAttention-2, which also uses
               mma.sync, has 324 TFLOP/s forward and 298 backward on an H100 with heads of 64 (Shah et al.,
               "FlashAttention-3", 2024, figures 5 and 6; backward, the limit of its figures at 512 to 2048). Our forward
               loop would have 590 at its busiest unit, so 0.55 is FlashAttention-2's speed; backward 0.48 of `mma`. Fast
               and slow are a fifth more and a quarter less; an assumption
  of_causal    the same with a causal mask, relative: 303, the limit of the same figures, of 324 TFLOP/s
  short        positions that a sequence is as if longer by, for masked tiles, prologues and epilogues: (full, causal).
               Forward 70 and 330: FlashAttention-2's 282, 306, 318 TFLOP/s at 512, 1024, 2048 positions, and 180, 229, 262
               with a causal mask. Backward 260: 198, 238, 264. Backward with a mask 520, 260 more as forward; an assumption

Of our own kernels:
  of_bandwidth share of bandwidth that streams reach. Likely: 0.85 (kinds.c; copies on H100 SXM: 2.90 TB/s, 0.867,
               aigatech/vpbenchmarking, 32 GPUs of Voltage Park). Fast and slow: assumptions
  issue        instructions of a warp a clock and multiprocessor: four schedulers, one each (CUDA C++ Programming Guide)
  of_issue     share that is reached, as results take 4 to 6 clocks; an assumption
  unhidden     share of the lesser of the times for bytes and for instructions that the other does not hide; an assumption
  mufu, memory special functions, and loads and stores, of a warp a clock and multiprocessor: 16 and 32 lanes (same guide)
  launch       seconds from the end of a kernel to the start of the next in a stream; an assumption"""

CASES = ("fast", "likely", "slow")

H100 = {
    "multiprocessors": 132, "hertz": 1.83e9, "peak": 989e12, "bandwidth": 3.35e12,
    "tiles": ((128, 256, 1), (256, 128, 1), (128, 128, 0.9)), "large": 880e12, "sustained": (1, 0.91, 0.8),
    "epilogue": (5.3e12, 5.3e12, 4e12), "start": (3e-6, 4e-6, 4e-6), "gelu": (14, 30), "gelu_seen": (0, 0.5, 1),
    "sums_seen": (0, 0.5, 1), "epilogues": True,
    "mma": 0.63 * 2048, "of_forward": (0.66, 0.55, 0.41), "of_backward": (0.58, 0.48, 0.36), "of_causal": 0.935,
    "short": {"forward": (70, 330), "backward": (260, 520)},
    "of_bandwidth": (0.92, 0.85, 0.75), "issue": 4, "of_issue": (0.85, 0.7, 0.5), "unhidden": (0, 0.15, 0.4),
    "mufu": 0.5, "memory": 1, "launch": (1e-6, 1e-6, 3e-6)}
A100 = {
    **H100, "multiprocessors": 108, "hertz": 1.41e9, "peak": 312e12, "bandwidth": 2.039e12, "large": 0.89 * 312e12,
    "epilogue": (3.2e12, 3.2e12, 2.4e12), "epilogues": False, "mma": 1024}
RATES = {"sm_90": H100, "sm_80": A100}


def of(arch, case):
    """Rates of one of CASES."""
    return {name: value[CASES.index(case)] if isinstance(value, tuple) and len(value) == len(CASES) and name != "tiles"
            else value for name, value in RATES[arch].items()}
