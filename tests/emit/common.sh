# What the scripts of this folder share: CASE PDC SOURCE_DIR CC BUILD_DIR, each in a directory of its own.
case=$1 pdc=$2 source=$3 cc=$4 build=$5
work=$(mktemp -d) || exit 1
# Open MPI makes and removes a folder that all launches share otherwise: two tests at once got into each other's way.
export OMPI_MCA_orte_tmpdir_base="$work"
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
  echo "$case: $*" >&2
  exit 1
}

# Exits unless the command exits with the status: expect STATUS COMMAND...
expect() {
  status=$1
  shift
  "$@" >out 2>err
  got=$?
  [ "$got" = "$status" ] || { cat out err >&2; fail "exit status $got, not $status: $*"; }
}

contains() {
  grep -q -- "$2" "$1" || { cat "$1" >&2; fail "no '$2' in $1"; }
}

lacks() {
  ! grep -n -- "$2" "$1" >&2 || fail "'$2' in $1"
}
