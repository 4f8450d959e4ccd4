-- Tables of the control schema. Applied by pgtrickle_assets.control.migrations, in one transaction with its record.

CREATE TABLE pgtrickle.pgt_stream_tables (
    pgt_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_schema text NOT NULL,
    pgt_name text NOT NULL,
    project text NOT NULL,
    origin text NOT NULL CHECK (origin IN ('file', 'python', 'sql')),
    origin_path text,
    original_query text NOT NULL,
    defining_query text NOT NULL,
    defining_query_hash text NOT NULL,
    dialect text NOT NULL DEFAULT 'postgres' CHECK (dialect IN ('postgres', 'spark')),
    schedule text NOT NULL DEFAULT 'calculated',
    refresh_mode text NOT NULL DEFAULT 'auto' CHECK (refresh_mode IN ('auto', 'differential', 'full')),
    effective_refresh_mode text CHECK (effective_refresh_mode IN ('differential', 'full')),
    mode_reasons jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(mode_reasons) = 'array'),
    state_tables jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(state_tables) = 'array'),
    partition_by text,
    options jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(options) = 'object'),
    description text NOT NULL DEFAULT '',
    owners text[] NOT NULL DEFAULT '{}',
    tags jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(tags) = 'object'),
    status text NOT NULL DEFAULT 'INITIALIZING'
        CHECK (status IN ('INITIALIZING', 'ACTIVE', 'PAUSED', 'SUSPENDED', 'ERROR')),
    is_populated boolean NOT NULL DEFAULT false,
    needs_reinit boolean NOT NULL DEFAULT false,
    data_timestamp timestamptz,
    last_refresh_at timestamptz,
    consecutive_errors integer NOT NULL DEFAULT 0 CHECK (consecutive_errors >= 0),
    last_error_message text,
    last_error_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (pgt_schema, pgt_name)
);
CREATE INDEX ON pgtrickle.pgt_stream_tables (project);
CREATE INDEX ON pgtrickle.pgt_stream_tables (status);

CREATE TABLE pgtrickle.pgt_dependencies (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    source_type text NOT NULL CHECK (source_type IN ('TABLE', 'STREAM_TABLE', 'LAKE_TABLE')),
    source_name text NOT NULL,
    source_database text,
    -- A stream table that others read stays until its readers are gone; checked at commit, so that both may go at once.
    source_pgt_id bigint REFERENCES pgtrickle.pgt_stream_tables ON DELETE NO ACTION DEFERRABLE INITIALLY DEFERRED,
    columns_used text[] NOT NULL DEFAULT '{}',
    schema_fingerprint text,
    PRIMARY KEY (pgt_id, source_name),
    CHECK ((source_type = 'STREAM_TABLE') = (source_pgt_id IS NOT NULL)),
    CHECK ((source_type = 'TABLE') = (source_database IS NOT NULL))
);
CREATE INDEX ON pgtrickle.pgt_dependencies (source_pgt_id);
CREATE INDEX ON pgtrickle.pgt_dependencies (source_name);

