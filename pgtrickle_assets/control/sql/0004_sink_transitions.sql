-- Every change of a delivery's status, and the sums of those that were counted: what the metrics are computed from.
-- Entries outlive their delivery, so that counters never go back when the history is pruned.

CREATE TABLE pgtrickle.pgt_ducklake_sink_transitions (
    transition_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    delivery_id text NOT NULL,
    stream_table_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    status text NOT NULL
        CHECK (status IN ('PENDING', 'WRITING', 'DELIVERED', 'FAILED_RETRYABLE', 'FAILED_PERMANENT', 'SUPERSEDED')),
    attempt_count integer NOT NULL,
    bytes_written bigint,
    seconds double precision,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    counted boolean NOT NULL DEFAULT false
);
COMMENT ON COLUMN pgtrickle.pgt_ducklake_sink_transitions.seconds IS 'DELIVERED: time since its attempt began';
COMMENT ON COLUMN pgtrickle.pgt_ducklake_sink_transitions.counted IS 'its numbers are in pgt_ducklake_sink_totals';
CREATE INDEX ON pgtrickle.pgt_ducklake_sink_transitions (delivery_id, transition_id);
CREATE INDEX ON pgtrickle.pgt_ducklake_sink_transitions (stream_table_id) WHERE NOT counted;
CREATE INDEX ON pgtrickle.pgt_ducklake_sink_transitions (at);

CREATE TABLE pgtrickle.pgt_ducklake_sink_totals (
    stream_table_id bigint NOT NULL REFERENCES pgtrickle.pgt_stream_tables ON DELETE CASCADE,
    status text NOT NULL,
    seconds_at_most double precision NOT NULL,
    transitions bigint NOT NULL,
    bytes_written bigint NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (stream_table_id, status, seconds_at_most)
);

CREATE FUNCTION pgtrickle.note_sink_transition() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO pgtrickle.pgt_ducklake_sink_transitions
        (delivery_id, stream_table_id, status, attempt_count, bytes_written, seconds)
    VALUES (
        NEW.delivery_id, NEW.stream_table_id,
        CASE WHEN NEW.superseded_by IS NULL THEN NEW.status ELSE 'SUPERSEDED' END,
        NEW.attempt_count, NEW.bytes_written,
        CASE WHEN NEW.status = 'DELIVERED' THEN extract(epoch FROM clock_timestamp() - (
            SELECT max(t.at) FROM pgtrickle.pgt_ducklake_sink_transitions AS t
            WHERE t.delivery_id = NEW.delivery_id AND t.status = 'WRITING')) END
    );
    RETURN NULL;
END
$$;
CREATE TRIGGER note_first_status AFTER INSERT ON pgtrickle.pgt_ducklake_sink_delivery
    FOR EACH ROW EXECUTE FUNCTION pgtrickle.note_sink_transition();
CREATE TRIGGER note_status AFTER UPDATE OF status ON pgtrickle.pgt_ducklake_sink_delivery
    FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION pgtrickle.note_sink_transition();
