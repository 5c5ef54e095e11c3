#!/usr/bin/env bash
# Runs tests of a GoogleTest program, each in a process of its own, several at once: one that hangs or loses the GPU hides no other.
# usage: each_test.sh PROGRAM FILTER [SECONDS, 60] [AT ONCE, half of the cores]
# Prints what those printed that failed or took longer, then the slowest ones; exit status 1 if there are such.
set -uo pipefail
program=$1 filter=$2 limit=${3:-60} at_once=${4:-$((($(nproc) + 1) / 2))}
listed=$("$program" --gtest_list_tests "--gtest_filter=$filter") || { echo "$listed"; exit 1; }
if ! grep -q '^  ' <<< "$listed"; then echo "no test is called $filter"; exit 1; fi
outputs=$(mktemp -d)
trap 'rm -rf "$outputs"' EXIT
one_test() { # NUMBER NAME
  local begin=${EPOCHREALTIME/./} status
  timeout -k 5 "$limit" "$program" "--gtest_filter=$2" --gtest_brief=1 > "$outputs/$1" 2>&1
  status=$?
  case $status in
    0) if grep -q 'SKIPPED' "$outputs/$1"; then status=skipped; else status=passed; fi ;;
    124 | 137) status="no end after $limit s" ;;
    *) status="failed ($status)" ;;
  esac
  printf '%s\t%s\t%d\t%s\n' "$1" "$2" $(((${EPOCHREALTIME/./} - begin) / 1000)) "$status" >> "$outputs/ended"
}
export -f one_test
export program limit outputs
awk '/^[^ ].*\.( *#.*)?$/ { suite = $1 } /^  / { print suite $1 }' <<< "$listed" | awk '{ print NR, $0 }' |
  xargs -r -P "$at_once" -L 1 bash -c 'one_test "$@"' -
touch "$outputs/ended"
failed=0
while IFS=$'\t' read -r number name milliseconds status; do
  if [[ $status == passed || $status == skipped ]]; then continue; fi
  failed=$((failed + 1))
  printf -- '--- %s: %s, %d ms\n' "$name" "$status" "$milliseconds"
  cut -c 1-300 "$outputs/$number" | tail -n 25
done < "$outputs/ended"
echo "slowest:"
sort -t $'\t' -k 3 -n -r "$outputs/ended" | head -n 5 | awk -F '\t' '{ printf "  %6d ms  %s\n", $3, $2 }'
awk -F '\t' -v failed="$failed" '$4 != "passed" && $4 != "skipped" { print "[  FAILED  ] " $2 " (" $4 ")" }
  $4 == "passed" { passed++ } $4 == "skipped" { skipped++ }
  END { if (skipped) print "[  SKIPPED ] " skipped " tests."; print "[  PASSED  ] " passed + 0 " tests."; if (failed) print " " failed " FAILED TESTS" }' "$outputs/ended"
[[ $failed == 0 ]]
