INSERT INTO edits (
    seq, sets_state_blob, state_blob, sets_blob, blob, sets_metadata, metadata, sets_parameters, parameters, body
)
SELECT * FROM unnest(
    $1::bigint[], $2::boolean[], $3::bytea[], $4::boolean[], $5::bytea[], $6::boolean[], $7::bytea[],
    $8::boolean[], $9::bytea[], $10::text[]
)
ON CONFLICT (seq) DO UPDATE SET
    sets_state_blob = edits.sets_state_blob OR excluded.sets_state_blob,
    state_blob = CASE WHEN excluded.sets_state_blob THEN excluded.state_blob ELSE edits.state_blob END,
    sets_blob = edits.sets_blob OR excluded.sets_blob,
    blob = CASE WHEN excluded.sets_blob THEN excluded.blob ELSE edits.blob END,
    sets_metadata = edits.sets_metadata OR excluded.sets_metadata,
    metadata = CASE WHEN excluded.sets_metadata THEN excluded.metadata ELSE edits.metadata END,
    sets_parameters = edits.sets_parameters OR excluded.sets_parameters,
    parameters = CASE WHEN excluded.sets_parameters THEN excluded.parameters ELSE edits.parameters END,
    body = coalesce(excluded.body, edits.body)
