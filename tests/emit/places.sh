#!/bin/sh
# usage: places.sh CASE PDC SOURCE_DIR CC BUILD_DIR
# What names do, of models and directories, and what a build does to files that stand where it writes. The compiler is
# mostly a script, which makes programs that say "ran" and is quick.
. "${0%/*}/common.sh"

# Refuses what a compiler would take for anything but a file's path.
cat >cc <<'END'
#!/bin/sh
for word; do
  case $word in
  @*) echo "a list of arguments: $word"; exit 1 ;;
  */stage*) case $word in /* | ./* | ../*) ;; *) echo "no path: $word"; exit 1 ;; esac ;;
  esac
  case $before in -o) program=$word ;; esac
  case $word in *stage*.c*) [ -f "$word" ] || exit 1 ;; esac
  before=$word
done
[ ! -x ./hook ] || ./hook $PPID || exit 1
[ "$program" ] || exit 0 # asked for its macros
printf '#!/bin/sh\necho "ran $*"\n' >"$program" && chmod +x "$program"
END
chmod +x cc
unset OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK SLURM_PROCID

model() {
  cat <<'END'
model m(width = 8) {
  input x[width];
  target y[width];
  param w[width, width] = normal(0.1);
  loss square(x @ w - y);
}
train m { batch = 4; optimizer = sgd(lr = 0.1); }
END
}
model >m.pdm

# What a symbolic link starts, and one in another folder to that one, is what the script starts.
by_link() {
  rm -rf links && mkdir links && ln -s -- ".$1" links/first && ln -s -- links/first -second || exit 1
  for link in links/first ./-second "$PWD/-second"; do
    expect 0 "$link" 'a b'
    grep -qx 'ran a b' out || fail "by the link $link to $1: $(cat out)"
  done
  rm -r links ./-second
}

# Names, separated by '/', which none can have. Some would run a command that makes the file "injected".
names="@x/-n/-o/--/-Wl,-x/-fplugin=.\\x.so/a b/ a/a /a'b/a\"b/a\\b/a\$(touch injected)b/a\`touch injected\`b/a;touch injected/a&touch injected&/a|b/\
a>injected/a<b/a*b/a?b/[a]/{a,b}/~/#a/%s%n/a=b/a:b/a,b/!a/\$HOME/.a/..a/-/$(printf 'a\tb/\033[2J/\303\251/\377/a\nb')/$(printf '%0240d' 0)"

# The models and the folders are all in here/, so that a name alone is what pdc is given.
names_are_paths() {
  mkdir here && cp cc here && cd here || fail "no folder"
  while [ -n "$names" ]; do
    name=${names%%/*}
    case $names in */*) names=${names#*/} ;; *) names= ;; esac
    model >"./$name.pdm"
    for how in "" "-o"; do
      expect 0 "$pdc" --cc ./cc ${how:+-o "$name"} -- "$name.pdm"
      directory=$name
      [ -n "$how" ] || directory=$name.build
      expect 0 "./$directory/train" 'a b'
      by_link "./$directory/train"
      contains out 'ran a b'
      [ "$(cd "./$directory" && echo * .[a-z]*)" = "app model.svg plan.json stage0 stage0.c train .pdc-files .pdc-programs" ] || fail "$directory: $(ls -A "./$directory")"
      rm -r "./$directory"
    done
    rm "./$name.pdm"
    [ "$(echo * .[!.]*)" = "cc err out .[!.]*" ] || fail "$name left $(ls -A)"
  done
}

# The same for the compilers themselves.
compilers_take_names_for_names() {
  echo "-fplugin=./none.so" >x.build
  for name in @x -n 'a $(touch injected) `touch injected` "b\' "$(printf 'c\nd')"; do
    model >"./$name.pdm"
    expect 0 "$pdc" --cc "$cc -O0" -o "$name" -- "$name.pdm"
    expect 0 "./$name/train" --help
    [ ! -e injected ] || fail "'$name' was run"
  done
  expect 0 "$pdc" --cc "$cc -O0 -g" -o "with symbols" m.pdm
  strings -a "with symbols/stage0" | grep 'pdc-new' && fail "debuggers look for the source where it is no more"
  expect 1 "$pdc" -S -MD -o "$(printf 'a\nb')" m.pdm
  contains err PD0616
}

# nvcc hands the absolute path of a source to a shell.
nvcc_takes_names_for_names() {
  name='@x $(touch injected) `touch injected` "b\'
  if "$pdc" --target cuda --arch sm_80 -o "$name" m.pdm >out 2>err; then
    expect 0 "./$name/train" --help
  else
    contains err PD0609 # no CUDA here
  fi
  [ ! -e injected ] || fail "'$name' was run"
}

