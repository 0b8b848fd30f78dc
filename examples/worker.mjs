#!/usr/bin/env node
// A worker for one queue, with Node 18 or newer and no packages: worker.mjs QUEUE
//
// It receives items, squares their parameter `n`, and ends when the queue is completed.
// The server is TOWLINE_URL, the token is in TOWLINE_TOKEN (or in the file TOWLINE_TOKEN_FILE).

import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

const URL = process.env.TOWLINE_URL ?? "http://127.0.0.1:7420";
const WAIT_S = 60;
const HEARTBEAT_MS = 20_000; // at most a third of the queue's visibility timeout
const AGAIN = [429, 502, 503, 504];

function token() {
  const path = process.env.TOWLINE_TOKEN_FILE;
  return path ? readFileSync(path, "utf8").trim() : process.env.TOWLINE_TOKEN;
}

class Refused extends Error {}

/** Sends a POST. Waits for a server that is away: all calls of a worker can be repeated. */
async function call(path, body) {
  const headers = { "content-type": "application/json" };
  if (token()) headers.authorization = `Bearer ${token()}`;
  for (;;) {
    let answer;
    try {
      const signal = AbortSignal.timeout((WAIT_S + 30) * 1000);
      answer = await fetch(URL + path, { method: "POST", headers, body: JSON.stringify(body), signal });
      if (answer.ok) return await answer.json();
    } catch (error) {
      console.error(`${URL}: ${error.cause ?? error}; trying again`);
      await sleep(1000);
      continue;
    }
    if (!AGAIN.includes(answer.status)) throw new Refused(await answer.text());
    await sleep(1000 * Number(answer.headers.get("retry-after") ?? 1));
  }
}

/** The work itself. Returns the output parameters. */
async function work(item) {
  if (typeof item.params.n !== "number") throw new TypeError("n is not a number");
  return { square: item.params.n ** 2 };
}

async function process_item(item) {
  const path = `/v1/items/${item.id}`;
  const lease = item.lease;
  const heartbeats = setInterval(() => {
    // If the lease is lost, the commit will be refused too.
    call(`${path}/heartbeat`, { lease }).catch((error) => console.error(error.message));
  }, HEARTBEAT_MS);
  let settle;
  try {
    settle = ["commit", { lease, output_params: await work(item) }];
  } catch (error) {
    // Any failure of the work is a retry with its reason.
    settle = ["retry", { lease, reason: String(error) }];
  } finally {
    clearInterval(heartbeats);
  }
  await call(`${path}/${settle[0]}`, settle[1]);
}

const queue = process.argv[2];
for (;;) {
  const answer = await call(`/v1/queues/${queue}/receive`, { wait: `${WAIT_S}s` });
  for (const item of answer.items) {
    try {
      await process_item(item);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      // The settle was refused: another worker has the item.
      console.error(error.message);
    }
  }
  if (answer.status === "completed") break;
}
