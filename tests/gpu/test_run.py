"""Tests `prepare` and `run` where there is no GPU, with tests/cuda/host in its place:  test_run.py BUILD

What is right passes; a wrong number, a program that does not compile, a tool that is missing and time that runs out
are each told apart, and the rest goes on."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import cases
import toolchain

BUILD = os.path.abspath(sys.argv.pop(1))
RIGHT = ["golden.pointwise.f32", "golden.products.bf16", "ranks.pipeline.f32", "peer.pipeline.bf16", "sanitizer.gpt.f32"]

COUNTS = ("own_products", "plain_products", "other_algorithms", "separate_gelus", "separate_sums",
          "refused_algorithms", "column_convolutions", "own_attentions", "late_kernels")


def prepare(folder, only, *options, folder_of=None):
    command = [os.path.join(HERE, "prepare"), "--build", BUILD, "--only", only, *options, folder_of or f"{folder}/{only}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)


@contextlib.contextmanager
def changed(path, change):
    """A file's text, until the end of the block."""
    with open(path) as file:
        right = file.read()
    try:
        with open(path, "w") as file:
            file.write(change(right))
        yield
    finally:
        with open(path, "w") as file:
            file.write(right)


class Sources(unittest.TestCase):
    def test_kernels_link_what_they_link_on_processors(self):
        """tests/cuda/host/CMakeLists.txt says it there: a file that is missing here shows on no machine without a GPU."""
        with open(os.path.join(HERE, "../cuda/host/CMakeLists.txt")) as file:
            text = file.read()
        lists = {name: words.split() for name, words in re.findall(r"set\((\w+) ([^$)]*)\)", text)}
        expand = lambda words: {x for word in words.split() for x in lists.get(word.strip("${}"), [word])}
        there = {f"kernels.{name}": expand(words) for name, words in re.findall(r"cuda_host_call\((\w+) ([^)]*)\)", text)}
        there |= {f"kernels.attention.{precision}": set(lists["CUDA_ATTENTION"]) for precision in ("f32", "bf16")}
        compared = [test for test in cases.kernel_tests() if test.name in there]
        self.assertEqual(len(compared), 7)
        for test in compared:
            self.assertEqual(set(test.runtime), {f"cuda/{source}" for source in there[test.name]}, test.name)


