"""Runs the examples of the documentation:  examples.py PDC TOP PAGE...
Blocks of a page, in their order, share a folder that has the repository's models/:

    ```console run                lines after "$ " are commands; their output must be the lines that follow
    ```console run numbers-vary   numbers and the spaces around them are not compared
    ```console run fails          the commands end with a status other than 0
    ```pdm NAME                   also c, python and cmake: written to NAME; if the repository has a file of this name, its text is compared
    <!-- run: COMMAND -->         a command that readers do not see; $TOP is the repository

A line "..." in an output stands for any lines, also none. With BLESS=1 outputs that differ, also in numbers, are rewritten in the page, unless
they have such a line. Other blocks are not run. CONTRIBUTING.md, "Examples in the documentation"."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

FILES = ("pdm", "c", "python", "cmake")
SECONDS = 600  # for one command; the limit is for hangs


class Block:
    def __init__(self, words, at):
        self.words, self.at, self.lines = words, at, []

    def is_run(self):
        return self.words[:2] == ["console", "run"]

    def steps(self):
        """[command, first line of its output, line after the last] of a console block, counted in self.lines."""
        steps = []
        i = 0
        while i < len(self.lines):
            if self.lines[i].startswith("$ "):
                command = self.lines[i][2:]
                while command.endswith("\\"):
                    i += 1
                    command = command[:-1] + self.lines[i]
                steps.append([command, i + 1, i + 1])
            elif not steps:
                raise ValueError("output before the first command")
            else:
                steps[-1][2] = i + 1
            i += 1
        return steps


def blocks(text):
    """Marked blocks of a page, and hidden commands as blocks without output."""
    found, block, fence = [], None, False
    for i, line in enumerate(text):
        if line.startswith("```"):
            fence = not fence
            words = line[3:].split()
            block = None
            if fence and (words[:2] == ["console", "run"] or words[:1] and words[0] in FILES and len(words) == 2):
                block = Block(words, i + 1)
                found.append(block)
        elif block:
            block.lines.append(line)
        elif not fence and (hidden := re.match(r"<!-- run: (.*) -->$", line)):
            one = Block(["console", "run", "hidden"], i)
            one.lines = ["$ " + hidden[1]]
            found.append(one)
    return found


def same(line, said, vary):
    if vary:
        line, said = (re.sub(r"\s*\d[\d.,e+-]*\s*", " N ", one) for one in (line, said))
    return line.rstrip() == said.rstrip()


def matches(expected, said, vary):
    """Whether the lines said are as expected; "..." stands for any lines."""
    if not expected:
        return not said
    if expected[0] == "...":
        return any(matches(expected[1:], said[i:], vary) for i in range(len(said) + 1))
    return bool(said) and same(expected[0], said[0], vary) and matches(expected[1:], said[1:], vary)


def run(command, folder, environment):
    try:
        done = subprocess.run(["sh", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return 124, [f"still running after {SECONDS} s"]
    return done.returncode, done.stdout.splitlines()


def check_file(block, folder, top):
    """Writes the block to the file that it names, or compares it with the repository's."""
    name, text = block.words[1], "".join(line + "\n" for line in block.lines)
    known = os.path.join(top, name)
    if os.path.exists(known):
        with open(known, encoding="utf-8") as f:
            return [] if text in f.read() else [f"differs from {name}"]
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(text)
    return []


def check_page(text, folder, top, environment):
    """Faults of a page, how many commands ran, and [first line, line after the last, what was said] to rewrite."""
    faults, rewrites, n = [], [], 0
    for block in blocks(text):
        if not block.is_run():
            faults += [f"line {block.at}: {fault}" for fault in check_file(block, folder, top)]
            continue
        for command, first, end in block.steps():
            n += 1
            status, said = run(command, folder, environment)
            expected = block.lines[first:end]
            if (status != 0) != ("fails" in block.words):
                faults.append(f"line {block.at}: '{command}' ended with status {status}:\n" + "\n".join(said[-30:]))
            elif "hidden" not in block.words and not matches(expected, said, "numbers-vary" in block.words):
                faults.append(f"line {block.at}: '{command}' printed:\n" + "\n".join(said))
            if "hidden" not in block.words and "..." not in expected and said != expected:
                rewrites.append((block.at + first, block.at + end, said))
    return faults, n, rewrites


def in_folder(text, top, environment):
    folder = tempfile.mkdtemp()
    try:
        os.symlink(os.path.join(top, "models"), os.path.join(folder, "models"))
        return check_page(text, folder, top, environment)
    finally:
        shutil.rmtree(folder)


def check_itself(top, environment):
    """A page whose outputs are wrong is found out, and the right one passes."""
    for block, wrong in [(["```console run", "$ echo a b", "a b"], False), (["```console run", "$ echo a b", "a"], True),
                         (["```console run", "$ echo 1", "2"], True), (["```console run numbers-vary", "$ echo 1", "2"], False),
                         (["```console run numbers-vary", "$ echo 1", "2 x"], True), (["```console run", "$ seq 9", "1", "...", "9"], False),
                         (["```console run", "$ seq 9", "1", "...", "8"], True), (["```console run", "$ false"], True),
                         (["```console run fails", "$ false"], False), (["```console run fails", "$ true"], True),
                         (["<!-- run: false -->", "```"], True), (["```pdm models/mlp.pdm", "use nn;"], False),
                         (["```pdm models/mlp.pdm", "use mm;"], True)]:
        faults, _, _ = in_folder(block + ["```"], top, environment)
        if bool(faults) != wrong:
            return [f"{block}: {faults}"]
    return []


def installed(to, pdc, top):
    """A prefix as find_package(Pdc) looks for, around the pdc of the build."""
    cmake = os.path.join(to, "lib", "cmake", "Pdc")
    os.makedirs(cmake)
    os.mkdir(os.path.join(to, "bin"))
    os.symlink(pdc, os.path.join(to, "bin", "pdc"))
    for file in (os.path.join(os.path.dirname(pdc), "PdcConfig.cmake"), os.path.join(top, "tools", "cmake", "PdcAddModel.cmake")):
        shutil.copy(file, cmake)
    return to


def main(pdc, top, pages):
    # Without TCP: Open MPI 5 complains about machines that have no network.
    environment = dict(os.environ, PATH=os.path.dirname(pdc) + ":" + os.environ["PATH"], OMP_NUM_THREADS="1", TOP=top,
                       COMPILER_PATH=os.path.join(os.path.dirname(pdc), "tests", "linker"), OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_btl="^tcp", OMPI_MCA_rmaps_base_oversubscribe="1")
    with tempfile.TemporaryDirectory() as prefix:
        environment["CMAKE_PREFIX_PATH"] = installed(os.path.join(prefix, "installed"), pdc, top)
        return check(pages, top, environment)


def check(pages, top, environment):
    faults = check_itself(top, environment)
    total = 0
    for page in pages:
        with open(os.path.join(top, page), encoding="utf-8") as f:
            text = f.read().splitlines()
        found, n, rewrites = in_folder(text, top, environment)
        faults += [f"{page}: {fault}" for fault in found]
        total += n
        if os.environ.get("BLESS") and rewrites:
            for first, end, said in reversed(rewrites):
                text[first:end] = said
            with open(os.path.join(top, page), "w", encoding="utf-8") as f:
                f.write("\n".join(text) + "\n")
    print("\n".join(faults + [f"{total} commands in {len(pages)} pages"]))
    return bool(faults) or total == 0


sys.exit(main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]))
