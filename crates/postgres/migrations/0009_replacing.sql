-- What was submitted in place of what `bodies` has, which never changes. A replace key is a key like any other, behind a byte
-- that no text begins with.
ALTER TABLE edits ADD COLUMN body text;
