-- As the migrations leave it.
DELETE FROM pages;
DELETE FROM finished;
DELETE FROM edits;
DELETE FROM bodies;
DELETE FROM errors;
DELETE FROM outcomes;
DELETE FROM chosen_ids;
DELETE FROM keys;
DELETE FROM tags;
DELETE FROM counters;
DELETE FROM sessions;
DELETE FROM kv;
DELETE FROM queues;
UPDATE catalog SET version = 0, body_slot = 0;
DELETE FROM inbox;
DELETE FROM inbox_refused;
DELETE FROM events;