# Nothing of a build that fails, or is stopped at any moment, takes the place of the one before.
builds_are_whole_or_not_there() {
  expect 0 "$pdc" --cc ./cc --stages 1 -o b m.pdm
  cp -r b before
  expect 1 "$pdc" --cc "sh -c false" -D batch=8 -o b m.pdm
  diff -r b before || fail "a build that failed changed the one before"
  expect 1 "$pdc" --cc "sh -c false" -o new m.pdm
  [ ! -e new ] || fail "a build that failed left a directory"
  printf '#!/bin/sh\nkill -9 $1\nexit 1\n' >hook && chmod +x hook
  "$pdc" --cc ./cc -D batch=8 -o b m.pdm >out 2>err
  [ -d b/.pdc-new ] || fail "the build was not stopped"
  diff -r -x .pdc-new b before || fail "a build that was stopped changed the one before"
  rm hook
  expect 0 "$pdc" --cc ./cc --stages 1 -o b m.pdm
  diff -r b before || fail "what a stopped build left is not removed"
  printf '#!/bin/sh\n"%s" -S -o b m.pdm 2>second\n[ $? = 1 ]\n' "$pdc" >hook && chmod +x hook
  expect 0 "$pdc" --cc ./cc -o b m.pdm
  contains second "PD0615"
  rm hook
  mkdir b/stage0.d && rm b/train && mkdir b/train # nothing can be moved there
  expect 1 "$pdc" --cc ./cc -o b m.pdm
  contains err "PD0605"
}

# What pdc did not make it neither replaces nor removes.
others_files_are_left_alone() {
  for file in stage0.c stage0 stage7 stage1.cu app train plan.json model.svg m.d infer notes; do echo "mine: $file" >$file; done
  mkdir saved && cp -r * .[a-z]* saved 2>/dev/null
  for how in "" -S -MD "--target cuda -S" --infer; do
    expect 1 "$pdc" --cc ./cc $how -o . m.pdm
    contains err PD0614
    for file in saved/*; do
      [ ! -f "$file" ] || [ "${file##*/}" = out ] || [ "${file##*/}" = err ] || cmp "$file" "${file##*/}" || fail "$how: $file has changed"
    done
    [ ! -e .pdc-files ] && [ ! -e .pdc-new ] || fail "$how left something"
  done
  rm stage0.c stage0 app train plan.json model.svg
  expect 0 "$pdc" --cc ./cc -o . m.pdm
  expect 0 "$pdc" --cc ./cc -D batch=8 -o . m.pdm
  expect 0 "$pdc" -S --target cuda --stages 1 -o . m.pdm
  [ ! -e stage0 ] && [ ! -e stage0.c ] && [ -e stage0.cu ] || fail "what pdc made before is left"
  for file in stage7 stage1.cu m.d infer notes; do [ "$(cat $file)" = "mine: $file" ] || fail "$file has changed"; done
  # Nor what an edited list names elsewhere.
  mkdir d && printf '../notes\n..\n/etc/passwd\nd\n' >d/.pdc-files
  expect 0 "$pdc" -S -o d m.pdm
  [ -e notes ] || fail "a file of another directory was removed"
}

# With -S, programs that somebody made of the sources are kept only while these are the same.
programs_go_with_their_sources() {
  expect 0 "$pdc" -S -o s m.pdm
  : >s/stage0
  expect 0 "$pdc" -S -o s m.pdm
  [ -e s/stage0 ] || fail "a program of the same source was removed"
  expect 0 "$pdc" -S -MD -D batch=8 -o s m.pdm
  [ ! -e s/stage0 ] || fail "a program of another source was left"
  expect 0 "$pdc" --cc ./cc -o s m.pdm
  [ -e s/m.d ] && [ -x s/stage0 ] || fail "$(ls s)"
}

# A stage whose source, compiler, flags and runtime are those of the build before is not compiled again; anything else is,
# a program that somebody changed, too.
programs_are_taken_over() {
  cat >counting <<'END'
#!/bin/sh
for word; do
  [ "$word" = --version ] && cat version && exit
  [ "$word" = -dM ] && exit
done
echo "$@" >>compiled
exec ./cc "$@"
END
  chmod +x counting
  echo "compiler 1" >version
  built() { # COMPILED OPTIONS...
    : >compiled
    wanted=$1
    shift
    expect 0 "$pdc" --cc "./counting $flags" -o r "$@" "$source/models/mlp.pdm"
    [ "$(wc -l <compiled)" = "$wanted" ] || fail "compiled $(wc -l <compiled) programs, not $wanted: $flags $*"
    expect 0 r/train 'a b'
    contains out 'ran a b'
  }
  flags=
  built 1
  built 0
  built 0 -MD
  built 1 -D batch=128
  built 0 -D batch=128
  echo "echo other" >>r/stage0
  built 1 -D batch=128
  echo "compiler 2" >version
  built 1 -D batch=128
  rm r/.pdc-programs
  built 1 -D batch=128
  flags=-g
  built 1 -D batch=128
  built 0 -D batch=128
}

$case
