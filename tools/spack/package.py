# Spack's recipe of pdc, for a repository of one's own (docs/start/install.md, "Without root").
from spack.package import *


class Pdc(CMakePackage):
    """Compiler of model descriptions into one C or CUDA program per pipeline stage."""

    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("cmake@3.20:", type="build")
    depends_on("ninja", type="build")
    depends_on("flex", type="build")
    depends_on("bison@3:", type="build")
    # pdc calls these when it compiles a model.
    depends_on("llvm@14: +clang openmp=runtime", type=("build", "link", "run"))
    depends_on("onednn@2.6:3 cpu_runtime=omp gpu_runtime=none", type=("build", "link", "run"))
    depends_on("mpi", type=("build", "link", "run"))
    depends_on("cjson", type=("build", "link", "run"))
    depends_on("libjpeg-turbo", type=("build", "link", "run"))
    depends_on("libpng", type=("build", "link", "run"))
    depends_on("zlib-api", type=("build", "link"))
    depends_on("xz", type=("build", "link"))
    depends_on("zstd", type=("build", "link"))
    depends_on("xxhash", type=("build", "link", "run"))

    generator("ninja")

    def cmake_args(self):
        clang = join_path(self.spec["llvm"].prefix.bin, "clang")
        return [self.define("CMAKE_C_COMPILER", clang), self.define("PDC_CUDA", False)]
