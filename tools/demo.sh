#!/usr/bin/env bash
# The first command of the README: installs what is missing, builds, and answers five questions about the embedded document.
set -euo pipefail
if (($# > 0)); then echo "usage: tools/demo.sh" >&2; exit 2; fi
cd "$(dirname "$0")/.."
tools/install_dependencies.sh
cmake --preset release >build-configure.log || { cat build-configure.log; exit 1; }
rm -f build-configure.log
cmake --build --preset release --target longhaul
results=build/demo/results.jsonl
mkdir -p build/demo
longhaul=build/release/tools/longhaul
set -x
"$longhaul" run --model examples/needle/model --head-profile examples/needle/profile \
  -i examples/needle/requests.jsonl -o "$results" --overwrite
{ set +x; } 2>/dev/null
echo
echo "Answers (from $results), beside what the document says:"
examples/needle/check_answers.py "$results" examples/needle/requests.answers.json
