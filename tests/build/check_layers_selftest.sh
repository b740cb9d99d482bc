#!/usr/bin/env bash
# Plants one violation of each kind and wants check_layers.sh to report it, and nothing else.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

# expect FILE LINE WANT: a tree whose only doubtful line is LINE in FILE; WANT is part of the
# report, or "" for none.
expect() {
  rm -rf "${root:?}"/*
  mkdir -p "$root/core" "$root/$(dirname "$1")"
  echo '#include <vector>' >"$root/core/error.h"
  echo '#include "core/error.h"' >"$root/core/error.cpp"
  printf '#include "core/error.h"\n%s\n' "$2" >"$root/$1"
  local status=0 report
  report=$(bash "$here/check_layers.sh" "$root") || status=$?
  if [[ -z $3 && $status != 0 ]] ||
    [[ -n $3 && ($status == 0 || $report != "$1:2: "*"$3"*) || $(wc -l <<<"$report") != 1 ]]; then
    echo "wanted '$3' for '$2' in $1, got status $status and '$report'"
    exit 1
  fi
}

expect core/a.cpp '#include "ops/op.h"' 'core may include only: core'
expect ops/a.h '#include "autograd/tape.h"' 'ops may include only'
expect autograd/a.h '#include "capture/graph.h"' 'autograd may include only'
expect capture/a.h '#include "measure/comparison_table.h"' 'capture may include only'
expect data/a.cpp '  #  include "cli/app.h"' 'data may include only'
expect cli/a.cpp '#include "examples/a.h"' 'cli may include only'
expect cli/a.cpp '// Images of 28 rows.' 'written against a Job'
expect distributed/a.cpp '#include "train/trainer.h"' 'distributed may include only'
expect bench/a.cpp '#include "tests/ops/a.h"' 'bench may include only'
expect nn/a.cpp '#include "../ops/op.h"' 'from the root'
expect nn/a.cpp '#include "module.h"' 'from the root'
expect ops/rows/a.cpp '#include "ops/product/fast/a.h"' 'for ops/product alone'
expect capture/a.cpp '#include "ops/product/fast/a.h"' 'for ops/product alone'
expect ops/a.h '#include <Eigen/Core>' 'no library of others'
expect core/a.h '#include <oneapi/dnnl/dnnl.hpp>' 'no library of others'
expect data/b/a.h '#include <nlohmann/json.hpp>' 'no library of others'
expect nn/a.h '#include "core/json.h"' 'not installed'
expect core/a.h '#ifdef SINTER_HAS_ONEDNN' 'asks for no library'
expect core/device/cuda_a.h '#include <Eigen/Core>' 'no library of others'
expect core/device/simt_a.h '#include <cuda_runtime.h>' 'no library of others'
expect core/device/cuda_a.h '#if SINTER_HAS_ONEDNN' 'asks for no library'
expect ops/a.h '#if SINTER_HAS_CUDA' 'asks for no library'
expect ops/rows/a.cpp '#include <immintrin.h>' 'core/device and ops/FAMILY/fast'
expect ops/rows/a.cu '#if defined(__CUDACC__)' 'core/device and ops/FAMILY/fast'
expect capture/a.cpp '#if SINTER_HAS_CUDA' 'core/device and ops/FAMILY/fast'
expect ops/a.cpp '#pragma omp parallel for' 'core/parallel'
expect ops/a.cpp 'int n = omp_get_max_threads();' 'core/parallel'

expect capture/a.cpp '#include "autograd/tape.h"' ''
expect ops/a.cpp '#include <Eigen/Core>' ''
expect nn/a.cpp '#include "core/json.h"' ''
expect core/json.h '#include <nlohmann/json.hpp>' ''
expect ops/product/a.cpp '#include "ops/product/fast/a.h"' ''
expect tests/ops/a.cpp '#include "ops/product/fast/a.h"' ''
expect ops/product/fast/a.cpp '#include <immintrin.h>' ''
expect core/device/cuda_a.h '#include <cublasLt.h>' ''
expect core/device/cuda_a.h '#if SINTER_HAS_CUDNN' ''
expect nn/a.cpp '#include "measure/comparison.h"' ''
expect tests/nn/a.cpp '#include "cli/app.h"' ''
expect ops/a.cpp '// see the compare_prompt (not omp)' ''
echo "check_layers: all planted violations reported"
