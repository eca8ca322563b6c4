"""What is checked and measured on a machine with a GPU: read by `prepare`, which makes a folder of each program, and
so the one place to add one.

A Program is what pdc makes of a model; a Check runs it and compares what it writes. Paths of models and data are
relative to the repository; {images} and {tokens} stand for data that `prepare` makes."""
import dataclasses
import glob
import os
import re

TOP = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))

# Relative to a tensor's largest magnitude and to a loss: sums in another order, and functions of bf16's 8 bits.
TOLERANCE = {"f32": 1e-4, "bf16": 6e-2}
LOSS_TOLERANCE = {"f32": 1e-4, "bf16": 2e-2}
LARGER = {"golden.sequence.bf16": 2e-1} # a bias of queries: what is left of differences between like numbers
UPDATES = 10
NO_TRAINING = {"inference"} # golden cases that train nothing
SEVERAL_UPDATES = {"padding"} # whose files are named like those of gradients


@dataclasses.dataclass
class Program:
    name: str
    model: str
    precision: str = "f32"
    ranks: int = 1
    options: tuple = ()


@dataclasses.dataclass
class Check:
    part: str
    program: Program
    train: tuple                # options of train, but for --log and --save
    tensors: str | None = None  # what --save must write
    losses: str | None = None   # what --log must; "c": as the C target's program, which `prepare` runs
    tolerance: tuple = (0.0, 0.0)
    tool: tuple = ()            # runs under it: compute-sanitizer
    gpus: int = 1               # that it takes
    needs: tuple = ()           # libraries that its program can do without, but not it
    reference: Program | None = None # the C target's program for "c", where its options are others
    name: str = ""              # of the check, where several run one program


def case_files(folder, case):
    """Of a golden case: the arrays it reads, the weights it starts from, what it must give."""
    at = os.path.join("tests", folder, case)
    numbered = sorted(glob.glob(f"{TOP}/{at}.[0-9].npy"))
    named = [f"{at}.npy"] + ([f"{at}.next.npy"] if os.path.exists(f"{TOP}/{at}.next.npy") else [])
    data = [os.path.relpath(path, TOP) for path in numbered] or named
    return data, f"{at}.init.safetensors", f"{at}.want.safetensors", f"{at}.loss"


def batch_of(model):
    with open(os.path.join(TOP, model)) as file:
        return int(re.search(r"batch *= *(\d+);", file.read()).group(1))


def gradient_check(folder, case, precision, ranks=1, options=("--microbatch", "1"), train=()):
    """One update whose rate makes the weights the gradients."""
    data, init, want, loss = case_files(folder, case)
    model = f"tests/{folder}/{case}.pdm"
    suffix = f".{ranks}_ranks" if ranks > 1 else ""
    program = Program(f"{folder}.{case}.{precision}{suffix}", model, precision, ranks,
                      ("--stages", str(ranks), *options))
    tolerance = LARGER.get(program.name, TOLERANCE[precision])
    return Check("ranks" if ranks > 1 else folder, program, ("--data", *data, "--steps", "1", "--init", init, *train),
                 want, loss, (tolerance, LOSS_TOLERANCE[precision]))


def updates_check(case, steps, microbatch, precision, data=None, input_name="x", want=".0"):
    """Several updates: running averages (statistics), an optimizer (lion), parameters by patterns (with tune's data), a
    table with a padding row. Expected files are CASE + want + ".want.safetensors" and ".loss"."""
    at, of = f"tests/golden/{case}", f"tests/golden/{data or case}"
    program = Program(f"golden.{case}.{precision}", f"{at}.pdm", precision, 1,
                      ("--stages", "1", "--schedule", "flush", "--microbatch", str(microbatch)))
    train = ("--data", f"{of}.{input_name}.npy", f"{of}.y.npy", "--init", f"{of}.init.safetensors", "--steps", str(steps))
    return Check("golden", program, train, f"{at}{want}.want.safetensors", f"{at}{want}.loss",
                 (TOLERANCE[precision], LOSS_TOLERANCE[precision]))


def names_of(folder):
    """Cases with gradients of PyTorch's."""
    found = (os.path.basename(path)[:-len(".loss")] for path in glob.glob(f"{TOP}/tests/{folder}/*.loss")
             if os.path.exists(path[:-len(".loss")] + ".pdm")
             and os.path.exists(path[:-len(".loss")] + ".want.safetensors"))
    return sorted(case for case in found if case not in SEVERAL_UPDATES)


