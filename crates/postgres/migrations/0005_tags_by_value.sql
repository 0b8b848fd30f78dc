-- How many items have a tag is counted in the index alone.
CREATE INDEX tags_by_value ON tags (name, value, seq);
