set -euo pipefail

# `towline serve` runs in the background, as in another terminal. It takes the place of the server before it.
towline() {
    if [[ ${1-} != serve ]]; then
        command towline "$@"
        return
    fi
    stop_server
    # The background job empties it too, but perhaps after the first look below.
    : > ../serve.out
    command towline "$@" > ../serve.out 2> ../serve.err &
    server=$!
    until grep -q '^listening on' ../serve.out; do
        kill -0 "$server" 2> /dev/null || {
            cat ../serve.err >&2
            return 1
        }
        sleep 0.05
    done
}

stop_server() {
    if [[ -n ${server-} ]]; then
        kill "$server" 2> /dev/null || true
        wait "$server" || true
        server=
    fi
}
trap stop_server EXIT

