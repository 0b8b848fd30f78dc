-- `compatible_with`: a server must know this version to go on with the schema.
CREATE TABLE IF NOT EXISTS towline_schema (
    version integer PRIMARY KEY,
    compatible_with integer NOT NULL,
    migrated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
