#!/bin/sh
# Builds every fuzz target with clang and runs each for SECONDS, two at a time. Fails on any finding
# and keeps the input that caused it. Usage: tests/fuzz/run.sh SECONDS [BUILD_FOLDER]
# Set CLANGXX to choose the compiler, JOBS for how many compile at a time.
set -eu
seconds=${1:?"usage: $0 SECONDS [BUILD_FOLDER]"}
source=$(cd "$(dirname "$0")/../.." && pwd)
build=${2:-$source/build-fuzz}
compiler=${CLANGXX:-$(command -v clang++-14 || command -v clang++ || true)}
if [ -z "$compiler" ]; then
  echo "$0: no clang++ found; install clang and libclang-rt, or set CLANGXX" >&2
  exit 2
fi

cmake -S "$source" -B "$build" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O1 -gline-tables-only" \
  -DLONGHAUL_FUZZ=ON -DLONGHAUL_SANITIZE=address,undefined \
  -DLONGHAUL_CUDA=OFF -DLONGHAUL_MPI=OFF -DLONGHAUL_HDF5=OFF -DLONGHAUL_ONEDNN=OFF > "$build.cmake.log" 2>&1 || {
  cat "$build.cmake.log" >&2
  exit 2
}
cmake --build "$build" --target fuzz_targets -j "${JOBS:-2}" > "$build.build.log" 2>&1 || {
  tail -50 "$build.build.log" >&2
  exit 2
}

# Runs one target; leaves its verdict in $build/NAME.verdict. New inputs go to the build folder, the
# seeds in corpus/ are only read.
fuzz() {
  name=$1
  mkdir -p "$build/found/$name" "$build/corpus/$name"
  status=0
  "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="$build/found/$name/" \
    "$build/corpus/$name" "$source/tests/fuzz/corpus/$name" > "$build/$name.log" 2>&1 || status=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/$name.log")
  if [ "$status" -eq 0 ]; then
    echo "fuzz_$name: ${executions:-no} executions, no finding" > "$build/$name.verdict"
  else
    echo "fuzz_$name: FINDING (status $status), input in $build/found/$name, report in $build/$name.log" \
      > "$build/$name.verdict"
  fi
  cat "$build/$name.verdict"
}

names=$(cd "$build/tests/fuzz" && ls -d fuzz_* | grep -v '\.' | grep -v targets | sed 's/^fuzz_//')
set -- $names
while [ $# -gt 0 ]; do
  fuzz "$1" &
  shift
  if [ $# -gt 0 ]; then
    fuzz "$1" &
    shift
  fi
  wait
done
for name in $names; do
  if grep -q FINDING "$build/$name.verdict"; then exit 1; fi
done
