-- Sessions that ended more than a day ago. The row with the latest time stays.
DELETE FROM sessions
WHERE opened_at < clock_timestamp() - interval '1 day'
  AND decided_at < (SELECT max(decided_at) FROM sessions) - 86400000
  AND pg_try_advisory_xact_lock($1, session)
