-- How far the rate of a queue is used up, in nanoseconds since 1970: one row for all servers. Whoever reads or changes it holds
-- the lock of its queue.
CREATE TABLE rates (
    queue integer PRIMARY KEY,
    spent bigint NOT NULL
) WITH (fillfactor = 30);
