-- Named snapshots of stream tables: content to go back to, which expiry never passes.

CREATE TABLE pgtrickle.pgt_snapshots (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    label text NOT NULL CHECK (label <> ''),
    snapshot_schema text NOT NULL,
    snapshot_table text NOT NULL,
    snapshot_version bigint NOT NULL,
    frontier jsonb NOT NULL CHECK (jsonb_typeof(frontier) = 'object'),
    cut bigint NOT NULL,
    defining_query_hash text NOT NULL,
    data_timestamp timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (pgt_id, label)
);
COMMENT ON COLUMN pgtrickle.pgt_snapshots.snapshot_version IS 'lake snapshot that holds the content';
COMMENT ON COLUMN pgtrickle.pgt_snapshots.frontier IS 'lake snapshot by input, from which a restored table moves on';