class Prepared(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for name in RIGHT:
            prepare(cls.folder, name)
        prepare(cls.folder, "gpt2.bf16.2", "--small")

    def run_checks(self, name, *options, path=None):
        """Exit status and gpu.json."""
        folder = os.path.join(self.folder, name)
        environment = {**os.environ, **({"PATH": path} if path else {})}
        done = subprocess.run([sys.executable, f"{folder}/run", "--host", f"{BUILD}/tests/cuda/host/compile", *options],
                              capture_output=True, text=True, env=environment)
        with open(f"{folder}/out/gpu.json") as file:
            return done.returncode, json.load(file), done.stdout + done.stderr

    def states(self, content, kind):
        return {x["name"]: x["state"] for x in content[kind]}

    def test_what_is_right_passes(self):
        for name in RIGHT[:4]:
            status, content, said = self.run_checks(name)
            self.assertEqual(status, 0, said)
            killed = {"ranks.killed": "ok"} if name == "ranks.pipeline.f32" else {} # the same program, one rank of it killed
            self.assertEqual(self.states(content, "checks"), {name: "ok", **killed})
            self.assertTrue(content["ok"])
            self.assertEqual(set(content["counts"][name]), set(COUNTS))
            for kind, n in content["counts"][name].items():
                self.assertEqual(f"{n} in {name}" in next(x for x in said.splitlines() if x.startswith(f"{kind}:")), n > 0)

    def test_measurements(self):
        name = "gpt2.bf16.2"
        _, content, said = self.run_checks(name)
        self.assertEqual(set(content), {"machine", "builds", "checks", "measurements", "counts", "seconds", "ok"})
        found = {x["name"]: x for x in content["measurements"]}
        self.assertEqual(content["counts"][name], dict.fromkeys(COUNTS, 0))
        for x in [*content["builds"], *content["measurements"]]:
            self.assertLessEqual({"name", "state", "seconds", "message"}, set(x))
        by_pytorch = [f"{name} by PyTorch, {how}" for how in ("eager", "compiled")]
        self.assertLessEqual({"memory bandwidth", name, f"{name}.profile", f"{name}.kernels", f"{name} with CUDA graphs",
                              *by_pytorch}, set(found), said)
        for key in ("batch", "ms", "mfu", "first", "last", "all_ms", "losses"):
            self.assertIn(key, found[name])
        kernels = {k["kernel"]: k for k in found[f"{name}.kernels"]["kernels"]}
        self.assertGreater(kernels["attn"]["operations"], 0)
        for product in found[f"{name}.kernels"]["products"]: # the profile program times cuBLASLt's algorithms
            self.assertGreaterEqual(product["first_seconds"], 0.95 * product["seconds"])
        self.assertGreater(len(found[f"{name}.kernels"]["products"]), 5)
        attentions = {a["attention"].split()[0]: a for a in found[f"{name}.kernels"]["attentions"]}
        self.assertEqual(set(attentions), {"forward", "backward"}) # by cuDNN's stand-in and by our own kernels
        for a in attentions.values():
            self.assertGreater(min(a["own_seconds"], a["cudnn_seconds"]), 0)
        self.assertGreater(kernels["ln_1"]["share_of_bandwidth"], 0)
        for how in by_pytorch:
            self.assertIn(found[how]["state"], ("missing", "failed")) # there is no GPU
        self.check_tuned(name, found[f"{name}.profile"])

    def check_tuned(self, name, profile):
        """A profile becomes a tuned program, which is measured beside the first."""
        self.assertNotIn("pd: ", profile["printed"])
        result = os.path.join(self.folder, "result.json")
        with open(result, "w") as file:
            json.dump({"machine": {"architecture": "sm_90"}, "measurements": [profile]}, file)
        folder = os.path.join(self.folder, "tuned")
        prepare(self.folder, name, "--small", "--tuned", result, folder_of=folder)
        with open(f"{folder}/programs/{name}.tuned/stage0.cu") as file:
            self.assertIn("pd_use_algorithms(algorithms, ", file.read())
        _, content, said = self.run_checks("tuned", "--parts", "gpt2,tuned")
        names = [x["name"] for x in content["measurements"] if x["state"] == "ok"]
        self.assertEqual(names, [name, f"{name}.tuned", f"{name}.tuned with CUDA graphs"], said)

    def test_a_wrong_number_fails(self):
        name = RIGHT[0]
        path = os.path.join(self.folder, name, "tests/golden/pointwise.loss")
        with changed(path, lambda right: f"{float(right) * 1.01}\n"):
            status, content, _ = self.run_checks(name)
        self.assertEqual(status, 1)
        self.assertEqual(self.states(content, "checks"), {name: "failed"})
        self.assertFalse(content["ok"])

    def test_a_program_that_does_not_compile_fails(self):
        name = RIGHT[1]
        path = os.path.join(self.folder, name, "programs", name, "stage0.cu")
        with changed(path, lambda right: right + "\nno_such_type x;\n"):
            status, content, _ = self.run_checks(name)
        self.assertEqual(status, 1)
        self.assertEqual(self.states(content, "builds"), {"compare": "ok", name: "failed"})
        self.assertIn("no_such_type", content["builds"][1]["message"])
        self.assertEqual(content["checks"], [])

    def test_a_missing_tool_is_no_failure(self):
        status, content, said = self.run_checks(RIGHT[-1], path="/usr/bin:/bin")
        if shutil.which("compute-sanitizer", path="/usr/bin:/bin:/usr/local/cuda/bin"):
            self.skipTest("compute-sanitizer is installed, and would watch tests/cuda/host")
        self.assertEqual(status, 0, said)
        self.assertEqual(set(self.states(content, "checks").values()), {"missing"})

    def test_time_that_runs_out_is_told(self):
        status, content, _ = self.run_checks(RIGHT[0], "--seconds", "1")
        self.assertEqual(status, 0) # nothing failed
        self.assertEqual(self.states(content, "checks"), {RIGHT[0]: "not done"})


class Machines(unittest.TestCase):
    """What toolchain.py makes of machines that are not as this one: their tools are scripts here."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(self.environment)))
        os.environ.pop("CXX", None)
        os.environ["PATH"] = f"{self.folder}:/usr/bin:/bin"

    def script(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def made(self, nvcc="exit 0", libraries=None):
        os.environ["NVCC"] = self.script("nvcc", nvcc)
        libraries = libraries or {"cublasLt": "stdio.h"}
        with unittest.mock.patch.object(toolchain, "LIBRARIES", libraries):
            return toolchain.Toolchain(cases.TOP, os.path.join(self.folder, "out"))

    def test_a_host_compiler_that_nvcc_refuses_is_passed_over(self):
        for name in ("clang++", "g++"):
            self.script(name, "exit 0")
        tools = self.made('case "$*" in *clang++*) echo unsupported clang version >&2; exit 1;; esac')
        self.assertEqual(tools.host, os.path.join(self.folder, "g++"))
        with self.assertRaisesRegex(toolchain.Missing, "unsupported clang version"):
            self.made("echo unsupported clang version >&2; exit 1")

    def test_programs_do_without_cudnn_and_nccl(self):
        there = [os.path.basename(source) for source in self.made().runtime_sources()]
        tools = self.made(libraries={"cublasLt": "stdio.h", "cudnn": "no_such.h", "nccl": "no_such.h"})
        self.assertEqual(tools.lacks, {"cudnn", "nccl"})
        found = [os.path.basename(source) for source in tools.runtime_sources()]
        self.assertEqual(set(there) - set(found), {"transfer_nccl.cu"})
        self.assertEqual(set(found) - set(there), {"without_nccl.cu"})
        with self.assertRaisesRegex(toolchain.Missing, "no_such.h"):
            self.made(libraries={"cublasLt": "no_such.h"})

    def test_a_launch_within_a_launch_is_its_own(self):
        os.environ.update({"SLURM_NTASKS": "16", "PMI_RANK": "3", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_btl": "self"})
        said = toolchain.run(["env"], 10, environment={"ADDED": "1"}).split()
        self.assertLessEqual({"ADDED=1", "OMPI_MCA_btl=self"}, set(said))
        self.assertFalse([word for word in said if word.startswith(("SLURM_", "PMI_", "OMPI_COMM_WORLD_"))])

    def test_options_are_those_of_the_launcher(self):
        self.script("mpicc.openmpi", "")
        for version, more in (("mpirun (Open MPI) 4.1.4", True), ("mpirun (Open MPI) 5.0.3", True),
                              ("HYDRA build details: Version: 4.0.2", False)):
            self.script("mpirun.openmpi", f"echo '{version}'")
            words = self.made().mpirun_words
            self.assertEqual(words[1:], ["--oversubscribe", "--bind-to", "none"] if more else [])


class Mistakes(unittest.TestCase):
    """Of whoever starts `prepare` or `run`."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def said(self, *command):
        done = subprocess.run([os.path.join(HERE, command[0]), *command[1:]], capture_output=True, text=True)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout + done.stderr

    def test_results_that_have_no_profile(self):
        path = os.path.join(self.folder, "result.json")
        entry = {"name": "gpt2.bf16.2.profile", "state": "not done"}
        for text, expected in (("{", "is no result file"), ("{}", "is no result file"), (None, "cannot read"),
                               (json.dumps({"machine": {}, "measurements": [entry]}), "has no result")):
            if text is not None:
                with open(path, "w") as file:
                    file.write(text)
            elif os.path.exists(path):
                os.remove(path)
            status, said = self.said("prepare", "--build", BUILD, "--build-only", "--small", "--only", "gpt2.bf16.2",
                                     "--tuned", path, os.path.join(self.folder, "kit"))
            self.assertEqual(status, 1)
            self.assertIn(f"FAILED: tuned: ", said)
            self.assertIn(expected, said)
            self.assertTrue(os.path.exists(os.path.join(self.folder, "kit/manifest.json")))

    def test_nothing_has_such_a_name(self):
        status, said = self.said("prepare", "--build", BUILD, "--only", "none", os.path.join(self.folder, "kit"))
        self.assertEqual((status, "no program has such a name" in said), (2, True))

    def test_a_result_file_that_cannot_be_written(self):
        kit = os.path.join(self.folder, "kit")
        self.said("prepare", "--build", BUILD, "--only", "golden.pointwise.f32", kit)
        done = subprocess.run([f"{kit}/run", "--json", "/none/such/file"], capture_output=True, text=True)
        self.assertEqual((done.returncode, "cannot write" in done.stderr), (2, True))


class Reports(unittest.TestCase):
    """What `run` says of outcomes that no machine here has."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        loader = importlib.machinery.SourceFileLoader("gpu_run", os.path.join(HERE, "run"))
        self.run_module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_run", loader))
        loader.exec_module(self.run_module)

    def work(self, m):
        manifest = {"programs": [], "measures": [m]}
        return self.run_module.work.Work(self.folder, None, None, manifest, self.folder)

    def state(self, seconds, action, most=10):
        report = self.run_module.Report(os.path.join(self.folder, "gpu.json"), seconds)
        with contextlib.redirect_stdout(io.StringIO()):
            report.attempt("checks", "one", action, most)
        return report.content["checks"][0]["state"], report.content["ok"]

    def raising(self, exception):
        def action(_):
            raise exception
        return action

    def test_states(self):
        run = toolchain
        self.assertEqual(self.state(60, lambda _: {}), ("ok", True))
        self.assertEqual(self.state(60, self.raising(run.Failed("x"))), ("failed", False))
        self.assertEqual(self.state(60, self.raising(run.Missing("x"))), ("missing", True))
        self.assertEqual(self.state(60, self.raising(run.NoMemory("x"))), ("no memory", True))
        self.assertEqual(self.state(60, self.raising(run.Late("x"))), ("failed", False)) # it hung
        self.assertEqual(self.state(5, self.raising(run.Late("x"))), ("not done", True))
        self.assertEqual(self.state(1, lambda _: {}), ("not done", True))

    def test_pytorch_without_memory(self):
        run, m = toolchain, {"program": "gpt", "batch": 128, "precision": "bf16", "model": cases.GPT2}
        says = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.27 GiB."
        for text, expected in ((says, run.NoMemory), ("No module named 'torch'", run.Missing), ("other", run.Failed)):
            with unittest.mock.patch.object(toolchain, "run", side_effect=run.Failed(text)):
                with self.assertRaises(expected):
                    self.work(m).pytorch(m, "compiled").action(10)

    def test_what_matters_most_comes_first(self):
        first = cases.measures()[0]
        self.assertEqual((first.batch, first.program.precision, first.model), (32, "bf16", cases.GPT2))


class Cases(unittest.TestCase):
    def test_names_are_unique(self):
        programs = {}
        for x in [*cases.checks(), *cases.measures()]:
            self.assertEqual(programs.setdefault(x.program.name, x.program), x.program)

    def test_files_of_the_repository_exist(self):
        for check in cases.checks():
            for word in [check.program.model, check.tensors, check.losses, *check.train]:
                if word and word.startswith("tests/"):
                    self.assertTrue(os.path.exists(os.path.join(cases.TOP, word)), f"{check.program.name}: {word}")

    def test_every_golden_case_is_checked_in_both_precisions(self):
        names = {check.program.name for check in cases.checks()}
        folder = os.path.join(cases.TOP, "tests/golden")
        for file in os.listdir(folder):
            if file.endswith(".pdm") and file[:-4] not in cases.NO_TRAINING:
                for precision in ("f32", "bf16"):
                    self.assertIn(f"golden.{file[:-4]}.{precision}", names)


if __name__ == "__main__":
    unittest.main()
