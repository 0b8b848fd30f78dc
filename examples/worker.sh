#!/usr/bin/env bash
# A worker for one queue, with `towline` and `jq`: worker.sh QUEUE
#
# It receives items, squares their parameter `n`, and ends when the queue is completed.
# The server is TOWLINE_URL, the token is in TOWLINE_TOKEN (or in the file TOWLINE_TOKEN_FILE).
set -euo pipefail
queue=$1

# The work itself. Reads the item, and prints the result.
work() {
    jq -e '.params.n | . * .'
}

while true; do
    answer=$(towline queue receive "$queue" --wait 1m)
    item=$(jq -c '.items[0] // empty' <<< "$answer")
    if [ -z "$item" ]; then
        [ "$(jq -r .status <<< "$answer")" = completed ] && exit 0
        continue
    fi
    id=$(jq -r .id <<< "$item")
    lease=$(jq -r .lease <<< "$item")
    towline queue item heartbeat "$id" --lease "$lease" --while-alive &
    heartbeat=$!
    # If the settle is refused, another worker has the item.
    if result=$(work <<< "$item" 2>&1); then
        towline queue item commit "$id" --lease "$lease" --output-param "square:=$result" || true
    else
        towline queue item retry "$id" --lease "$lease" --reason "$result" || true
    fi
    kill "$heartbeat" 2> /dev/null || true
done
