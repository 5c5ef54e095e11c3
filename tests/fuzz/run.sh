#!/bin/sh
# Builds every fuzz target (CMake's preset "dev") and runs each for SECONDS, two at a time. Fails on any
# finding and keeps the input that caused it. Usage: tests/fuzz/run.sh SECONDS
set -eu
seconds=${1:?"usage: $0 SECONDS"}
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$source/build/dev
results=$source/build/fuzz
mkdir -p "$results"

(cd "$source" && cmake --preset dev && cmake --build --preset dev --target fuzz_targets -j "$(nproc)") > "$results/build.log" 2>&1 || {
  tail -50 "$results/build.log" >&2
  exit 2
}

# Runs one target; leaves its verdict in $results/NAME.verdict. New inputs go to $results, the
# seeds in corpus/ are only read.
fuzz() {
  name=$1
  mkdir -p "$results/found/$name" "$results/corpus/$name"
  rm -f "$results/$name.verdict"
  status=0
  "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="$results/found/$name/" \
    "$results/corpus/$name" "$source/tests/fuzz/corpus/$name" > "$results/$name.log" 2>&1 || status=$?
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$results/$name.log")
  if [ "$status" -eq 0 ]; then
    echo "fuzz_$name: ${executions:-no} executions, no finding" > "$results/$name.verdict"
  else
    echo "fuzz_$name: FINDING (status $status), input in $results/found/$name, report in $results/$name.log" \
      > "$results/$name.verdict"
  fi
  cat "$results/$name.verdict"
}

names=$(cd "$build/tests/fuzz" && ls -d fuzz_* | grep -v '\.' | grep -v targets | sed 's/^fuzz_//')
[ -n "$names" ] || { echo "no fuzz target was built" >&2; exit 1; }
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
  grep -q '[1-9][0-9]* executions, no finding' "$results/$name.verdict" || exit 1
done
