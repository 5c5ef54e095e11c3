#!/usr/bin/env bash
# The second command of the README: installs what is missing, builds, and passes the tests.
#   test.sh            everything: release build with all tests, sanitizer builds, fuzzing for 20 seconds each
#   test.sh --quick    the release build with the tests that need neither ranks that are killed, several hosts, MPI nor GPU kernels on
#                      this CPU, and no minutes each; for while one works
set -euo pipefail
cd "$(dirname "$0")/.."
quick=false
case "$#:${1:-}" in
  0:) ;;
  1:--quick) quick=true ;;
  *) echo "usage: tools/test.sh [--quick]" >&2; exit 2 ;;
esac

step() { printf '\n== %s (%s)\n' "$1" "$(date +%T)"; }
# Open MPI refuses to run as root, and to start more ranks than cores, unless told otherwise.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# More tests than cores run at a time: threads with nothing to do must sleep, not spin.
export OMP_WAIT_POLICY=passive
jobs=$(nproc)

step "dependencies"
tools/install_dependencies.sh --test

step "release build, warnings as errors"
cmake --preset ci
cmake --build --preset ci -j "$jobs"
# Many of them wait: for ranks that are lost, links that are cut, deadlines.
if $quick; then
  step "tests but those of faults, hosts, MPI and GPU kernels on this CPU"
  ctest --preset ci -j $((2 * jobs)) -LE 'fault|multihost|mpi|not_sanitized' -E cuda_on_host
  exit 0
fi
build_with_sanitizers() {
  cmake --preset dev
  nice -n 19 cmake --build --preset dev -j "$jobs" --target sanitized_tests fuzz_targets
  cmake --preset tsan
  nice -n 19 cmake --build --preset tsan -j "$jobs" --target tsan_tests
}

# The tests leave cores idle: the builds with sanitizers take what they leave.
step "tests, and beside them the builds with sanitizers (into build/sanitizers.log)"
set -m  # a group of processes of its own, which ends when this script does
build_with_sanitizers > build/sanitizers.log 2>&1 &
beside=$!
set +m
trap 'kill -- "-$beside" 2> /dev/null || true' EXIT
ctest --preset ci -j $((2 * jobs))

step "the rest of those builds"
wait "$beside" || { cat build/sanitizers.log >&2; exit 1; }
trap - EXIT

step "tests with address and undefined-behaviour sanitizers"
ctest --preset dev -j "$jobs" -L 'unit|property|golden|fuzz' -LE 'mpi|not_sanitized'

step "tests with the thread sanitizer"
ctest --preset tsan -j "$jobs" -L tsan

step "fuzzing, 20 seconds each"
tests/fuzz/run.sh 20
