"""Small trainings that campaigns launch by thousands: their ranks are started by ranks_launch and talk by mpi.c, which takes
a tenth of a second, where mpirun takes a whole one."""
import glob
import os
import re
import shutil
import subprocess

top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
text = f"{top}/tests/reference/text.txt"

SMALL = ["-D", "n_layer=2", "-D", "n_ctx=8", "-D", "vocab_size=128", "-D", "n_embd=16", "-D", "n_head=2", "-D", "p_drop=0.1"]
GPT = f"{top}/models/gpt2.pdm"
# name: (stages' ranks, pdc's options and models, the training's options)
CASES = {
    "2bw": ([1, 1], f"--stages 2 -D batch=4 --microbatch 1 --schedule 2bw {GPT}", ""),
    "bf16": ([1, 1], f"--precision bf16 --stages 2 -D batch=4 --microbatch 1 --schedule 2bw {GPT}", ""),
    "background": ([1, 1], f"--stages 2 -D batch=4 --microbatch 1 --schedule gpipe {GPT}", ""),
    "shared": ([2, 1], f"--stages 2 --replicas 2,1 -D batch=4 --microbatch 1 --schedule flush --shard-optimizer {GPT}",
               "--audit 2"),
    "tensor": ([2], f"--stages 1 --tensor 2 -D batch=4 --microbatch 2 --schedule flush -D n_embd=64 {GPT}", ""),
    "spilled": ([1], "--stages 1 -D batch=4 --microbatch 1 --schedule spilled --memory 9MiB -D n_layer=4 -D n_embd=64 "
                f"{GPT}", "--spill ."),
    "spilled_stages": ([1, 1], "-D batch=4 --microbatch 1 --schedule spilled --memory 9MiB -D n_layer=4 -D n_embd=64 "
                       f"--split h[1],/h[2],h[3] {GPT}", "--spill ."),
    "sharp": ([2], f"--sharp -D batch=4 --microbatch 1 {GPT} {GPT} -D n_layer=3", "--slice 0"),
}


class Trainings:
    """Programs of these trainings in a folder, and copies of what starts them: a build may go on meanwhile."""

    def __init__(self, build, folder):
        self.folder, self.pdc = folder, f"{build}/pdc"
        self.copies = {}
        for name in ("tests/faults/libfaults_inject.*", "tests/ranks/libranks_mpi.*", "tests/ranks/ranks_launch", "pdc"):
            source = glob.glob(f"{build}/{name}")[0]
            self.copies[os.path.basename(source).split(".")[0]] = shutil.copy(source, folder)

    def build(self, case, *options):
        ranks, of_pdc, _ = CASES[case]
        line = [self.pdc, "-o", case, "-n", str(sum(ranks)), *SMALL, *options, *of_pdc.split()]
        done = subprocess.run(line, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def command(self, case, options, inject=False):
        """The line of a launch."""
        ranks, programs = CASES[case][0], f"{self.folder}/{case}"
        line = ["-x", f"LD_PRELOAD={self.copies['libfaults_inject']}"] if inject else []
        for i, n in enumerate(ranks):
            line += [":"] * (i > 0) + ["-n", str(n), f"{programs}/stage{i}", *options]
        return [self.copies["ranks_launch"], *line]

    def checkpoint(self, state):
        """What pdc says of a folder of checkpoints, and the step that is gone on from (0: none)."""
        listed = subprocess.run([self.copies["pdc"], "checkpoint", state], capture_output=True, text=True, check=False)
        found = re.search(r"goes on from step (\d+)", listed.stdout)
        return listed.stdout + listed.stderr, int(found[1]) if found else 0


def read(path):
    with open(path, "rb") as file:
        return file.read()


def figures(log):
    """The figures of a log that no launch may change; where a step was done again they are the same."""
    return sorted(set(re.findall(rb'^(\{"step":\d+,"loss":.*?),"lr":', read(log), re.M)))
