#!/usr/bin/env bash
# Formats all C++ sources with clang-format; with --check only says which files would change (exit 1 if any).
set -euo pipefail
cd "$(dirname "$0")/../.."
listed=$(git ls-files '*.h' '*.cc' '*.cu' '*.cuh')
mapfile -t files <<< "${listed:?no sources}"
if [[ "${1:-}" == --check ]]; then
  clang-format --dry-run --Werror "${files[@]}"
else
  clang-format -i "${files[@]}"
fi
