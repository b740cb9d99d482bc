#!/usr/bin/env bash
# On a bare machine CMake names every package that is missing, and what installs them, in one message.
#     check_missing_packages.sh SOURCE_DIR CMAKE GENERATOR COMPILER
set -euo pipefail
source=$1 cmake=$2 generator=$3 compiler=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
packages=(Eigen3 fmt nlohmann_json Boost ZLIB PNG CLI11 GTest)
without=("${packages[@]/#/-DCMAKE_DISABLE_FIND_PACKAGE_}")
if "$cmake" -S "$source" -B "$work/build" -G "$generator" -DCMAKE_CXX_COMPILER="$compiler" \
  "${without[@]/%/=ON}" >"$work/log" 2>&1; then
  echo "configured without ${packages[*]}"
  exit 1
fi
if "$source/scripts/setup" nonsense >"$work/said" 2>&1 || ! grep -q "unknown word: nonsense" "$work/said"; then
  cat "$work/said"
  echo "scripts/setup takes any word"
  exit 1
fi
# What a script does is said without doing it.
for script in quickstart setup pictures test download_mnist; do
  if ! "$source/scripts/$script" --help >"$work/said" 2>&1 || ! grep -q "$script" "$work/said" ||
    (($(wc -l <"$work/said") > 20)); then
    cat "$work/said"
    echo "scripts/$script --help does not say what it does"
    exit 1
  fi
done
for word in "${packages[@]}" libeigen3-dev libgtest-dev scripts/setup; do
  grep -q "$word" "$work/log" || { cat "$work/log"; echo "not named: $word"; exit 1; }
done
