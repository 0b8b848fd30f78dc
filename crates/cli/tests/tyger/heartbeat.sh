# Run heartbeat in background until parent process exits,
# the item is committed, failed, or released, or the lease token expires.
tyger queue item heartbeat $item_id --lease $token --while-alive &
heartbeat_pid=$!

# Do the work...
./process.sh

# Commit and stop heartbeat
# A buffer's id is all that a commit needs of it.
tyger queue item commit $item_id --lease $token --output result=$output_buf
kill $heartbeat_pid 2>/dev/null || true
