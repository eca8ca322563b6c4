"""What `run` does beside building: tasks in their order of worth, and the loop that works them off."""
import concurrent.futures
import dataclasses
import json
import os
import statistics
import sys

import toolchain
from report import COUNTS
from toolchain import Failed, Missing, NoMemory, find_tool

HERE = os.path.dirname(os.path.realpath(__file__))
# Limits of one check, one under compute-sanitizer, one measurement, one of PyTorch.
CHECK_SECONDS, WATCHED_SECONDS, MEASURE_SECONDS, TORCH_SECONDS = 60, 120, 90, 150
UPDATES, WARM_UP = 20, 5
AT_ONCE = 4 # checks that share the GPU
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "4"}


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
            self.launch(one["program"], self.ranks[one["program"]], options, seconds, tool=tool)
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
            name = ".".join([one["program"], *one["tool"][2:3]])
            yield Task(one["part"], "checks", name, self.check(one, name),
                       WATCHED_SECONDS if one["tool"] else CHECK_SECONDS, (one["program"],), bool(one["tool"]))

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

    def train_gpt(self, m, *options):
        """Milliseconds of an update, the median after those that warm up, and what the log says."""
        def action(seconds):
            log = os.path.join(self.out, f"{m['program']}.jsonl")
            if os.path.exists(log):
                os.remove(log)
            if not isinstance(self.tools, toolchain.HostToolchain):
                self.check_memory(m["program"])
            words = ["--quiet", "--data", self.manifest["tokens"], "--steps", str(UPDATES + WARM_UP), "--log", log]
            self.launch(m["program"], 1, [*words, *self.tools.peak, *options], seconds)
            lines = read_log(log)
            first, last, steps = lines[0], lines[-1], [line for line in lines if "loss" in line]
            of = {key: statistics.median(line[key] for line in steps[WARM_UP:]) for key in ("ms", "tokens_per_s", "mfu")}
            counted = self.report.count(m["program"], last)
            return {"batch": m["batch"], **of, "peak_flops": first["peak_flops"],
                    "all_ms": [line["ms"] for line in steps],
                    "planned_peak_bytes": first["planned_peak_bytes"], "peak_bytes": last["peak_bytes"],
                    "losses": [steps[0]["loss"], steps[-1]["loss"]],
                    "message": f"{of['ms']:.2f} ms, {of['tokens_per_s']:.0f} tokens/s, mfu {of['mfu']:.3f}"
                               + (f"; {counted}" if counted else "")}
        return action

    def measure(self, part, m, suffix="", *options):
        return Task(part, "measurements", m["program"] + suffix, self.train_gpt(m, *options), MEASURE_SECONDS,
                    (m["program"],), True)

    def pytorch(self, part, m, how):
        """how: eager or compiled."""
        def action(seconds):
            sizes = [self.manifest["gpt"][key] for key in ("layers", "heads", "width", "context", "vocabulary")]
            words = map(str, [*sizes, m["batch"], m["precision"], UPDATES, how])
            try:
                text = toolchain.run([sys.executable, os.path.join(HERE, "pytorch_gpt.py"), *words], seconds)
            except Failed as cause:
                if "No module named 'torch'" in str(cause):
                    raise Missing("Python has no PyTorch here") from None
                if "out of memory" in str(cause).lower() or "OutOfMemoryError" in str(cause):
                    raise NoMemory(f"PyTorch has not the memory for a batch of {m['batch']}: {cause}") from None
                raise
            found = json.loads(text.strip().splitlines()[-1])
            found["tokens_per_s"] = m["batch"] * self.manifest["gpt"]["context"] / found["ms"] * 1e3
            return {"batch": m["batch"], **found, "message": f"{found['ms']:.2f} ms, {found['tokens_per_s']:.0f} tokens/s"}
        return Task(part, "measurements", f"{m['program']} by PyTorch, {how}", action, TORCH_SECONDS, (), True)

    def copy_rate(self, copied_bytes):
        def action(seconds):
            self.tools.build_tool(os.path.join(HERE, "bandwidth.cu"), f"{self.out}/bandwidth", seconds)
            self.rate.append(float(toolchain.run([f"{self.out}/bandwidth", str(copied_bytes)], seconds)))
            return {"bytes_per_s": self.rate[0], "message": f"{self.rate[0] / 1e9:.0f} GB/s"}
        return Task("profile", "measurements", "memory bandwidth", action, MEASURE_SECONDS, (), True)

    def profile(self):
        """The profile program's output, which `pdc profile --measured` reads."""
        folder = os.path.basename(self.manifest["profile"])

        def action(seconds):
            printed = toolchain.run([self.program(folder, "profile")], seconds)
            return {"printed": printed, "message": f"{len(printed.splitlines())} lines"}
        return Task("profile", "measurements", "profile", action, MEASURE_SECONDS, (folder,), True)

    def kernel_times(self):
        """The profile program's kernels with the share of the bandwidth that their bytes have, those first that take
        most of an update; products by cuBLASLt's first algorithm and by the fastest; attentions by our own kernels
        and by the fastest of cuDNN's engines that is right and deterministic."""
        folder = os.path.basename(self.manifest["profile"])

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
        return Task("profile", "measurements", "kernels", action, MEASURE_SECONDS, (folder,), True)

    # ---- in order ----------------------------------------------------------------------------------------------

    def tasks(self, copied_bytes):
        """All of them, those that are wanted most first."""
        measures = self.manifest["measures"]
        checks = list(self.checks())
        found = []
        if measures:
            found += [self.measure("gpt2", measures[0]), self.pytorch("pytorch", measures[0], "eager"),
                      self.pytorch("pytorch", measures[0], "compiled"), self.copy_rate(copied_bytes)]
            found += [self.profile(), self.kernel_times()] if self.manifest["profile"] else []
        found += self.kernel_tests()
        found += [task for task in checks if not task.alone]
        if measures:
            found += [self.measure("batches", measures[0], " with CUDA graphs", "--graphs")]
            for m in measures[1:]:
                found += [self.measure("batches", m)]
            for m in measures[1:3]:
                found += [self.pytorch("pytorch", m, "compiled")]
        return found + [task for task in checks if task.alone]


PARTS = ("gpt2", "pytorch", "profile", "kernels", "golden", "graphs", "models", "ranks", "peer", "nccl", "batches", "sanitizer")
__all__ = ["COUNTS", "PARTS", "Task", "Work", "work"]
