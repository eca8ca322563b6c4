#!/bin/sh
# The kit builds on a machine that has nvcc, g++, Python and CUDA's libraries, and neither clang, MPI, cJSON nor xxHash.
#   bare.sh BUILD PYTHON PATTERNS...     PATTERNS: programs to build, such as 'gpt2.bf16.32*,kernels.*'; of several the day's
build=$1
python=$("$2" -c "import sys; print(sys.executable)") || exit 1
shift 2
shift $((${PDC_DAY:-0} % $#))
patterns=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" "$here/prepare" --build "$build" --build-only --only "$patterns" "$work/kit" || exit 1

# PATH has what Debian's g++, binutils and coreutils bring.
mkdir "$work/bin"
for tool in g++ gcc as ld ar cat cp mv rm mkdir ls env sh bash sed grep uname dirname basename mktemp; do
  ln -s "$(command -v $tool)" "$work/bin/$tool" || exit 1
done
# nvcc's results are cached where ccache is installed. PATH is the bare one in it, too. Device code is not optimised: it does not run.
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc) ccache=$(command -v ccache || :)
printf '#!/bin/sh\nexec %s "%s" "$@" -Xptxas -O0 -Xcicc -O0\n' "$ccache" "$nvcc" >"$work/nvcc"
chmod +x "$work/nvcc"
build='exec env -i PATH="$1/bin" HOME="$2" CCACHE_BASEDIR="$1" NVCC="$1/nvcc" \
  "$3" "$1/kit/run" --build sm_90 --seconds 3000 --jobs "$4"'

# Headers that such a machine lacks are hidden where the kernel lets this user do so.
hide='for at in /usr/include/cjson /usr/include/x86_64-linux-gnu/mpi /usr/lib/x86_64-linux-gnu/openmpi; do
  [ ! -d "$at" ] || mount -t tmpfs none "$at"
done
[ ! -e /usr/include/xxhash.h ] || mount --bind /dev/null /usr/include/xxhash.h
'
set -- build "$work" "$HOME" "$python" "$(nproc)"
if unshare -rm true 2>/dev/null; then
  unshare -rm sh -c "$hide$build" "$@"
else
  echo "headers of cJSON, xxHash and MPI are not hidden: this user may not"
  sh -c "$build" "$@"
fi
