# An installed pdc links nothing from its cache that another user could have written.  cache.sh PDC CMAKE
pdc=$1 cmake=$2
. "$(dirname "$0")/common.sh"
install_moved
model=$top/models/mlp.pdm
"$installed" -o own "$model" >build.log 2>&1 || complain "no build: $(cat build.log)"
! grep -q 'compiling the runtime' build.log || complain "the runtime is compiled anew for another place of pdc"
folder=$(ls -td "$XDG_CACHE_HOME"/pdc/runtime-* | head -n 1) # builds before left others
[ -d "$folder" ] || complain "no runtime: $folder"
# moved.sh sets a umask that would let others write.
for entry in "${folder%/*}" "$folder" "$folder/libpd_runtime.a"; do
  find "$entry" -maxdepth 0 -perm /077 | grep -q . && complain "others may use '$entry'"
done

# refused WHERE WHY: as the cache under `planted` stands, pdc refuses that entry, and makes nothing.
entry=planted/pdc/${folder##*/}
refused() {
  XDG_CACHE_HOME=$work/planted "$installed" -o nowhere "$model" >said 2>&1 && complain "'$1' is used although $2"
  grep -q "pdc does not use '$work/$1' from its cache: .*$2.*PD0640" said || complain "$1, $2: $(head -n 3 said)"
  grep -q 'help: .*XDG_CACHE_HOME' said || complain "no way out: $(cat said)"
}
plant() {
  rm -rf planted
  mkdir -p planted/pdc && cp -r "$folder" planted/pdc/ && chmod -R go-w planted || exit 1
}
plant && chmod 0777 planted/pdc && refused planted/pdc 'other users may write it (mode 0777)'
plant && chmod 0770 "$entry" && refused "$entry" 'other users may write it'
plant && chmod 0666 "$entry/libpd_runtime.a" && refused "$entry/libpd_runtime.a" 'other users may write it'
plant && mv planted/pdc elsewhere && ln -s ../elsewhere planted/pdc && refused planted/pdc 'it is a symbolic link'
rm -rf elsewhere
plant && mv "$entry" elsewhere && ln -s "$work/elsewhere" "$entry" && refused "$entry" 'it is a symbolic link'
plant && mv "$entry/libpd_runtime.a" lib.a && ln -s "$work/lib.a" "$entry/libpd_runtime.a" &&
  refused "$entry/libpd_runtime.a" 'it is a symbolic link'
if [ "$(id -u)" = 0 ]; then
  plant && chown 65534 planted/pdc && refused planted/pdc 'it belongs to user 65534'
  plant && chown 65534 "$entry" && refused "$entry" 'it belongs to user 65534'
  plant && chown 65534 "$entry/libpd_runtime.a" && refused "$entry/libpd_runtime.a" 'it belongs to user 65534'
fi
[ ! -e nowhere ] || complain "a folder is left of a build that was refused"
exit $failed
