#!/usr/bin/env bash
# check_installed.sh BUILD CMAKE GENERATOR COMPILER: installs BUILD below itself, then builds and
# runs the program in consumer/ with nothing but find_package(sinter) and that copy. The program has
# a core/error.h of its own. No toolkit may be asked for, CUDA or not: who links with the package
# finds all that it names here. The program that stands in README.md is built and run, too, the
# installed programs are run, and the tutorial 04_train_digits, which must end with the same bytes
# where it was stopped between.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1 cmake=$2 generator=$3 compiler=$4
work=$build/installed_test
rm -rf "$work"
"$cmake" --install "$build" --prefix "$work/prefix" >/dev/null
sed -n '/^```cpp$/,/^```$/{/^```/!p}' "$here/../../README.md" >"$work/readme.cpp"
sed 's|#include "\(.*\)"|#include <sinter/\1>|' "$here/../../examples/04_train_digits.cpp" \
  >"$work/train_digits.cpp"
env -u CXXFLAGS -u LDFLAGS "$cmake" -S "$here/consumer" -B "$work/build" -G "$generator" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$work/prefix" \
  -DREADME="$work/readme.cpp" -DTUTORIAL="$work/train_digits.cpp"
"$cmake" --build "$work/build"
if grep -rIl "$build\|$(dirname "$(dirname "$here")")" "$work/prefix/lib/cmake"; then
  echo "the files above name folders of the build machine"
  exit 1
fi
if grep -rE "CUDA::|CUDNN::|CUDAToolkit" "$work/prefix/lib/cmake"; then
  echo "the lines above ask for a CUDA toolkit"
  exit 1
fi
if grep -rE '#include "' "$work/prefix/include"; then
  echo "the lines above name an installed header as a file of the user's project"
  exit 1
fi
programs=$work/prefix/bin
[[ $(ls "$programs") == $'geglu\nmnist' ]] || { ls "$programs"; exit 1; }
"$programs/mnist" train --data synthetic --limit 200 --val 0 --steps 3 --out "$work/run" --quiet
"$programs/geglu" --version
find "$work/prefix" -name GLOSSARY.md | grep -q . || { echo "no documents are installed"; exit 1; }
"$work/build/consumer" $(find "$work/prefix" -name libsinter_mpi.so)
"$work/build/readme"
mkdir "$work/straight" "$work/stopped"
(cd "$work/straight" && "$work/build/train_digits" 3)
(cd "$work/stopped" && "$work/build/train_digits" 1 && "$work/build/train_digits" 3)
grep -q '^CPU fused' "$work/straight/profile.txt" || { echo "no profile"; exit 1; }
cmp "$work"/{straight,stopped}/digits.safetensors
