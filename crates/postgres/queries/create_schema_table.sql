-- `compatible_with`: a server must know this schema version to use the schema.
CREATE TABLE IF NOT EXISTS towline_schema (
    version integer PRIMARY KEY,
    compatible_with integer NOT NULL,
    migrated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
