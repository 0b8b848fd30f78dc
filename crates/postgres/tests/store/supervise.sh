#!/bin/sh
# Runs a PostgreSQL until nobody holds a lock on the file of its users any more, then stops it and removes its directory.
# Tests come and go in processes of their own, and may be killed: none of them can be the one to clean up.
# usage: supervise.sh <users file> <directory> <command that runs the server>...
users=$1 directory=$2
shift 2
exec 9>>"$users"
# Not inherited: the server must not count as a user.
"$@" 9>&- &
server=$!
idle=0
while sleep 1; do
    kill -0 "$server" 2>/dev/null || break
    if flock -n 9; then
        if [ "$idle" -ge 3 ]; then
            break
        fi
        idle=$((idle + 1))
        flock -u 9
    else
        idle=0
    fi
done
kill -INT "$server" 2>/dev/null
wait "$server"
rm -rf "$directory"
