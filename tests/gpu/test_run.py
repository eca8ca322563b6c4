"""Tests `prepare` and `run` where there is no GPU, with tests/cuda/host in its place:  test_run.py BUILD

What is right passes; a wrong number, a program that does not compile, a tool that is missing and time that runs out
are each told apart, and the rest goes on."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, HERE)
import cases

BUILD = os.path.abspath(sys.argv.pop(1))
RIGHT = ["golden.pointwise.f32", "golden.products.bf16", "ranks.pipeline.f32", "sanitizer.gpt.f32"]


def prepare(folder, only, *options):
    command = [os.path.join(HERE, "prepare"), "--build", BUILD, "--only", only, *options, f"{folder}/{only}"]
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
        for name in RIGHT[:3]:
            status, content, said = self.run_checks(name)
            self.assertEqual(status, 0, said)
            self.assertEqual(self.states(content, "checks"), {name: "ok"})
            self.assertTrue(content["ok"])

    def test_measurements(self):
        name = "gpt2.bf16.2"
        _, content, said = self.run_checks(name)
        self.assertEqual(set(content), {"machine", "builds", "checks", "measurements", "seconds", "ok"})
        found = {x["name"]: x for x in content["measurements"]}
        for x in [*content["builds"], *content["measurements"]]:
            self.assertLessEqual({"name", "state", "seconds", "message"}, set(x))
        self.assertLessEqual({"memory bandwidth", name, "kernels", f"{name} by PyTorch", f"{name} with CUDA graphs"},
                             set(found), said)
        for key in ("batch", "ms", "tokens_per_s", "mfu", "peak_flops", "planned_peak_bytes", "peak_bytes", "losses"):
            self.assertIn(key, found[name])
        kernels = {k["kernel"]: k for k in found["kernels"]["kernels"]}
        self.assertGreater(kernels["attn"]["operations"], 0)
        self.assertGreater(kernels["ln_1"]["share_of_bandwidth"], 0)
        self.assertIn(found[f"{name} by PyTorch"]["state"], ("missing", "failed")) # there is no GPU

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
        self.assertEqual(self.states(content, "builds"), {name: "failed"})
        self.assertIn("no_such_type", content["builds"][0]["message"])
        self.assertEqual(content["checks"], [])

    def test_a_missing_tool_is_no_failure(self):
        status, content, said = self.run_checks(RIGHT[3], path="/usr/bin:/bin")
        if shutil.which("compute-sanitizer", path="/usr/bin:/bin:/usr/local/cuda/bin"):
            self.skipTest("compute-sanitizer is installed, and would watch tests/cuda/host")
        self.assertEqual(status, 0, said)
        self.assertEqual(set(self.states(content, "checks").values()), {"missing"})

    def test_time_that_runs_out_is_told(self):
        status, content, _ = self.run_checks(RIGHT[0], "--seconds", "1")
        self.assertEqual(status, 1)
        self.assertEqual(self.states(content, "builds"), {RIGHT[0]: "not done"})


class Cases(unittest.TestCase):
    def test_names_are_unique(self):
        programs = {}
        for x in [*cases.checks(), *cases.measures()]:
            self.assertEqual(programs.setdefault(x.program.name, x.program), x.program)

    def test_every_golden_case_is_checked_in_both_precisions(self):
        names = {check.program.name for check in cases.checks()}
        folder = os.path.join(cases.TOP, "tests/golden")
        for file in os.listdir(folder):
            if file.endswith(".pdm") and file[:-4] not in cases.NOT_TRAINED:
                for precision in ("f32", "bf16"):
                    self.assertIn(f"golden.{file[:-4]}.{precision}", names)


if __name__ == "__main__":
    unittest.main()
