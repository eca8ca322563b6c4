"""Whether kernels add floating-point numbers in an order that nobody fixes:  orders.py NVCC ARCH FOLDER

FOLDER has kernels as machine code, those that cuDNN compiled. Instructions that add to memory must be those that nvcc makes
of small kernels that do so; none of them may stand in FOLDER's. (cuDNN's own notes say nothing about this: engines have no
note of it in graphs whose kernels do have such instructions.)
"""
import glob
import os
import struct
import subprocess
import sys
import tempfile

# Kernels that add floats to memory in some way, and kernels that do what is near to that.
ADDING = """
struct alignas(64) map { char bytes[128]; };
__global__ void add(float *p, float v) { atomicAdd(p, v); }
__global__ void add_and_read(float *p, float v, float *q) { *q = atomicAdd(p, v); }
#if __CUDA_ARCH__ >= 900
__global__ void add_four(float4 *p, float4 v) { atomicAdd(p, v); }
__global__ void add_block(float *p) {
  __shared__ alignas(128) float x[256];
  unsigned at = (unsigned)__cvta_generic_to_shared(x);
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], 256;" ::"l"(p), "r"(at) : "memory");
}
__global__ void add_tile(const __grid_constant__ map m) {
  __shared__ alignas(128) float x[256];
  unsigned at = (unsigned)__cvta_generic_to_shared(x);
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];"
               ::"l"(&m), "r"(1), "r"(2), "r"(at) : "memory");
}
#endif
"""
OTHERWISE = """
struct alignas(64) map { char bytes[128]; };
__global__ void put(float *p, float v, float *q) { *q = *p; *p = v; }
#if __CUDA_ARCH__ >= 900
__global__ void count(int *p, int *q) { *q = atomicAdd(p, 1); } /* which tile is next */
__global__ void put_block(float *p) {
  __shared__ alignas(128) float x[256];
  unsigned at = (unsigned)__cvta_generic_to_shared(x);
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(p), "r"(at) : "memory");
}
__global__ void put_tile(const __grid_constant__ map m) {
  __shared__ alignas(128) float x[256];
  unsigned at = (unsigned)__cvta_generic_to_shared(x);
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
               ::"l"(&m), "r"(1), "r"(2), "r"(at) : "memory");
}
#endif
"""
# What adds to memory, by compute capability: whole numbers are added likewise before 9.0, floats otherwise from there on.
ADDS = {80: {0x98e, 0x9a8}, 90: {0x98e, 0x9a3, 0x9a6, 0x3b6, 0x3bb}, 100: {0x98e, 0x9a3, 0x9a6, 0x3b6, 0x3bb}}
OPERATION = 0xfff  # of an instruction of 16 bytes, which these bits name


def operations(path):
    """{kernel: its operations}: of the sections .text.KERNEL of an ELF file."""
    with open(path, "rb") as file:
        data = file.read()
    at, = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(count)]
    found = {}
    for section in sections:
        start = sections[names][4] + section[0]
        name = data[start:data.index(b"\0", start)].decode()
        if name.startswith(".text."):
            words = range(section[4], section[4] + section[5], 16)
            found[name[len(".text."):]] = {struct.unpack_from("<Q", data, w)[0] & OPERATION for w in words}
    return found


def compiled(nvcc, arch, text, folder):
    source, cubin = os.path.join(folder, "x.cu"), os.path.join(folder, "x.cubin")
    with open(source, "w") as file:
        file.write(text)
    subprocess.run([nvcc, "-cubin", f"-arch=sm_{arch}", "-o", cubin, source], check=True)
    return operations(cubin)


def main(nvcc, arch, kernels):
    adds = ADDS[int(arch)]
    with tempfile.TemporaryDirectory() as folder:
        blind = [name for name, found in compiled(nvcc, arch, ADDING, folder).items() if not found & adds]
        blind += [name for name, found in compiled(nvcc, arch, OTHERWISE, folder).items() if found & adds]
    if blind:
        sys.exit(f"these kernels are not told apart as they should be: {', '.join(blind)}")
    files = sorted(glob.glob(os.path.join(kernels, "*.cubin")))
    wrong = 0
    for path in files:
        for name, found in operations(path).items():
            if found & adds:
                wrong += 1
                print(f"FAIL {name}: adds to memory ({', '.join(hex(x) for x in sorted(found & adds))})")
    print(f"{len(files)} kernels for sm_{arch}, {wrong} of them add to memory")
    sys.exit(1 if wrong or not files else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
