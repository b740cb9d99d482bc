# Shared by the scripts beside it (source it, do not run it): the folder, number of jobs, phases
# with their times.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
# A closed stdin would become the first file a program opens.
{ : <&0; } 2>/dev/null || exec </dev/null

# One compiler job per core, or $1 other jobs, but 1.5 GiB of memory for each.
job_count() {
  local cores memory
  cores=$(($(nproc) * ${1:-1}))
  memory=$(awk '/^MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo 2>/dev/null)
  memory=${memory:-$cores}
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}

# phase NAME COMMAND...: runs the command and keeps a line about it for phase_summary. Returns its
# status.
phase_lines=()
phase() {
  local name=$1 status=0 start=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@" || status=$?
  local word=ok
  [[ $status == 0 ]] || word=FAILED
  phase_lines+=("$(printf '%-16s %-7s %4d s' "$name" "$word" $((SECONDS - start)))")
  return $status
}
phase_summary() {
  printf '\n'
  printf '%s\n' "${phase_lines[@]}" "$(printf '%-16s %-7s %4d s' total '' "$SECONDS")"
}

# configure_build PRESET [TARGET...]: CMake's words for the configuration stand in $cmake_options.
cmake_options=()
configure_build() {
  local preset=$1 log
  shift
  log=build/$preset/configure.log
  mkdir -p "build/$preset"
  cmake --preset "$preset" ${cmake_options[@]+"${cmake_options[@]}"} >"$log" 2>&1 ||
    { cat "$log"; return 1; }
  cmake --build --preset "$preset" -j "$(job_count)" ${1:+--target "$@"}
}
