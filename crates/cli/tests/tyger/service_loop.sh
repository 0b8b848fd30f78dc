#!/bin/bash
set -euo pipefail

queue="$REQUESTS_QUEUE_NAME"

# Load model once at startup
load_model

while true; do
  # Receive returns {"status": "...", "items": [...]}
  response=$(tyger queue receive "$queue" --create-output-buffers)
  status=$(echo "$response" | jq -r '.status')
  item_json=$(echo "$response" | jq -r '.items[0] // empty')

  if [ "$status" = "completed" ]; then
    echo "Queue completed, exiting."
    exit 0
  fi

  if [ -z "$item_json" ]; then
    sleep 1
    continue
  fi

  # Parse item details
  item_id=$(echo "$item_json" | jq -r '.id')
  lease=$(echo "$item_json" | jq -r '.lease')
  input_buffer=$(echo "$item_json" | jq -r '.inputs.data')
  output_buffer=$(echo "$item_json" | jq -r '.outputs.result')

  # Start heartbeat in background
  tyger queue item heartbeat "$item_id" --lease "$lease" --while-alive &
  heartbeat_pid=$!

  # Read input, run inference, write to the pre-created output buffer
  tyger buffer read "$input_buffer" \
    | run_inference \
    | tyger buffer write "$output_buffer"

  # Commit the result and stop heartbeat
  tyger queue item commit "$item_id" --lease "$lease"
  kill $heartbeat_pid 2>/dev/null || true
done
