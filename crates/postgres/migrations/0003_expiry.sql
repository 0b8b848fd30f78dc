-- Key-value records whose time is over are found in order of it, a few at a time.
CREATE INDEX kv_by_expiry ON kv (expires_at) WHERE expires_at IS NOT NULL;
