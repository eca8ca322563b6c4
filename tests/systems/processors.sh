# Programs on processors that they were not compiled for.  processors.sh PDC
# By qemu's models of processors: Haswell has AVX2 and no AVX-512, Nehalem no AVX. Skipped without qemu-user or on another
# processor than x86-64.
pdc=$1
. "$(dirname "$0")/../launch.sh"
model=$top/models/mlp.pdm
# Runtimes for other processors are kept between runs.
export XDG_CACHE_HOME="${pdc%/*}/install-cache"
seq -f 'line %g of a text that a small model reads' 400 >text.txt
train() { $emulator "./$1/stage0" --quiet --peak 1e9 --timeout 300 --data text.txt --steps 3 --save "$2" 2>&1; }
build_for() { "$pdc" --stages 1 --threads 1 -o "$@" "$model" >build.log 2>&1 || { complain "pdc -o $*: $(cat build.log)"; exit 1; }; }

# More scratch memory than was planned is refused, not overrun: bf16 is widened where instructions for it are switched off.
build_for rounded --precision bf16
if grep -q avx512_bf16 /proc/cpuinfo; then
  emulator="env ONEDNN_MAX_CPU_ISA=AVX2"
  train rounded none.safetensors >said && complain "a program runs in less memory than its kernels take"
  grep -q 'oneDNN [0-9.]* needs [0-9]* bytes of scratch memory on this processor, but the program has [0-9]*: ' said ||
    complain "too little scratch memory: $(cat said)"
fi

emulator=$(command -v qemu-x86_64-static || command -v qemu-x86_64) && [ "$(uname -m)" = x86_64 ] ||
  { echo "no qemu-user for x86-64"; [ $failed = 0 ] && exit 77; exit $failed; }
qemu=$emulator

# Compiled for this machine.
build_for here
emulator="$qemu -cpu Nehalem"
train here none.safetensors >said && complain "a program for this processor runs on one of 2008"
grep -q '^pd: this program was compiled for a processor with .*, and this one has none: .*pdc --march' said ||
  complain "not what the processor lacks: $(cat said)"

# Compiled for others: the same bits on all of them.
for level in v2:Nehalem v3:Haswell; do
  taken || continue
  cpu=${level#*:} level=x86-64-${level%:*}
  build_for "$level" --march "$level"
  emulator=
  train "$level" "$level-here.safetensors" >said || complain "$level, here: $(cat said)"
  emulator="$qemu -cpu $cpu"
  train "$level" "$level-there.safetensors" >said || complain "$level on a $cpu: $(cat said)"
  cmp "$level-here.safetensors" "$level-there.safetensors" || complain "$level: other bits on a $cpu"
done
if [ -d x86-64-v3 ]; then
  emulator="$qemu -cpu Nehalem"
  train x86-64-v3 none.safetensors >said && complain "a program for AVX2 runs without"
  grep -q 'compiled for a processor with AVX2' said || complain "not that AVX2 is lacking: $(cat said)"
fi

"$pdc" --march no-such-processor -o nowhere "$model" >said 2>&1 && complain "an unknown processor"
grep -q "help: '--march' takes the values" said || complain "an unknown processor: $(cat said)"
"$pdc" --march x86-64-v3 --target cuda -S -o nowhere "$model" >said 2>&1 && complain "--march with GPUs"
grep -q "'--march' is for processors.*PD0613" said || complain "--march with GPUs: $(cat said)"
exit $failed
