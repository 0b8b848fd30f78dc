// Life-cycles a second (queued in bulk, then done by workers that do nothing) of graphile-worker and pg-boss, each at its
// batched best: a local queue and batched completion, and batches taken in bursts.
//
//   npm install && npm run lifecycles -- postgres://me@127.0.0.1/bench [rounds]
//
// Run it in turns with `cargo run --release -p towline-postgres --example lifecycles` on the same server. It makes the schemas
// `graphile_worker` and `pgboss` anew in that database.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { PgBoss } from "pg-boss";
import { performance } from "node:perf_hooks";
import { setTimeout as pause } from "node:timers/promises";

const ITEMS = { 100: 100_000, 4500: 50_000 };
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

const [url, rounds = "1"] = process.argv.slice(2);
if (!url) {
  console.error("usage: npm run lifecycles -- postgres://user@host/database [rounds]");
  process.exit(2);
}

// Text that does not compress.
const noise = (bytes) => Array.from({ length: bytes }, () => LETTERS[Math.floor(Math.random() * LETTERS.length)]).join("");

// `insert(n)` in calls of `bulk`, two at a time.
async function fill(items, bulk, insert) {
  let left = items;
  const one = async () => {
    while (left > 0) {
      const n = Math.min(bulk, left);
      left -= n;
      await insert(n);
    }
  };
  await Promise.all([one(), one()]);
}

async function untilNone(pool, query) {
  while ((await pool.query(query)).rowCount > 0) await pause(2);
}

async function graphile(pool, bytes, items) {
  await pool.query("DROP SCHEMA IF EXISTS graphile_worker CASCADE");
  const logger = new Logger(() => () => {});
  const utils = await makeWorkerUtils({ pgPool: pool, logger });
  await utils.migrate();
  const payload = { p: noise(bytes) };
  const begun = performance.now();
  await fill(items, 500, (n) => utils.addJobs(Array.from({ length: n }, () => ({ identifier: "nothing", payload }))));
  const filled = performance.now();
  const runner = await run({
    pgPool: pool,
    logger,
    concurrency: 24,
    noHandleSignals: true,
    taskList: { nothing: async () => {} },
    preset: { worker: { localQueue: { size: 2000 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } },
  });
  await untilNone(pool, "SELECT 1 FROM graphile_worker._private_jobs LIMIT 1");
  const drained = performance.now();
  await runner.stop();
  await utils.release();
  return [begun, filled, drained];
}

async function boss(pool, bytes, items) {
  await pool.query("DROP SCHEMA IF EXISTS pgboss CASCADE");
  const boss = new PgBoss({ connectionString: url, max: 14, schedule: false, supervise: false });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  await boss.createQueue("nothing");
  const data = { p: noise(bytes) };
  const begun = performance.now();
  await fill(items, 1000, (n) => boss.insert("nothing", Array.from({ length: n }, () => ({ data }))));
  const filled = performance.now();
  const how = { batchSize: 5000, localConcurrency: 2, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true };
  await boss.work("nothing", how, async () => {});
  await untilNone(pool, "SELECT 1 FROM pgboss.job WHERE name = 'nothing' AND state < 'completed' LIMIT 1");
  const drained = performance.now();
  await boss.stop({ graceful: false });
  return [begun, filled, drained];
}

const pool = new pg.Pool({ connectionString: url, max: 28 });
pool.on("error", () => {});
pool.on("connect", (client) => client.on("error", () => {}));
console.log("who              bytes | life-cycles/s | submits/s |  drains/s");
for (let round = 0; round < Number(rounds); round += 1) {
  for (const [bytes, items] of Object.entries(ITEMS)) {
    for (const [name, measure] of [["graphile-worker", graphile], ["pg-boss", boss]]) {
      await pool.query("CHECKPOINT").catch(() => {});
      const [begun, filled, drained] = await measure(pool, Number(bytes), items);
      const rate = (from, to) => String(Math.round((items * 1000) / (to - from)));
      const [all, submits, drains] = [rate(begun, drained), rate(begun, filled), rate(filled, drained)];
      console.log(`${name.padEnd(16)} ${bytes.padStart(5)} | ${all.padStart(13)} | ${submits.padStart(9)} | ${drains.padStart(9)}`);
    }
  }
}
await pool.end();
process.exit(0);
