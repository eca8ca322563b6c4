# What words.sh and large.sh share. CASE: c, clang_cuda (against tests/cuda/host's headers) or nvcc (with HOST_COMPILER).
host=$6
case $case in c) target=c suffix=c ;; *) target=cuda suffix=cu ;; esac

# compiler SOURCE [FLAG...]: checks the source; with -E it prints the preprocessed source.
compiler() {
  text=$1
  shift
  check=-fsyntax-only
  [ "$1" != -E ] || check=
  case $case in
  c) "$cc" -std=gnu11 -fopenmp $check -Wall -Wextra -Wpedantic -Werror -I"$source/runtime" "$@" "$text" ;;
  clang_cuda) "$cc" -x c++ -std=c++20 $check -Wall -Wextra -Werror -I"$source/tests/cuda/host/include" -I"$source/runtime" "$@" \
    "$text" ;;
  nvcc) "$cc" -ccbin "$host" -std=c++20 -arch=sm_90 -I"$source/runtime" ${check:+-cuda -o "$text.ii" -fdevice-syntax-only} \
    "$@" "$text" ;;
  esac
}
