# Submit and capture item ID
item_id=$(tyger queue submit my-queue \
  --input raw_signal=$input_buf \
  --idempotency-key "request-$(date +%s)")

# Wait for completion (blocks until completed or failed)
tyger queue item wait $item_id

# Get the response
response=$(tyger queue item show $item_id)
output_buffer=$(echo "$response" | jq -r '.outputs.reconstructed')

# Read the result
tyger buffer read $output_buffer > result.dat
