#!/usr/bin/env bash
# check_layers.sh ROOT: reports every include in the tree at ROOT that breaks a rule of the layers;
# exit status 1 if there is one.
# - A folder includes its own files and those of folders to its left (ALLOWED); tests may include
#   everything.
# - Own headers are named from the root: "ops/op.h", never "op.h" or "../ops/op.h".
# - A family's fast paths, ops/FAMILY/fast/, are included by that family and by tests alone.
# - Threads come from core/parallel.h, not from OpenMP.
# - Installed headers include no library of others and ask for none (SINTER_HAS_*): a user of the
#   package needs none of their flags; but for those of cli, which is linked apart. Those that drive
#   a CUDA card (core/device/cuda_*.h, kernel_cuda.h) may name its toolkit. core/json.h is not installed, so no header includes it.
# - What the processor or the build has (intrinsics, __CUDACC__, SINTER_HAS_CUDA) is asked in
#   core/device/ and in ops/FAMILY/fast/ only, as far as core, ops, autograd and capture go.
set -euo pipefail
cd "$1"
folders="core|profiler|ops|autograd|capture|measure|nn|data|distributed|train|cli|examples|bench|tests"

find . -type f -regextype posix-extended \
  -regex "\./($folders)/.*\.(h|cpp|cuh|cu)" -printf '%P\n' | LC_ALL=C sort | xargs awk '
BEGIN {
  allowed["core"] = "core"
  allowed["profiler"] = allowed["core"] " profiler"
  allowed["ops"] = allowed["profiler"] " ops"
  allowed["autograd"] = allowed["ops"] " autograd"
  allowed["capture"] = allowed["autograd"] " capture"
  allowed["measure"] = allowed["capture"] " measure"
  allowed["nn"] = allowed["measure"] " nn"
  allowed["data"] = allowed["nn"] " data"
  allowed["distributed"] = allowed["data"] " distributed"
  allowed["train"] = allowed["distributed"] " train"
  allowed["cli"] = allowed["train"] " cli"
  allowed["examples"] = allowed["cli"] " examples"
  allowed["bench"] = allowed["examples"] " bench"
  allowed["tests"] = allowed["bench"] " tests"
  toolkit = "^core/device/(cuda_[a-z_]+|kernel_cuda|cupti)[.]h$"
  others = "^(Eigen|unsupported|oneapi|dnnl|fmt|nlohmann|CLI|cuda|cublas|cudnn|cub|nvtx|zlib|" \
           "zconf|png|gtest|gmock|benchmark|cupti|mpi|nccl)"
}
function report(rule) { printf "%s:%d: %s: %s\n", FILENAME, FNR, $0, rule; bad = 1 }
FNR == 1 { split(FILENAME, part, "/"); folder = part[1]; files++ }
/^[ \t]*#[ \t]*include[ \t]*"/ {
  split($0, quoted, "\""); split(quoted[2], target, "/")
  if (quoted[2] !~ /\// || !(target[1] in allowed))
    report("name own headers from the root, as in \"core/error.h\"")
  else if (index(" " allowed[folder] " ", " " target[1] " ") == 0)
    report(folder " may include only: " allowed[folder])
  else if (target[1] == "ops" && target[3] == "fast" && part[2] != target[2] && folder != "tests")
    report("ops/" target[2] "/fast is for ops/" target[2] " alone")
  else if (quoted[2] == "core/json.h" && FILENAME ~ /\.h$/ && folder !~ /^(cli|examples|bench|tests)$/)
    report("core/json.h is not installed: it is for .cpp files")
}
folder == "cli" && tolower($0) ~ /digit|mnist|image|pixel|(^|[^0-9a-z_])28([^0-9a-z_]|$)/ {
  report("the frame is written against a Job, and not against one program\047s pictures")
}
/^[ \t]*#[ \t]*include[ \t]*[<"]/ && folder !~ /^(cli|examples|bench|tests)$/ && FILENAME ~ /\.h$/ {
  name = $0; sub(/^[^<"]*[<"]/, "", name); sub(/[>"].*/, "", name)
  if (name ~ others && FILENAME != "core/json.h" &&
      !(FILENAME ~ toolkit && name ~ /^(cuda|cublas|cudnn|cupti)/))
    report("an installed header includes no library of others")
}
/SINTER_HAS_/ && folder !~ /^(cli|examples|bench|tests)$/ && FILENAME ~ /\.h$/ &&
  !(FILENAME ~ toolkit && /SINTER_HAS_CU(DA|DNN|PTI)/) {
  report("an installed header asks for no library of others")
}
(/immintrin|_mm[0-9]*_[a-z]|__AVX|__CUDACC__|__CUDA_ARCH__/ ||
   /SINTER_HAS_CU/ && FILENAME !~ /\.h$/) &&
  FILENAME ~ /^(core|ops|autograd|capture)\// && FILENAME !~ /^core\/device\// &&
  FILENAME !~ /^ops\/[a-z]+\/fast\// {
  report("what the processor or the build has is asked in core/device and ops/FAMILY/fast")
}
/<omp\.h>|"omp\.h"|pragma[ \t(]+"?omp[ \t]|omp_[a-z_]+[ \t]*\(|_OPENMP/ {
  report("threads come from core/parallel.h")
}
END {
  if (files < 2) { print "check_layers: no sources found"; exit 1 }
  if (!bad) printf "check_layers: %d files, no violation\n", files
  exit bad
}'
