#!/usr/bin/env bash
# The first command of the README: installs what is missing, builds, and answers five questions about the embedded document.
set -euo pipefail
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
python3 - "$results" examples/needle/requests.answers.json <<'PYTHON'
import json, sys
answers = json.load(open(sys.argv[2]))
wrong = 0
for line in sorted(map(json.loads, open(sys.argv[1])), key=lambda r: r["custom_id"]):
    text = line["response"]["body"]["choices"][0]["text"].strip()
    want = answers[line["custom_id"]]
    wrong += want not in text
    print(f"  {line['custom_id']:<22} {text:<12} {'as written' if want in text else 'WRONG: the document says ' + want}")
sys.exit(1 if wrong else 0)
PYTHON
