#!/bin/sh
# check_orders.sh DUMP_LOGITS MODEL: the order in which the simulator runs the threads of a block is
# nobody's promise, so the logits must be the same bits in any.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for token in $(seq 20 43); do
    printf "\\$(printf %03o "$token")\\0\\0\\0"
done >"$folder/tokens"
for order in forward reverse random:1; do
    QUIRE_CUDASIM_ORDER=$order "$1" cuda-sim bf16 "$2" "$folder/tokens" 19 "$folder/$order"
    cmp "$folder/forward" "$folder/$order"
done
