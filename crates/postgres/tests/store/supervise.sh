#!/bin/sh
# Runs PostgreSQL until no test process holds a lock on the users file, then stops it and removes its directory.
# Each test is a process of its own and may be killed, so no test can do this.
# usage: supervise.sh <users file> <directory> <command that runs the server>...
users=$1 directory=$2
shift 2
exec 9>>"$users"
# The server must not inherit the lock file, or it would count as a user.
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