def small_options(model):
    with open(f"{TOP}/tests/models/{model}.options") as file:
        return tuple(word for line in file for word in ("-D", line.strip()))


SMALL_GPT = ("-D", "n_layer=2", "-D", "n_embd=64", "-D", "n_head=2", "-D", "n_ctx=64", "-D", "batch=4")
TEXT = ("--data", "tests/reference/text.txt", "--token-type", "u8")
IMAGES = ("--data", "image={images}/image.npy", "label={images}/label.npy")
SGD = ("-D", "optimizer=sgd(lr = 1e-3, momentum = 0.9)", "-D", "lr_schedule=constant", "-D", "batch=16")


def training_checks():
    """Ten updates against the C target's losses."""
    found = []
    for name, options, data in [("gpt_mini", ("-D", "n_ctx=64"), TEXT), ("llama_mini", ("-D", "n_ctx=64"), TEXT),
                                ("resnet50", (*small_options("resnet50"), *SGD), IMAGES)]:
        for precision in ("f32", "bf16"):
            program = Program(f"models.{name}.{precision}", f"models/{name}.pdm", precision, 1,
                              ("--stages", "1", *options))
            found.append(Check("models", program, (*data, "--steps", str(UPDATES)), None, "c",
                               (0, LOSS_TOLERANCE[precision])))
    return found


def rank_checks():
    """Two ranks that share a GPU, by MPI and by copies into each other's memory, or have one each and use NCCL. How NCCL
    itself is called on one GPU is a kernels' test: a single rank of a program sends nothing."""
    pair = []
    for case in ("blocks", "layers"):
        whole = str(batch_of(f"tests/golden/{case}.pdm"))
        options = ("--microbatch", whole, "--schedule", "flush", "--recompute", "on")
        pair.append(gradient_check("golden", case, "f32", 2, options, ("--comm", "mpi")))
    train = (*TEXT, "--steps", str(UPDATES))
    late = ("--stages", "2", "--schedule", "2bw", "-D", "delay_correction=auto")
    for name, options, precision in [("pipeline", late, "f32"), ("pipeline", late, "bf16"),
                                     ("replicas", ("--stages", "1", "--replicas", "2", "--schedule", "flush"), "f32")]:
        program = Program(f"ranks.{name}.{precision}", "models/gpt_mini.pdm", precision, 2,
                          ("-n", "2", *options, *SMALL_GPT))
        ways = [("ranks", "mpi", 1, ()), ("nccl", "nccl", 2, ("nccl",))]
        if name == "pipeline":  # replicas send each other nothing that could be copied
            ways.append(("peer", "peer", 1, ()))
        for part, comm, gpus, needs in ways:
            named = dataclasses.replace(program, name=f"{part}.{name}.{precision}")
            pair.append(Check(part, named, (*train, "--comm", comm), None, "c", (0, LOSS_TOLERANCE[precision]), (),
                              gpus, needs))
    return pair


def mode_checks():
    """Ways of running that change no number: against the C target's losses of a plain training."""
    plain = Program("modes.plain.f32", "models/gpt_mini.pdm", "f32", 1, ("--stages", "1", *SMALL_GPT))
    train = (*TEXT, "--steps", str(UPDATES))
    tolerance = (0, LOSS_TOLERANCE["f32"])
    found = [Check("modes", plain, (*train, *options), None, "c", tolerance, name=f"modes.{name}.f32")
             for name, options in (("graphs", ("--graphs",)), ("audit", ("--audit", "1")))]
    larger = ("-D", "n_layer=6", "-D", "n_embd=256", "-D", "n_ctx=64", "-D", "batch=8")
    for update in ("host", "device"):
        spilled = Program(f"modes.spilled_{update}.f32", "models/gpt_mini.pdm", "f32", 1,
                          ("-n", "1", "--schedule", "spilled", "--memory", "60MiB", "--update", update, *larger))
        found.append(Check("modes", spilled, (*train, "--spill", "host"), None, "c", tolerance,
                           reference=Program("", "models/gpt_mini.pdm", "f32", 1, ("--schedule", "sequential", *larger))))
    dropout = ("--stages", "1", *SMALL_GPT, "-D", "p_drop=0.2")
    residual = ("--stages", "1", *SMALL_GPT, "--residual", "bf16")
    tensor = ("-n", "2", "--stages", "1", "--tensor", "2", "--schedule", "flush", *SMALL_GPT)
    found.append(Check("modes", Program("modes.dropout.f32", "models/gpt2.pdm", "f32", 1, (*dropout, "-D", "vocab_size=256")),
                       train, None, "c", tolerance))
    found.append(Check("modes", Program("modes.residual.bf16", "models/gpt_mini.pdm", "bf16", 1, residual), train, None, "c",
                       (0, LOSS_TOLERANCE["bf16"])))
    found.append(Check("modes", Program("modes.tensor.f32", "models/gpt_mini.pdm", "f32", 2, tensor),
                       (*train, "--comm", "mpi"), None, "c", tolerance))
    return found


