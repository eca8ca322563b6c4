"""Prints the table of families in docs/guide/import.md, from the tests of this folder:

    TRANSFORMERS=PYTHON python3 table.py BUILD [FAMILY...]

BUILD is a build folder with pdc, its runtime and tests/golden/compare. Each family has a folder that make_folders.py or
make_tasks.py wrote by transformers, and adapters of make_adapters.py by PEFT. The scripts run, task, lora and ../generate/encoders
compare; this one collects their largest differences. A cell says "fails" where a script does. With TRANSFORMERS, a Python that has
transformers and peft, these load the saved folders, too."""
import os
import re
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
# Family: the folder, and the script that generates, if the folder's own does not; a reason: it does not apply.
families = {name: (f"folders/{name}", None) for name in
            ("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "olmo2", "phi3", "gemma", "gemma2", "gpt2", "gpt_neox")}
families["gemma3_text"] = ("folders/gemma3", None)
for name, task in (("bert", "bert_classes"), ("roberta", "roberta_masked"), ("vit", "vit_classes")):
    families[name] = (f"tasks/{task}", "does not apply")
families["t5"] = ("tasks/t5_gated", ["encoders", "t5_gated"])
families["whisper"] = ("tasks/whisper", ["features"])


def script(build, path, *words):
    done = subprocess.run(["sh", os.path.join(here, path), os.path.join(build, "pdc"), *words], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, cwd=build)
    return done.returncode == 0, done.stdout


def worst(said, what, tolerance):
    found = [float(x) for x in re.findall(rf"^\d+ {what}, worst ([\d.e+-]+)[^\n]*tolerance {tolerance}$", said, re.M)]
    return f"{max(found):.1e}" if found else "fails"


def row(build, family):
    folder, generates = families[family]
    kind, case = folder.split("/")
    compare = os.path.join(build, "tests", "golden", "compare")
    good, said = script(build, "run" if kind == "folders" else "task", compare, case)
    yes, identical = ("yes", "identical") if good else ("fails", "fails")
    cells = [yes, yes, worst(said, "elements", "1e-05"), worst(said, "losses", "1e-05"), identical, worst(said, "elements", "5e-05")]
    if generates is None:
        generates = "identical" if good else "fails"
    elif isinstance(generates, list):
        ok, more = script(build, os.path.join("..", "generate", generates[0]), *generates[1:])
        generates, good, said = "identical" if ok else "fails", good and ok, said + more
    name = "gemma3" if family == "gemma3_text" else family
    ok, more = script(build, "lora", compare, name)
    adapter = f"{worst(more, 'losses', '1e-05')}" if ok else "fails"
    for line in (said + more).splitlines() if not (good and ok) else ():
        print(f"{family}: {line}", file=sys.stderr)
    return good and ok, [family] + cells + [generates, adapter]


def main(build, wanted):
    print("| family | import | `--init` | logits | updates | `--save` | load back | generate | adapter |")
    print("|---|---|---|---|---|---|---|---|---|")
    all_good = True
    for family in wanted or families:
        good, cells = row(build, family)
        all_good &= good
        print("| `" + "` | ".join([cells[0], " | ".join(cells[1:])]) + " |", flush=True)
    return not all_good


sys.exit(main(os.path.abspath(sys.argv[1]), sys.argv[2:]))
