"""What a machine has, found once: nvcc and a host compiler that it takes, the CUDA libraries (where the toolkit's or,
failing that, those that PyTorch brought; programs do without cuDNN or NCCL where they are not found), MPI or the
runtime's stand-in for one rank; and how programs are built with it."""
import functools
import glob
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading

LIBRARIES = {"cublasLt": "cublasLt.h", "cudnn": "cudnn.h", "nccl": "nccl.h"}
# Programs do without these; of runtime/cuda, the sources that are left out where one is missing, and of tests/gpu the one
# in their place. (cuDNN is looked for when a program runs.)
OPTIONAL = {"cudnn": ((), ()), "nccl": (("transfer_nccl.cu",), ("without_nccl.cu",))}
# The flags that make bits, as compiler/build/cc.c has them.
C_FLAGS = ["-std=gnu11", "-O3", "-march=native", "-DNDEBUG", "-fno-strict-aliasing", "-ffp-contract=off",
           "-fno-math-errno", "-fopenmp-simd"]
CUDA_FLAGS = ["-std=c++20", "-O3", "-fmad=false", "-Xcompiler", "-ffp-contract=off,-fno-math-errno"]
PLAIN_FLAGS = ["-std=c++20", "-O3", "-ffp-contract=off", "-fno-math-errno"]


class Missing(Exception):
    """Something that a build needs and this machine does not have."""


class NoMemory(Exception):
    """Something that needs more memory than the GPU has."""


class Failed(Exception):
    """A command that did not succeed: its last lines."""


class Late(Failed):
    """A command that did not end in time."""


# What launchers tell those they start. Whoever runs this under Slurm, or in an interactive job of MPI's, has them
# set: programs of one rank would take them for their own, and mpirun would ask that launcher for its hosts.
LAUNCHERS = ("SLURM_", "PMI_", "PMIX_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE", "HYDI_", "MPI_LOCALRANKID")


def own_environment(environment=None):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return {**kept, **(environment or {})}


running = set() # processes, each the first of a group of its own
starting = threading.Lock()
stopping = False # no process starts any more


def stop(process):
    """Kills a process and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def stop_all():
    global stopping
    with starting:
        stopping = True
        for process in running:
            stop(process)


def run(command, seconds, cwd=None, environment=None):
    """What it printed, both streams together; Failed with the end of it otherwise."""
    with starting:
        if stopping:
            raise Late("this run ends")
        try:
            process = subprocess.Popen(command, cwd=cwd, env=own_environment(environment), start_new_session=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", text=True)
        except OSError as cause:
            raise Failed(f"{command[0]}: {cause.strerror}") from None
        running.add(process)
    try:
        printed, _ = process.communicate(timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        stop(process)
        printed, _ = process.communicate()
        raise Late(f"not done after {seconds:.0f} s: {tail(printed)}") from None
    finally:
        with starting:
            running.discard(process)
    if process.returncode != 0:
        raise Failed(f"exit status {process.returncode}: {tail(printed)}")
    return printed


def tail(text, most=1500):
    return text.strip()[-most:]


def python_folders(kind):
    """include/ or lib/ of NVIDIA's Python packages."""
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations) if spec and spec.submodule_search_locations else []
    return [folder for root in roots for folder in sorted(glob.glob(f"{root}/*/{kind}"))]


def find_tool(*names):
    for name in names:
        for path in (shutil.which(name), f"/usr/local/cuda/bin/{name}"):
            if path and os.access(path, os.X_OK):
                return path
    return None


def has_device_code(source):
    """As CMakeLists.txt tells sources for nvcc from plain C++, which the host compiler compiles in a fifth of nvcc's time."""
    with open(source) as file:
        return bool(re.search('__global__|<<<|"attention_cudnn.h"', file.read()))


def runtime_folders(runtime, target):
    """Folders of a target's sources, as runtime/folders lists them."""
    with open(os.path.join(runtime, "folders")) as file:
        words = next(line.split() for line in file if line.split()[:1] == [target])
    return [os.path.normpath(os.path.join(runtime, word)) for word in words[1:]]


