# Sourced by the tests that have pdc call a compiler of programs for GPUs: makes "nvcc" in the folder that they run in.
# In nvcc's place: compiles over tests/cuda/host what is given as nvcc would be.
cat >nvcc <<END
#!/bin/sh
for word; do
  case \$word in
  --version) echo "a stand-in"; exit ;;
  *.cu) source=\$word ;;
  esac
  [ "\${before:-}" != -o ] || program=\$word
  before=\$word
done
mkdir stand-in && cp "\$source" stand-in/stage0.cu && sh "${pdc%/*}/tests/cuda/host/compile" stand-in &&
  mv stand-in/stage0 "\$program" && rm -r stand-in
END
chmod +x nvcc
