"""What a GPU does in a second, for `estimate`: data sheets, and the share of them that programs reach. One place, so
that an estimate can be made again; measured figures (docs/performance.md) are to replace the shares.

products      operations a second on tensor cores, bf16, dense (NVIDIA's data sheets, as compiler/cluster/kinds.c)
of_products   share that large cuBLASLt products reach (kinds.c)
epilogues     whether products end in GELU and add up a factor, or a kernel follows them (runtime/cuda/matmul.cu: from
              Hopper on)
tile          rows and columns of the tiles that products are made of; an assumption
mma           multiply-adds a clock and multiprocessor by mma.sync, which attention uses: on sm_90 63 % of the peak
              (Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", 2024)
of_mma        share of the busiest unit's rate that attention reaches: FlashAttention-2 (Dao, 2023, figure 5) has 50
              to 70 % of an A100's products
bandwidth     bytes a second; of_bandwidth: share that streams reach (kinds.c)
issue         instructions of a warp a clock and multiprocessor: four schedulers, one each (CUDA C++ Programming
              Guide)
of_issue      share that is reached: the rest waits for memory, or for a result of 4 to 6 clocks ago; an assumption
mufu, memory  special functions, and loads and stores, of a warp a clock and multiprocessor: 16 and 32 lanes (same)
launch        seconds from the end of a kernel to the begin of the next in a stream; an assumption"""

H100 = {"multiprocessors": 132, "hertz": 1.83e9, "products": 989e12, "of_products": 0.75, "epilogues": True,
        "tile": (128, 256), "mma": 0.63 * 2048, "of_mma": 0.6, "bandwidth": 3.35e12, "of_bandwidth": 0.85, "issue": 4,
        "of_issue": 0.7, "mufu": 0.5, "memory": 1, "launch": 1e-6}
A100 = {**H100, "multiprocessors": 108, "hertz": 1.41e9, "products": 312e12, "epilogues": False,
        "tile": (128, 128), "mma": 1024, "bandwidth": 2.039e12}
RATES = {"sm_90": H100, "sm_80": A100}