class Toolchain:
    """Of a machine with a GPU. `folder` is what `prepare` wrote, `out` takes objects and programs."""
    peak = []  # options of train that spare it measuring the machine's peak

    def __init__(self, folder, out):
        self.folder, self.objects = folder, os.path.join(out, "objects")
        os.makedirs(self.objects, exist_ok=True)
        self.nvcc = os.environ.get("NVCC") or find_tool("nvcc")
        if not self.nvcc:
            raise Missing("nvcc is not found: it is searched in PATH and /usr/local/cuda/bin, or NVCC names it")
        self.host = self.find_host()
        self.cc = os.environ.get("CC") or find_tool("clang", "gcc", "cc")
        if not self.cc:
            raise Missing("no C compiler is found: CC may name one")
        self.mpi, self.mpirun = self.find_mpi()
        self.lacks = set() # of cudnn and nccl
        self.includes = self.find_headers()

    @functools.cached_property
    def toolkit(self):
        """nvcc's folder of headers and libraries, as it says itself: it may be called by a wrapper or a link."""
        said = run([self.nvcc, "--dryrun", "-E", "-x", "cu", "/dev/null"], 60)
        top = next((line.split("TOP=")[1] for line in said.splitlines() if "TOP=" in line), None)
        return os.path.realpath(top or os.path.join(os.path.dirname(os.path.realpath(self.nvcc)), ".."))

    def find_mpi(self):
        """mpicc and mpirun: this machine's, or those that `prepare` brought; (None, None) without either."""
        own = find_tool("mpicc.openmpi", "mpicc")
        launcher = find_tool("mpirun.openmpi", "mpirun")
        if own and launcher:
            return own, launcher
        brought = [os.path.join(self.folder, "mpi/bin", name) for name in ("mpicc", "mpirun")]
        return tuple(brought) if all(os.access(path, os.X_OK) for path in brought) else (None, None)

    def find_host(self):
        """The first C++ compiler that nvcc takes: it refuses versions that are newer than itself."""
        names = [os.environ["CXX"]] if os.environ.get("CXX") else ["clang++", "g++", "c++"]
        refused = []
        with tempfile.TemporaryDirectory() as work:
            source = os.path.join(work, "empty.cu")
            with open(source, "w") as file:
                file.write("#include <vector>\n__global__ void nothing() {}\n")
            for name in names:
                path = find_tool(name)
                try:
                    if path:
                        run([self.nvcc, "-ccbin", path, *CUDA_FLAGS, "-c", source, "-o", source + ".o"], 60)
                        return path
                except Failed as cause:
                    refused.append(f"{path}: {tail(str(cause), 200)}")
        raise Missing("nvcc takes no C++ compiler of this machine (CXX may name one): " +
                      ("; ".join(refused) or f"none of {', '.join(names)} is found"))

    def find_headers(self):
        """Folders to add to nvcc's own. What of OPTIONAL has no header or no library is noted in `lacks`."""
        own = [os.path.join(self.toolkit, "include"), "/usr/include", "/usr/local/include", "/usr/include/x86_64-linux-gnu"]
        found = []
        for name, header in LIBRARIES.items():
            places = [f for f in [*own, *python_folders("include")] if os.path.exists(os.path.join(f, header))]
            if name in OPTIONAL and not (places and self.library_path(name)):
                self.lacks.add(name)
            elif not places:
                raise Missing(f"{header} of {name} is not found, neither in {own[0]} nor among Python's packages")
            elif places[0] not in own:
                found.append(places[0])
        return sorted(set(found))

    @functools.cached_property
    def architecture(self):
        """This machine's GPU's: sm_90."""
        text = run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], 30)
        found = re.match(r"(\d+)\.(\d+)\s", text)
        if not found:
            raise Missing(f"nvidia-smi names no GPU: {tail(text, 200)}")
        return f"sm_{found.group(1)}{found.group(2)}"

    @functools.cached_property
    def gpus(self):
        return len(run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], 30).splitlines())

    @functools.cached_property
    def mpirun_words(self):
        """mpirun with what lets more ranks start than there are cores, which only Open MPI has to be told."""
        open_mpi = "Open MPI" in run([self.mpirun, "--version"], 30) or "OpenRTE" in run([self.mpirun, "--version"], 30)
        return [self.mpirun, *(("--oversubscribe", "--bind-to", "none") if open_mpi else ())]

    @functools.cached_property
    def mpi_words(self):
        """What mpicc adds to compile and to link, Open MPI's or MPICH's."""
        if not self.mpi:
            return [f"-I{self.folder}/runtime/single"], []
        try:
            return [run([self.mpi, f"--showme:{what}"], 30).split() for what in ("compile", "link")]
        except Failed:
            words = run([self.mpi, "-show"], 30).split()[1:]
            return [w for w in words if w[:2] in ("-I", "-D")], [w for w in words if w[:2] in ("-L", "-l", "-W")]

    def nvcc_words(self):
        return [self.nvcc, "-ccbin", self.host, *CUDA_FLAGS, f"-arch={self.architecture}", f"-I{self.folder}/runtime",
                *(f"-I{folder}" for folder in self.includes), *(w for w in self.mpi_words[0] if w[:2] in ("-I", "-D"))]

    def library_path(self, name):
        """The first that is found of the toolkit's, the system's and those of Python's packages, else None."""
        for folder in (f"{self.toolkit}/lib64", f"{self.toolkit}/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib",
                       *python_folders("lib")):
            for path in sorted(glob.glob(f"{folder}/lib{name}.so*")):
                return path
        return None

    def libraries(self):
        """By full path, so that what is linked is what runs; where they stand is remembered in the program."""
        found = [self.library_path(name) for name in LIBRARIES if name not in self.lacks]
        if None in found:
            raise Missing("libcublasLt.so is not found: neither CUDA's, nor the system's, nor among Python's packages")
        found += sorted(glob.glob(f"{self.folder}/cjson/libcjson*"))[:1]
        folders = {os.path.dirname(place) for path in found for place in (path, os.path.realpath(path))}
        return [word for each in [*found, *(f"-rpath={folder}" for folder in sorted(folders))]
                for word in ("-Xlinker", each)]

    # ---- building: each returns after one command has run ----------------------------------------------------

    def runtime_sources(self):
        """As runtime/folders lists them; CUDA's first, which take longest, and the largest of these first."""
        runtime = f"{self.folder}/runtime"
        left_out = {f"{runtime}/cuda/{source}" for name in self.lacks for source in OPTIONAL[name][0]}
        found = [f"{self.folder}/tests/gpu/{source}" for name in sorted(self.lacks) for source in OPTIONAL[name][1]]
        for folder in runtime_folders(runtime, "cuda"):
            found += (source for kind in ("c", "cu") for source in glob.glob(f"{folder}/*.{kind}"))
        return sorted(set(found) - left_out, key=lambda path: (path.endswith(".c"), -os.path.getsize(path), path))

    def object_of(self, source):
        return os.path.join(self.objects, os.path.relpath(source, self.folder).replace("/", ".") + ".o")

    def compile_runtime(self, source, seconds):
        out = ["-c", source, "-o", self.object_of(source)]
        if source.endswith(".cu") and not has_device_code(source):
            words = [f"-I{folder}" for folder in (f"{self.folder}/runtime", f"{self.toolkit}/include", *self.includes)]
            mpi = (w for w in self.mpi_words[0] if w[:2] in ("-I", "-D"))
            run([self.host, "-x", "c++", *PLAIN_FLAGS, *words, *mpi, *out], seconds)
        elif source.endswith(".cu"):
            run([*self.nvcc_words(), f"-I{self.folder}/runtime/cuda", *out], seconds)
        else:
            words = [f"-I{self.folder}/runtime", f"-I{self.folder}/cjson", *self.mpi_words[0]]
            run([self.cc, *C_FLAGS, *words, *out], seconds)

    def archive(self, sources, seconds):
        """One library of the runtime's objects: a program takes those that it needs."""
        path = os.path.join(self.objects, "libpd_runtime_cuda.a")
        if os.path.exists(path):
            os.remove(path)
        run(["ar", "rcs", path, *map(self.object_of, sources)], seconds)

    def compile_stage(self, source, seconds):
        run([*self.nvcc_words(), "-c", source, "-o", source + ".o"], seconds)

    def compile_test(self, source, out, seconds):
        """A source of a kernels' test: C for the processor, else for the GPU."""
        if source.endswith(".c"):
            includes = [f"-I{self.folder}/{folder}" for folder in ("runtime", "tests/cuda/loops")]
            run([self.cc, *C_FLAGS, *includes, "-c", source, "-o", out], seconds)
        else:
            more = [f"-I{self.folder}/{folder}" for folder in ("runtime/cuda", "tests/cuda/loops", "tests/cuda/host")]
            run([*self.nvcc_words(), *more, "-x", "cu", "-c", source, "-o", out], seconds)

    def link(self, objects, program, seconds, runtime=None):
        """runtime: sources of it whose objects are linked; None: its library."""
        more = [os.path.join(self.objects, "libpd_runtime_cuda.a")] if runtime is None else map(self.object_of, runtime)
        run([self.nvcc, "-ccbin", self.host, f"-arch={self.architecture}", *objects, *more, "-o", program,
             *self.libraries(), *self.link_words(), "-lpthread", "-lm"], seconds)

    def link_words(self):
        """mpicc's words for nvcc, which splits words for the host compiler at commas."""
        found = []
        for word in self.mpi_words[1]:
            if word.startswith("-Wl,"):
                found += [w for part in word.split(",")[1:] for w in ("-Xlinker", part)]
            else:
                found += [word] if word[:2] in ("-L", "-l") else ["-Xcompiler", word]
        return found

    def build_compare(self, program, seconds):
        library = sorted(glob.glob(f"{self.folder}/cjson/libcjson*"))[0]
        run([self.cc, "-O2", f"-I{self.folder}/cjson", f"{self.folder}/tests/golden/compare.c", library, "-lm",
             f"-Wl,-rpath,{self.folder}/cjson", "-o", program], seconds)

    def build_tool(self, source, program, seconds):
        run([*self.nvcc_words(), source, "-o", program], seconds)


