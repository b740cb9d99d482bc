#!/usr/bin/env bash
# check_installed.sh BUILD CMAKE GENERATOR COMPILER: installs BUILD below itself, then builds and
# runs the program in consumer/ with nothing but find_package(sinter) and that copy. The program has
# a core/error.h of its own. No toolkit may be asked for, CUDA or not: who links with the package
# finds all that it names here. The programs that stand in README.md, docs/GUIDE.md and, block by
# block, in docs/API.md are built and run, too; README's by a project that has nothing but its two lines of CMake, and it must end with
# the same bytes where it was stopped between. So is a program of a user's own on sinter::cli, which
# is stopped and goes on. The installed programs are run.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$1 cmake=$2 generator=$3 compiler=$4
work=$build/installed_test
rm -rf "$work"
"$cmake" --install "$build" --prefix "$work/prefix" >/dev/null
documents=$(find "$work/prefix" -path '*/docs/GUIDE.md' -printf '%h/..\n')
[[ -e $documents/README.md && -e $documents/docs/GLOSSARY.md ]] ||
  { echo "no documents are installed"; exit 1; }
grep -ohE '`[a-z/]*examples/[0-9a-z_/]+(\.cpp|\.cu|`)' "$documents"/{README,docs/GUIDE,docs/API}.md |
  tr -d '`' | while read -r example; do
  [[ -e $documents/$example ]] || { echo "the documents name $example, which is not installed"; exit 1; }
done
lines_of() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/!p}" "$documents/$2"; }
lines_of cpp docs/GUIDE.md >"$work/guide.cpp"
{ printf '#include <sinter/sinter.h>\n#include <cstdio>\nusing namespace sinter;\nint main() {\n'
  lines_of cpp docs/API.md
  echo '}'; } >"$work/api.cpp"
mkdir "$work/two_lines"
lines_of cpp README.md >"$work/two_lines/app.cpp"
printf 'project(app)\nadd_executable(app app.cpp)\n' >"$work/two_lines/CMakeLists.txt"
lines_of cmake README.md >>"$work/two_lines/CMakeLists.txt"
build_project() {  # build_project SOURCE BUILD OPTION...
  env -u CXXFLAGS -u LDFLAGS "$cmake" -S "$1" -B "$2" -G "$generator" \
    -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$work/prefix" "${@:3}"
  "$cmake" --build "$2"
}
sed 's|#include "\(.*\)"|#include <sinter/\1>|' "$here/../examples/own_job.cpp" >"$work/own_job.cpp"
build_project "$here/consumer" "$work/build" -DGUIDE="$work/guide.cpp" \
  -DAPI="$work/api.cpp" -DOWN_JOB="$work/own_job.cpp"
build_project "$work/two_lines" "$work/build/two_lines"
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
# An empty place of a RUNPATH is the current folder: hostile, and looked through for each library.
if readelf -d "$build"/bin/{mnist,geglu,gpt} "$programs"/* | grep -E 'RUNPATH.*(\[:|::|:\])'; then
  echo "the lines above have an empty place"
  exit 1
fi
[[ $(ls "$programs") == $'geglu\ngpt\nmnist' ]] || { ls "$programs"; exit 1; }
"$programs/mnist" train --data synthetic --limit 200 --val 0 --steps 3 --out "$work/run" --quiet
"$programs/geglu" --version
"$programs/gpt" --version
"$work/build/consumer" $(find "$work/prefix" -name libsinter_mpi.so)
"$work/build/guide"
(cd "$work" && "$work/build/api" && grep -q '<html' step.html && ls step.json step.trace.json.gz)
"$work/build/own_job" train --threads 1 --signal-in 3 --out "$work/own" --quiet || [[ $? == 130 ]]
"$work/build/own_job" train --resume "$work/own" --quiet
mkdir "$work/straight" "$work/stopped"
(cd "$work/straight" && "$work/build/two_lines/app" 3)
(cd "$work/stopped" && "$work/build/two_lines/app" 1 && "$work/build/two_lines/app" 3)
grep -q '^CPU fused' "$work/straight/profile.txt" || { echo "no profile"; exit 1; }
cmp "$work"/{straight,stopped}/digits.safetensors
