"""Tasks of `run`, in their order of worth, and the loop that works them off."""
import concurrent.futures
import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import time

import toolchain
from toolchain import Failed, Missing, NoMemory, find_tool

HERE = os.path.dirname(os.path.realpath(__file__))
# Limits of one check, one under compute-sanitizer, one measurement, one of PyTorch.
CHECK_SECONDS, WATCHED_SECONDS, MEASURE_SECONDS, TORCH_SECONDS = 60, 120, 90, 150
UPDATES, WARM_UP = 20, 5
AT_ONCE = 4 # checks that share the GPU
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SHARING = {**MPI, "OMP_NUM_THREADS": "4"} # checks that run beside others


@dataclasses.dataclass
class Task:
    """kind: checks or measurements. A task that is `alone` shares the GPU with no other."""
    part: str
    kind: str
    name: str
    action: object # of seconds; returns what to keep
    most: float    # seconds
    programs: tuple = ()
    alone: bool = False


def work(tasks, builds, report):
    """Works tasks off: always the first whose programs are built. Checks run several at a time, measurements alone."""
    waiting, running = list(tasks), {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        while waiting or running:
            for future in [f for f in running if f.done()]:
                del running[future]
            task = next((t for t in waiting if all(map(builds.done, t.programs))), None)
            if report.left() < 2 and waiting:
                for late in waiting:
                    report.add(late.kind, late.name, "not done", 0, "no time is left")
                waiting = []
            elif task and not all([builds.good(name) for name in task.programs]):
                waiting.remove(task)
            elif task and not running or task and not task.alone and len(running) < AT_ONCE \
                    and not any(t.alone for t in running.values()):
                waiting.remove(task)
                running[pool.submit(report.attempt, task.kind, task.name, task.action, task.most)] = task
            else:
                futures = [*running, *([] if task else builds.pending())]
                concurrent.futures.wait(futures, min(1, max(report.left(), 0.1)), concurrent.futures.FIRST_COMPLETED)


def process_of(program):
    """The number of a process that runs a program; None without one."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.path.realpath(f"/proc/{number}/exe") == os.path.realpath(program):
                return int(number)
        except OSError: # it ended meanwhile
            pass
    return None


def read_log(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


class Work:
    """Makes the tasks of a manifest. out: a folder for logs. printed: profiles' output, by program."""

    def __init__(self, root, tools, report, manifest, out):
        self.root, self.tools, self.report, self.manifest, self.out = root, tools, report, manifest, out
        self.ranks = {program["name"]: program["ranks"] for program in manifest["programs"]}
        self.rate = [] # bytes a second of a copy, when it is measured

    def program(self, name, binary):
        return os.path.join(self.root, "programs", name, binary)

    def launch(self, program, ranks, options, seconds, environment=None, tool=()):
        """Trains; returns what was printed."""
        command = [self.program(program, "train"), *options]
        if ranks > 1:
            if not self.tools.mpirun:
                raise Missing("several ranks need MPI, which this machine lacks")
            command = [*self.tools.mpirun_words, "-n", str(ranks), *command]
        return toolchain.run([*tool, *command], seconds, self.root, {**MPI, **(environment or {})})

    # ---- checks ------------------------------------------------------------------------------------------------

    def check(self, one, name):
        def action(seconds):
            tool = one["tool"]
            if tool:
                path = find_tool(tool[0])
                if not path:
                    raise Missing(f"{tool[0]} is not found")
                tool = [path, *tool[1:]]
            log, saved = (os.path.join(self.out, f"{name}.{kind}") for kind in ("jsonl", "safetensors"))
            for path in (log, saved):
                if os.path.exists(path):
                    os.remove(path)
            options = ["--quiet", "--peak", "1e12", *one["train"], "--log", log, "--save", saved]
            self.launch(one["program"], self.ranks[one["program"]], options, seconds, SHARING, tool)
            compare, found = os.path.join(self.out, "compare"), []
            for kind, got, want, tolerance in [("tensors", saved, one["tensors"], one["tolerance"][0]),
                                               ("log", log, one["losses"], one["tolerance"][1])]:
                if want:
                    words = [compare, kind, got, os.path.join(self.root, want), str(tolerance)]
                    found.append(toolchain.run(words, seconds).strip())
            os.remove(saved)
            found.append(self.report.count(name, read_log(log)[-1]))
            return {"message": "; ".join(filter(None, found))}
        return action

    def checks(self):
        for one in self.manifest["checks"]:
            name = ".".join([one["name"], *one["tool"][2:3]])
            yield Task(one["part"], "checks", name, self.check(one, name),
                       WATCHED_SECONDS if one["tool"] else CHECK_SECONDS, (one["program"],), bool(one["tool"]))

    def generations(self):
        for one in self.manifest["generations"]:
            def action(seconds, one=one):
                said = toolchain.run([self.program(one["program"], "generate"), *one["options"]], seconds, self.root, MPI)
                if said != one["wanted"]:
                    raise Failed(f"generated {said!r}, not {one['wanted']!r}")
                return {"message": f"{len(said)} bytes as the C target's"}
            yield Task("modes", "checks", one["program"], action, CHECK_SECONDS, (one["program"],))

    def killed_rank(self):
        """A pipeline whose second rank is killed ends, with an error."""
        def action(seconds):
            if not self.tools.mpirun:
                raise Missing("several ranks need MPI, which this machine lacks")
            name = "ranks.pipeline.f32"
            log = os.path.join(self.out, "killed.jsonl")
            train = [self.program(name, "train"), "--quiet", "--peak", "1e12", "--data", "tests/reference/text.txt", "--steps",
                     "10000000", "--comm", "mpi", "--log", log]
            environment = toolchain.own_environment(MPI)
            with subprocess.Popen([*self.tools.mpirun_words, "-n", "2", *train], cwd=self.root, env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
                try:
                    victim, start = None, time.monotonic()
                    while time.monotonic() - start < seconds / 2 and run.poll() is None:
                        victim = process_of(self.program(name, "stage1"))
                        if victim and os.path.exists(log) and len(read_log(log)) > 3:
                            break
                        time.sleep(0.1)
                    if not victim or run.poll() is not None:
                        raise Failed("it ended before it was killed: " + toolchain.tail(run.stdout.read()))
                    os.kill(victim, signal.SIGKILL)
                    killed = time.monotonic()
                    status = run.wait(seconds / 2)
                except subprocess.TimeoutExpired:
                    raise Failed("it goes on without its second rank") from None
                finally:
                    run.kill()
            if status == 0:
                raise Failed("it ended with status 0 without its second rank")
            return {"message": f"ended {time.monotonic() - killed:.1f} s after its second rank was killed"}
        # Alone: it looks for a process of this program, which a check may run, too.
        return Task("ranks", "checks", "ranks.killed", action, CHECK_SECONDS, ("ranks.pipeline.f32",), True)

    def kernel_tests(self):
        for test in self.manifest["kernels"]:
            command = [self.program(test["name"], "test"), *test["arguments"]]
            yield Task("kernels", "checks", test["name"], lambda seconds, command=command: {
                "message": toolchain.tail(toolchain.run(command, seconds))}, CHECK_SECONDS, (test["name"],))

    # ---- measurements ------------------------------------------------------------------------------------------

    def check_memory(self, program):
        """A plan's memory is known before the run: raises NoMemory if this GPU has less."""
        with open(self.program(program, "plan.json")) as file:
            planned = json.load(file)["stages"][0]["peak_bytes"]
        query = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
        free = int(toolchain.run(query, 30).split()[0]) << 20
        if planned > free:
            raise NoMemory(f"the plan takes {planned} bytes, and {free} are free")

    def data(self, m):
        """Options that name a measured model's data; images are made here, for they would be much to carry."""
        if m["model"]["kind"] == "gpt":
            return ["--data", self.manifest["tokens"]]
        import numpy
        folder, size = os.path.join(self.out, "images"), m["model"]["size"]
        if not os.path.exists(f"{folder}/label.npy"):
            os.makedirs(folder, exist_ok=True)
            random = numpy.random.default_rng(1)
            numpy.save(f"{folder}/image.npy", random.integers(0, 256, (2 * m["batch"], 3, size, size), numpy.uint8))
            numpy.save(f"{folder}/label.npy", random.integers(0, m["model"]["classes"], (2 * m["batch"],), numpy.int32))
        return ["--data", f"image={folder}/image.npy", f"label={folder}/label.npy"]

    def train(self, m, *options):
        """Milliseconds of an update, the median after those that warm up, and what the log says."""
        def action(seconds):
            log = os.path.join(self.out, f"{m['program']}.jsonl")
            if os.path.exists(log):
                os.remove(log)
            if not isinstance(self.tools, toolchain.HostToolchain):
                self.check_memory(m["program"])
            words = ["--quiet", *self.data(m), *m["train"], "--steps", str(UPDATES + WARM_UP), "--log", log]
            self.launch(m["program"], 1, [*words, *self.tools.peak, *options], seconds)
            lines = read_log(log)
            first, last, steps = lines[0], lines[-1], [line for line in lines if "loss" in line]
            of = {key: statistics.median(line[key] for line in steps[WARM_UP:]) for key in ("ms", "mfu")}
            counted = self.report.count(m["program"], last)
            return {"batch": m["batch"], **of, "first": first, "last": last, "all_ms": [line["ms"] for line in steps],
                    "losses": [steps[0]["loss"], steps[-1]["loss"]],
                    "message": f"{of['ms']:.2f} ms, {self.rate_text(m, of['ms'])}, mfu {of['mfu']:.3f}"
                               + (f"; {counted}" if counted else "")}
        return action

    @staticmethod
    def rate_text(m, ms):
        of = m["batch"] * m["model"].get("context", 1) / ms * 1e3
        return f"{of:.0f} {'tokens' if 'context' in m['model'] else 'samples'}/s"

    def measure(self, part, m, suffix="", *options):
        return Task(part, "measurements", m["program"] + suffix, self.train(m, *options), MEASURE_SECONDS,
                    (m["program"],), True)

    def pytorch(self, m, how):
        """how: eager or compiled."""
        def action(seconds):
            words = [json.dumps(m["model"]), *map(str, (m["batch"], m["precision"], UPDATES, how))]
            try:
                text = toolchain.run([sys.executable, os.path.join(HERE, "pytorch_step.py"), *words], seconds)
            except Failed as cause:
                if "No module named 'torch'" in str(cause):
                    raise Missing("Python has no PyTorch here") from None
                if "out of memory" in str(cause).lower() or "OutOfMemoryError" in str(cause):
                    raise NoMemory(f"PyTorch has not the memory for a batch of {m['batch']}: {cause}") from None
                raise
            found = json.loads(text.strip().splitlines()[-1])
            return {"batch": m["batch"], **found, "message": f"{found['ms']:.2f} ms, {self.rate_text(m, found['ms'])}"}
        return Task("pytorch", "measurements", f"{m['program']} by PyTorch, {how}", action, TORCH_SECONDS, (), True)

    def copy_rate(self, copied_bytes):
        def action(seconds):
            self.tools.build_tool(os.path.join(HERE, "bandwidth.cu"), f"{self.out}/bandwidth", seconds)
            self.rate.append(float(toolchain.run([f"{self.out}/bandwidth", str(copied_bytes)], seconds)))
            return {"bytes_per_s": self.rate[0], "message": f"{self.rate[0] / 1e9:.0f} GB/s"}
        return Task("profile", "measurements", "memory bandwidth", action, MEASURE_SECONDS, (), True)

    def profile(self, folder):
        """The profile program's output, which `pdc profile --measured` reads."""
        def action(seconds):
            printed = toolchain.run([self.program(folder, "profile")], seconds)
            printed = "".join(f"{line}\n" for line in printed.splitlines() if not line.startswith("pd: ")) # notes
            return {"printed": printed, "message": f"{len(printed.splitlines())} lines"}
        return Task("profile", "measurements", folder, action, MEASURE_SECONDS, (folder,), True)

    def kernel_times(self, folder):
        """The profile program's kernels with the share of the bandwidth that their bytes have, those first that take
        most of an update; products by cuBLASLt's first algorithm and by the fastest; attentions by our own kernels
        and by the fastest of cuDNN's engines that is right and deterministic."""
        def action(seconds):
            said = toolchain.run([self.program(folder, "profile"), "--table"], seconds).splitlines()
            lines = [json.loads(line) for line in said if line.startswith("{")]
            notes = [line for line in said if not line.startswith("{")] # of cuDNN's engines that are not considered
            kernels = [line for line in lines if "kernel" in line]
            products = {line["product"]: line for line in lines if "product" in line}
            attentions = [line for line in lines if "attention" in line]
            for k in kernels:
                k["share_of_bandwidth"] = k["bytes"] / self.rate[0] / k["seconds"] \
                    if self.rate and k["seconds"] > 0 else 0
                k["operations_per_s"] = k["operations"] / k["seconds"] if k["seconds"] > 0 else 0
            kernels.sort(key=lambda k: -k["seconds"] * k["count"])
            total = 1e3 * sum(k["seconds"] * k["count"] for k in kernels)
            slower = [p["first_seconds"] / p["seconds"] - 1 for p in products.values()]
            times = "; ".join(f"{a['attention'].split()[0]} attention {1e3 * a['own_seconds']:.3f} ms, cuDNN's "
                              f"{1e3 * a['cudnn_seconds']:.3f} ms" for a in attentions)
            return {"kernels": kernels, "total_ms": total, "products": list(products.values()),
                    "attentions": attentions, "notes": notes,
                    "message": f"{len(kernels)} kernels, {total:.2f} ms in all; {len(slower)} products, cuBLASLt's first "
                               f"choice up to {100 * max(slower, default=0):.0f} % slower than its fastest"
                               + (f"; {times}" if times else "")}
        return Task("profile", "measurements", folder.replace("profile", "kernels"), action, MEASURE_SECONDS, (folder,), True)

    # ---- in order ----------------------------------------------------------------------------------------------

    def tasks(self, copied_bytes):
        """All of them, those of most worth first."""
        measures = self.manifest["measures"]
        checks = list(self.checks())
        found = []
        if measures:
            first = measures[0]
            found += [self.measure("gpt2", first)]
            found += [self.measure("tuned", m, suffix, *options) for m in measures if m["part"] == "tuned"
                      for suffix, options in (("", ()), (" with CUDA graphs", ("--graphs",)))]
            found += [self.pytorch(first, how) for how in first["pytorch"]]
            found += [self.copy_rate(copied_bytes)]
            found += [make(folder) for folder in self.manifest["profiles"] for make in (self.profile, self.kernel_times)]
        found += self.kernel_tests()
        found += [task for task in checks if not task.alone]
        found += self.generations()
        found += [self.killed_rank()] if "ranks.pipeline.f32" in self.ranks else []
        if measures:
            found += [self.measure("graphs", first, " with CUDA graphs", "--graphs")]
        others = [m for m in measures[1:] if m["part"] != "tuned"]
        found += [self.measure(m["part"], m) for m in others]
        found += [task for task in checks if task.alone]
        return found + [self.pytorch(m, how) for m in others for how in m["pytorch"]]


PARTS = ("gpt2", "tuned", "pytorch", "profile", "kernels", "golden", "graphs", "models", "ranks", "peer", "nccl", "modes",
         "batches", "resnet50", "xl", "variants", "sanitizer")
