#!/bin/sh
# Time of an answer's token against what Quest reads of a long cache, beside dense: `longhaul bench` for each budget, with the bound that reading
# memory sets. Made-up weights of a published shape; two of the layers stay dense, as published.
#
#   tests/bench/quest_budgets.sh LONGHAUL [SHAPE [LAYERS [TOKENS [THREADS]]]]
set -eu
longhaul=$1
shape=${2:-llama-3.2-1b}
layers=${3:-4}
depth=${4:-65536}
threads=${5:-1}
for policy in dense quest:budget=1024,page=16 quest:budget=4096,page=16 quest:budget=16384,page=16 quest:budget=65536,page=16; do
  echo "$policy"
  "$longhaul" bench --shape "$shape" --layers "$layers" -t "$threads" -p 0 -n 128 -d "$depth" -r 3 --block-size 16 --policy "$policy" --no-progress
done
