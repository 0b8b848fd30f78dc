#!/usr/bin/env python3
"""A worker for one queue, with Python's standard library only: worker.py QUEUE

It receives items, squares their parameter `n`, and ends when the queue is completed.
The server is TOWLINE_URL, the token is in TOWLINE_TOKEN (or in the file TOWLINE_TOKEN_FILE).
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

URL = os.environ.get("TOWLINE_URL", "http://127.0.0.1:7420")
WAIT_S = 60
HEARTBEAT_S = 20  # at most a third of the queue's visibility timeout


def token():
    path = os.environ.get("TOWLINE_TOKEN_FILE")
    if path:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    return os.environ.get("TOWLINE_TOKEN")


def call(path, body):
    """Sends a POST. Waits for a server that is away: all calls of a worker can be repeated."""
    headers = {"content-type": "application/json"}
    if token():
        headers["authorization"] = "Bearer " + token()
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S + 30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (429, 502, 503, 504):
                raise RuntimeError(error.read().decode()) from None
            time.sleep(float(error.headers.get("retry-after") or 1))
        except OSError as error:  # no connection, or no answer
            print(f"{URL}: {error}; trying again", file=sys.stderr)
            time.sleep(1)


def work(item):
    """The work itself. Returns the output parameters."""
    return {"square": item["params"]["n"] ** 2}


def keep_lease(path, lease, done):
    while not done.wait(HEARTBEAT_S):
        try:
            call(path + "/heartbeat", {"lease": lease})
        except RuntimeError as error:  # the lease is lost: the commit will be refused too
            print(error, file=sys.stderr)
            return


def process(item):
    path, lease = "/v1/items/" + item["id"], item["lease"]
    done = threading.Event()
    threading.Thread(target=keep_lease, args=(path, lease, done), daemon=True).start()
    try:
        result = work(item)
    except Exception as error:  # any failure of the work is a retry with its reason
        done.set()
        call(path + "/retry", {"lease": lease, "reason": f"{type(error).__name__}: {error}"})
    else:
        done.set()
        call(path + "/commit", {"lease": lease, "output_params": result})


def main():
    queue = sys.argv[1]
    while True:
        answer = call(f"/v1/queues/{queue}/receive", {"wait": f"{WAIT_S}s"})
        for item in answer["items"]:
            try:
                process(item)
            except RuntimeError as error:  # the settle was refused: another worker has the item
                print(error, file=sys.stderr)
        if answer["status"] == "completed":
            return


if __name__ == "__main__":
    main()