CREATE TABLE pgtrickle.pgt_refresh_history (
    refresh_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    partitions text[],
    run_id text,
    initiated_by text NOT NULL CHECK (initiated_by IN ('SCHEDULER', 'MANUAL', 'INITIAL', 'BACKFILL', 'RETRY')),
    owner text NOT NULL,
    status text NOT NULL DEFAULT 'RUNNING' CHECK (status IN ('RUNNING', 'COMPLETED', 'FAILED', 'SKIPPED')),
    strategy text CHECK (strategy IN ('no_change', 'differential', 'full')),
    action text GENERATED ALWAYS AS (
        CASE WHEN status = 'SKIPPED' THEN 'SKIP'
             WHEN strategy = 'no_change' THEN 'NO_DATA'
             ELSE upper(strategy) END
    ) STORED,
    refresh_reason text,
    refresh_reason_detail text,
    was_full_fallback boolean NOT NULL DEFAULT false,
    estimates jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(estimates) = 'object'),
    delta_row_count bigint CHECK (delta_row_count >= 0),
    delta_rows_out bigint CHECK (delta_rows_out >= 0),
    rows_inserted bigint CHECK (rows_inserted >= 0),
    rows_deleted bigint CHECK (rows_deleted >= 0),
    row_count bigint CHECK (row_count >= 0),
    bytes_written bigint CHECK (bytes_written >= 0),
    files_written bigint CHECK (files_written >= 0),
    spark_jobs bigint CHECK (spark_jobs >= 0),
    phase_seconds jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(phase_seconds) = 'object'),
    cut bigint,
    frontier jsonb,
    ducklake_snapshot_id bigint,
    data_timestamp timestamptz,
    start_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    end_time timestamptz,
    error_message text,
    CHECK ((status = 'RUNNING') = (end_time IS NULL)),
    CHECK (status <> 'COMPLETED' OR strategy IS NOT NULL),
    CHECK (status <> 'FAILED' OR error_message IS NOT NULL)
);
CREATE INDEX ON pgtrickle.pgt_refresh_history (pgt_id, refresh_id DESC);
CREATE INDEX ON pgtrickle.pgt_refresh_history (start_time);
CREATE INDEX ON pgtrickle.pgt_refresh_history (owner) WHERE status = 'RUNNING';

