UPDATE bodies SET
    state_blob = CASE WHEN edit.sets_state_blob THEN edit.state_blob ELSE bodies.state_blob END,
    blob = CASE WHEN edit.sets_blob THEN edit.blob ELSE bodies.blob END,
    metadata = CASE WHEN edit.sets_metadata THEN edit.metadata ELSE bodies.metadata END,
    parameters = CASE WHEN edit.sets_parameters THEN edit.parameters ELSE bodies.parameters END
FROM unnest(
    $1::bigint[], $2::boolean[], $3::bytea[], $4::boolean[], $5::bytea[], $6::boolean[], $7::bytea[],
    $8::boolean[], $9::bytea[]
) AS edit (
    seq, sets_state_blob, state_blob, sets_blob, blob, sets_metadata, metadata, sets_parameters, parameters
)
WHERE bodies.seq = edit.seq