@dataclasses.dataclass
class Generation:
    """Text that the C target generates with weights that it trained, which this target must generate, too."""
    program: Program
    train: tuple
    generate: tuple


def generations():
    program = Program("modes.generate.f32", "models/gpt_mini.pdm", "f32", 1, ("--stages", "1", *SMALL_GPT))
    return [Generation(program, (*TEXT, "--steps", "60"),
                       ("--prompt", "The ", "--tokens", "50", "--temperature", "0", "--quiet"))]


def sanitizer_checks():
    found = []
    for precision in ("f32", "bf16"):
        program = Program(f"sanitizer.gpt.{precision}", "models/gpt_mini.pdm", precision, 1,
                          ("--stages", "1", *SMALL_GPT))
        for tool in ("memcheck", "racecheck"):
            found.append(Check("sanitizer", program, (*TEXT, "--steps", "2"), None, None, (0, 0),
                               ("compute-sanitizer", "--tool", tool, "--error-exitcode", "9")))
    return found


def checks():
    found = [gradient_check("golden", case, precision) for precision in ("f32", "bf16") for case in names_of("golden")]
    found += [gradient_check("graphs", case, precision, options=("--microbatch", "2"))
              for precision in ("f32", "bf16") for case in names_of("graphs")]
    found += [updates_check(*case, precision) for precision in ("f32", "bf16")
              for case in (("statistics", 4, 3), ("lion", 6, 2))]
    found += [updates_check(case, 6, 3, precision, "tune") for precision in ("f32", "bf16")
              for case in ("frozen", "groups", "ema")]
    found += [updates_check("padding", 3, 2, precision, input_name="ids", want="") for precision in ("f32", "bf16")]
    return found + training_checks() + rank_checks() + mode_checks() + sanitizer_checks()


@dataclasses.dataclass
class KernelTest:
    """A program of tests/, which runs kernels on arrays of its own and ends with 0 when all is right."""
    name: str
    sources: tuple              # to compile for the GPU, or, of C, for the processor
    runtime: tuple = ()         # sources of runtime/ whose objects it links
    arguments: tuple = ()
    loops: tuple | None = None  # options of tests/cuda/loops/print.c, which writes c.c and cuda.cu for it
    needs: tuple = ()           # libraries that the runtime's other sources do without


def kernel_tests():
    products = ("algorithms", "measured")
    calls = {"matmul": products, "gather": (), "pooling": (), "lstm": ("matmul", *products),
             "convolution": ("convolution_graph", "cudnn_graphs", "columns", "depthwise", "matmul", *products)}
    found = [KernelTest(f"kernels.{name}", (f"tests/cuda/host/calls/{name}.cu",),
                        tuple(f"cuda/{x}.cu" for x in (name, *others)), needs=("cudnn",) * (name == "convolution"))
             for name, others in calls.items()]
    found.append(KernelTest("kernels.nccl", ("tests/gpu/nccl.cu",), needs=("nccl",)))
    attention = tuple(f"cuda/{x}.cu" for x in ("attention", "attention_f32", "attention_bf16", "attention_bf16_backward",
                                               "attention_cudnn", "attention_graph", "attention_check", "cudnn_graphs",
                                               "measured"))
    found += [KernelTest(f"kernels.attention.{precision}", ("tests/cuda/kernels/attention.cpp",), attention,
                         (precision,)) for precision in ("f32", "bf16")]
    found.append(KernelTest("kernels.mma", ("tests/cuda/kernels/mma.cu",)))
    loops = {name: ("-m", "4", f"tests/golden/{name}.pdm")
             for name in ("pointwise", "shapes", "statistics", "attention", "sequence", "convolution")}
    loops |= {f"{name}_bf16": ("-b", "-m", "4", f"tests/golden/{name}.pdm") for name in ("layers", "blocks")}
    for width in (1, 17, 33, 1000, 50255):
        loops[f"rows_{width}"] = ("-m", "2", "-D", f"width={width}", "tests/cuda/loops/rows.pdm")
    loops["rows_1024_bf16"] = ("-b", "-m", "2", "-D", "width=1024", "tests/cuda/loops/rows.pdm")
    return found + [KernelTest(f"kernels.loops.{name}", ("tests/cuda/loops/compare.cu", "runtime/kernels/loops.c"),
                               (), (), options)
                    for name, options in loops.items()]