CREATE TABLE pgtrickle.pgt_partition_cuts (
    pgt_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    partition_key text NOT NULL,
    cut bigint NOT NULL,
    ducklake_snapshot_id bigint NOT NULL,
    refresh_id bigint REFERENCES pgtrickle.pgt_refresh_history ON DELETE SET NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (pgt_id, partition_key)
);
CREATE INDEX ON pgtrickle.pgt_partition_cuts (refresh_id);
COMMENT ON COLUMN pgtrickle.pgt_partition_cuts.partition_key IS '''*'' stands for every partition without a row of its own';

CREATE TABLE pgtrickle.pgt_frontiers (
    pgt_id bigint NOT NULL,
    partition_key text NOT NULL,
    input text NOT NULL,
    snapshot_id bigint NOT NULL,
    PRIMARY KEY (pgt_id, partition_key, input),
    FOREIGN KEY (pgt_id, partition_key) REFERENCES pgtrickle.pgt_partition_cuts ON DELETE CASCADE
);
CREATE INDEX ON pgtrickle.pgt_frontiers (input, snapshot_id);

CREATE TABLE pgtrickle.pgt_ducklake_sink_delivery (
    delivery_id text PRIMARY KEY,
    stream_table_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    partitions text[],
    refresh_id bigint REFERENCES pgtrickle.pgt_refresh_history ON DELETE CASCADE,
    status text NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'WRITING', 'DELIVERED', 'FAILED_RETRYABLE', 'FAILED_PERMANENT')),
    attempt_count integer NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    bytes_written bigint CHECK (bytes_written >= 0),
    rows_written bigint CHECK (rows_written >= 0),
    ducklake_snapshot_id bigint,
    owner text NOT NULL,
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_at timestamptz,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    last_error text,
    superseded_by text,
    CHECK ((status IN ('DELIVERED', 'FAILED_PERMANENT')) = (finished_at IS NOT NULL)),
    CHECK (status <> 'DELIVERED' OR (bytes_written IS NOT NULL AND rows_written IS NOT NULL)),
    CHECK (status NOT IN ('FAILED_RETRYABLE', 'FAILED_PERMANENT') OR last_error IS NOT NULL),
    CHECK ((status = 'FAILED_RETRYABLE') = (retry_at IS NOT NULL))
);
CREATE INDEX ON pgtrickle.pgt_ducklake_sink_delivery (stream_table_id, started_at DESC);
CREATE INDEX ON pgtrickle.pgt_ducklake_sink_delivery (refresh_id);
CREATE INDEX ON pgtrickle.pgt_ducklake_sink_delivery (status)
    WHERE status IN ('PENDING', 'WRITING', 'FAILED_RETRYABLE');

CREATE TABLE pgtrickle.pgt_ducklake_provenance (
    provenance_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream_table_oid bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    stream_table_name text NOT NULL,
    ducklake_snapshot_id bigint NOT NULL,
    refresh_id bigint REFERENCES pgtrickle.pgt_refresh_history ON DELETE SET NULL,
    delta_row_count bigint NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN pgtrickle.pgt_ducklake_provenance.stream_table_oid IS 'pgt_id of the stream table';
CREATE INDEX ON pgtrickle.pgt_ducklake_provenance (stream_table_oid, provenance_id DESC);
CREATE INDEX ON pgtrickle.pgt_ducklake_provenance (ducklake_snapshot_id);
CREATE INDEX ON pgtrickle.pgt_ducklake_provenance (refresh_id);

CREATE TABLE pgtrickle.pgt_change_tracking (
    source_name text PRIMARY KEY,
    position text NOT NULL,
    ducklake_snapshot_id bigint,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON COLUMN pgtrickle.pgt_change_tracking.position IS 'commit point of the source database up to which its mirrors are built';

CREATE TABLE pgtrickle.pgt_source_mirrors (
    source_name text NOT NULL,
    source_schema text NOT NULL,
    source_table text NOT NULL,
    lake_schema text NOT NULL,
    lake_table text NOT NULL,
    columns jsonb NOT NULL CHECK (jsonb_typeof(columns) = 'array'),
    ducklake_snapshot_id bigint,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source_name, source_schema, source_table),
    UNIQUE (lake_schema, lake_table)
);
COMMENT ON COLUMN pgtrickle.pgt_source_mirrors.ducklake_snapshot_id IS 'lake snapshot of the first full copy; NULL until there is one';

-- Names as in the view's documentation: everything about a stream table, and how old its content is.
CREATE VIEW pgtrickle.stream_tables_info AS
SELECT
    s.*,
    clock_timestamp() - s.data_timestamp AS staleness,
    c.cut,
    c.ducklake_snapshot_id
FROM pgtrickle.pgt_stream_tables AS s
LEFT JOIN LATERAL (
    SELECT min(p.cut) AS cut, max(p.ducklake_snapshot_id) AS ducklake_snapshot_id
    FROM pgtrickle.pgt_partition_cuts AS p WHERE p.pgt_id = s.pgt_id
) AS c ON true;

CREATE FUNCTION pgtrickle.pgt_status()
RETURNS TABLE (
    name text, status text, refresh_mode text, is_populated boolean, consecutive_errors integer, schedule text,
    data_timestamp timestamptz, staleness interval
)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.pgt_schema || '.' || s.pgt_name, s.status, s.refresh_mode, s.is_populated, s.consecutive_errors,
           s.schedule, s.data_timestamp, clock_timestamp() - s.data_timestamp
    FROM pgtrickle.pgt_stream_tables AS s
    ORDER BY s.pgt_schema, s.pgt_name
$$;

CREATE FUNCTION pgtrickle.ducklake_sink_status()
RETURNS TABLE (
    stream_table_name text, last_delivery_status text, last_delivery_at timestamptz, last_bytes_written bigint,
    last_rows_written bigint, failed_attempts bigint, last_error text
)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.pgt_schema || '.' || s.pgt_name, d.status, coalesce(d.finished_at, d.started_at), w.bytes_written,
           w.rows_written,
           -- Every attempt of a delivery failed except the one that landed or still runs.
           coalesce(d.attempt_count - (CASE WHEN d.status IN ('WRITING', 'DELIVERED') THEN 1 ELSE 0 END), 0)::bigint,
           d.last_error
    FROM pgtrickle.pgt_stream_tables AS s
    LEFT JOIN LATERAL (
        SELECT * FROM pgtrickle.pgt_ducklake_sink_delivery AS x
        WHERE x.stream_table_id = s.pgt_id AND x.superseded_by IS NULL
        ORDER BY x.started_at DESC, x.delivery_id DESC LIMIT 1
    ) AS d ON true
    LEFT JOIN LATERAL (
        SELECT * FROM pgtrickle.pgt_ducklake_sink_delivery AS x
        WHERE x.stream_table_id = s.pgt_id AND x.status = 'DELIVERED'
        ORDER BY x.started_at DESC, x.delivery_id DESC LIMIT 1
    ) AS w ON true
    ORDER BY s.pgt_schema, s.pgt_name
$$;
