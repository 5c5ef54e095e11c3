#!/usr/bin/env bash
# Formats all C++ sources, new ones too, with clang-format; with --check only says which files would change.
#   format.sh [--check]
# Versions differ in what they write, so it is the one of Debian 12: clang-format-14, or clang-format of that version.
# Exit status: 0 all are as they should be, 1 some are not, 2 wrong words, 77 there is no clang-format of that version.
set -euo pipefail
version=14
case "$#:${1:-}" in
  0: | 1:--check) ;;
  *) echo "usage: tools/dev/format.sh [--check]" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/../.."
formatter=
for name in "clang-format-$version" clang-format; do
  found=$("$name" --version 2> /dev/null) || continue
  if [[ $found == *"version $version."* ]]; then formatter=$name; break; fi
done
if [[ -z $formatter ]]; then
  echo "SKIPPED: clang-format $version is needed (on Debian 12: apt-get install clang-format); ${found:-there is none}" >&2
  exit 77
fi
listed=$(python3 tools/dev/repository.py .h .cc .cu .cuh)
mapfile -t files <<< "${listed:?no sources}"
if [[ ${1:-} == --check ]]; then
  "$formatter" --dry-run --Werror "${files[@]}"
else
  "$formatter" -i "${files[@]}"
fi
