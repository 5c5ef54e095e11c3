#!/usr/bin/env bash
# Runs every test of some labels again and again, to find those that fail at random.
#   repeat_tests.sh BUILD_FOLDER LABELS TIMES [--stop] [--jobs N] [--match REGEX]
# LABELS is a regular expression, for example 'fault|mpi|multirank'. --stop ends at the first
# failure; otherwise failures are counted. --jobs: tests at a time (1). --match: only tests of this
# name. Every failure's output is kept in BUILD_FOLDER/repeated/. Prints how often each test failed;
# the exit status is 1 if any did.
set -euo pipefail

usage() { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 3 ] || usage
build=$1 labels=$2 times=$3
shift 3
stop=false jobs=1 match=.
while [ $# -gt 0 ]; do
  case "$1" in
    --stop) stop=true; shift ;;
    --jobs) jobs=${2:?}; shift 2 ;;
    --match) match=${2:?}; shift 2 ;;
    *) usage ;;
  esac
done
# As tools/test.sh does.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_WAIT_POLICY=passive

kept=$build/repeated
mkdir -p "$kept"
failures=$kept/failures.txt
: > "$failures"
rounds=0
summary() {
  printf '%s: %d of %d rounds of -L "%s" -R "%s", %d failures\n' \
    "$(date +%T)" "$rounds" "$times" "$labels" "$match" "$(wc -l < "$failures")"
  sort "$failures" | uniq -c | sort -rn
}
trap summary EXIT
for round in $(seq "$times"); do
  log=$kept/round.txt
  status=0
  ctest --test-dir "$build" -L "$labels" -R "$match" -j "$jobs" --output-on-failure > "$log" 2>&1 || status=$?
  rounds=$round
  if [ "$status" -ne 0 ]; then
    cp "$log" "$kept/failed-round-$round.txt"
    # ctest's last lines, such as 12 - lost_rank_test (Failed)
    failed=$(sed -nE 's/^[[:space:]]+[0-9]+ - (.*) \(.*\).*$/\1/p' "$log")
    echo "${failed:-ctest itself, status $status}" >> "$failures"
    if $stop; then exit 1; fi
  fi
done
[ ! -s "$failures" ]