@dataclasses.dataclass
class Measure:
    """A training that is timed. pytorch: the ways in which PyTorch does the same: eager, compiled."""
    part: str
    program: Program
    model: dict                 # sizes, as pytorch_step.py reads them
    batch: int
    pytorch: tuple = ()
    train: tuple = ()           # options beside data and steps
    profile: bool = False       # whether its kernels are timed one by one, too


# GPT-2 of 124 M parameters; one of 1.6 billion; and one that a processor can stand in for.
GPT2 = {"kind": "gpt", "layers": 12, "heads": 12, "width": 768, "context": 1024, "vocabulary": 50257}
GPT2_XL = {**GPT2, "layers": 48, "heads": 25, "width": 1600}
SMALL_GPT2 = {"kind": "gpt", "layers": 1, "heads": 2, "width": 16, "context": 16, "vocabulary": 97}
RESNET50 = {"kind": "resnet50", "size": 224, "classes": 1000}


def gpt_program(name, sizes, precision, batch, more=("-D", "p_drop=0", "--memory", "200GiB")):
    attributes = zip(("n_layer", "n_head", "n_embd", "n_ctx", "vocab_size"), list(sizes.values())[1:])
    words = tuple(word for attribute, value in attributes for word in ("-D", f"{attribute}={value}"))
    schedule = () if "--schedule" in more else ("--stages", "1", "--schedule", "sequential", "--microbatch", str(batch))
    return Program(name, "models/gpt2.pdm", precision, 1, (*schedule, "-D", f"batch={batch}", *words, *more))


def measures(small=False):
    """In order of worth; the first is measured in every way."""
    gpt = SMALL_GPT2 if small else GPT2

    def plain(part, precision, batch, pytorch=(), sizes=gpt, name="gpt2", profile=False):
        return Measure(part, gpt_program(f"{name}.{precision}.{batch}", sizes, precision, batch), sizes, batch, pytorch, (),
                       profile)
    if small:
        return [plain("gpt2", "bf16", 2, ("eager", "compiled"), profile=True), plain("batches", "bf16", 4)]

    def variant(name, *more, train=()):
        return Measure("variants", gpt_program(f"gpt2.bf16.32.{name}", gpt, "bf16", 32, more), gpt, 32, (), train)

    def spilled(name, sizes, batch, memory):
        options = ("-D", "p_drop=0", "-n", "1", "--schedule", "spilled", "--memory", memory)
        return Measure("variants", gpt_program(name, sizes, "bf16", batch, options), sizes, batch, (), ("--spill", "host"))
    resnet = Program("resnet50.bf16.256", "models/resnet50.pdm", "bf16", 1,
                     ("--stages", "1", "--schedule", "sequential", "--microbatch", "256"))
    return [plain("gpt2", "bf16", 32, ("eager", "compiled"), profile=True), plain("batches", "bf16", 16),
            plain("batches", "bf16", 8, ("compiled",)),
            Measure("resnet50", resnet, RESNET50, 256, ("eager",), (), True),
            plain("xl", "bf16", 8, ("eager",), GPT2_XL, "gpt2_xl"),
            variant("residual", "-D", "p_drop=0", "--memory", "200GiB", "--residual", "bf16"),
            variant("dropout", "-D", "p_drop=0.1", "--memory", "200GiB"),
            spilled("gpt2.bf16.16.spilled", gpt, 16, "2GiB"), spilled("gpt2_xl.bf16.16.spilled", GPT2_XL, 16, "10GiB"),
            *(plain("batches", "bf16", batch) for batch in (64, 128)),
            *(plain("batches", precision, 8) for precision in ("tf32", "f32"))]
