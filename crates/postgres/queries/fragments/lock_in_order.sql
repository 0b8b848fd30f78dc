-- Waits for locks. All transactions lock pages in this order, so no two of them wait for each other.
ORDER BY first_seq
FOR UPDATE