class HostToolchain(Toolchain):
    """Of tests/cuda/host, where a CPU stands in for the GPU: for tests of `run` itself."""
    peak = ["--peak", "1e12"]
    lacks = set()
    gpus = int(os.environ.get("CUDA_HOST_DEVICES", "8"))

    def __init__(self, folder, out, compile_script):
        self.folder, self.script = folder, compile_script
        self.objects = os.path.join(out, "objects")
        os.makedirs(self.objects, exist_ok=True)
        self.cc = os.environ.get("CC") or find_tool("clang", "gcc", "cc")
        self.mpi, self.mpirun = self.find_mpi()
        self.architecture = "cuda_host"

    def runtime_sources(self):
        return []

    def archive(self, sources, seconds):
        pass

    def compile_stage(self, source, seconds):
        """The script makes programs of a folder's stage0.cu ...; here of this one source."""
        folder = source + ".build"
        os.makedirs(folder, exist_ok=True)
        shutil.copy(source, f"{folder}/stage0.cu")
        run(["sh", self.script, folder], seconds)
        os.replace(f"{folder}/stage0", source[:-len(".cu")])

    def link(self, objects, program, seconds, runtime=None):
        pass

    def build_tool(self, source, program, seconds):
        shutil.copy(source, program + ".cu")
        self.compile_stage(program + ".cu", seconds)
