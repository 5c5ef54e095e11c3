#!/usr/bin/env bash
# The second command of the README: installs what is missing, builds, and passes the tests.
#   test.sh            everything: release build with all tests, sanitizer builds, fuzzing for 20 seconds each
#   test.sh --quick    the release build with all tests but the slow ones; for while one works
set -euo pipefail
cd "$(dirname "$0")/.."
quick=false
case "${1:-}" in
  "") ;;
  --quick) quick=true ;;
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
  step "tests but the slow ones"
  ctest --preset ci -j $((2 * jobs)) -LE slow
  exit 0
fi
step "tests"
ctest --preset ci -j $((2 * jobs))

step "address and undefined-behaviour sanitizers"
cmake --preset dev
cmake --build --preset dev -j "$jobs" --target sanitized_tests fuzz_targets
ctest --preset dev -j "$jobs" -L 'unit|property|golden|fuzz' -LE 'mpi|not_sanitized'

step "thread sanitizer"
cmake --preset tsan
cmake --build --preset tsan -j "$jobs" --target tsan_tests
ctest --preset tsan -j "$jobs" -L tsan

step "fuzzing, 20 seconds each"
tests/fuzz/run.sh 20
