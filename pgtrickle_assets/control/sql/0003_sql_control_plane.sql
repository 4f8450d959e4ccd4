-- Stream tables from SQL: definitions that the next registration takes up like a file, and requests to refresh.

CREATE TABLE pgtrickle.pgt_projects (
    project text PRIMARY KEY,
    registered_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO pgtrickle.pgt_projects (project) SELECT DISTINCT project FROM pgtrickle.pgt_stream_tables;

CREATE TABLE pgtrickle.pgt_sql_definitions (
    pgt_schema text NOT NULL,
    pgt_name text NOT NULL,
    project text NOT NULL REFERENCES pgtrickle.pgt_projects ON DELETE CASCADE,
    query text NOT NULL CHECK (query ~ '\S'),
    options jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(options) = 'object'),
    requested_by text NOT NULL DEFAULT session_user,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_at timestamptz,
    refused_at timestamptz,
    error_message text,
    PRIMARY KEY (pgt_schema, pgt_name),
    CHECK ((refused_at IS NULL) = (error_message IS NULL))
);
CREATE INDEX ON pgtrickle.pgt_sql_definitions (project);
COMMENT ON TABLE pgtrickle.pgt_sql_definitions IS 'stream tables made from SQL: what a file is for the others';
COMMENT ON COLUMN pgtrickle.pgt_sql_definitions.error_message IS 'why it was not taken up as requested';

CREATE TABLE pgtrickle.pgt_refresh_requests (
    request_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pgt_schema text NOT NULL,
    pgt_name text NOT NULL,
    project text NOT NULL REFERENCES pgtrickle.pgt_projects ON DELETE CASCADE,
    requested_by text NOT NULL DEFAULT session_user,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON pgtrickle.pgt_refresh_requests (project, requested_at);

-- A request is met by the first refresh of the stream table that began after it, whatever started that.
CREATE VIEW pgtrickle.pgt_requests AS
SELECT
    r.request_id,
    r.pgt_schema || '.' || r.pgt_name AS stream_table,
    r.project,
    r.requested_by,
    r.requested_at,
    CASE
        WHEN h.refresh_id IS NOT NULL THEN h.status
        WHEN d.refused_at IS NOT NULL AND coalesce(s.origin, 'sql') = 'sql' THEN 'FAILED'
        WHEN s.pgt_id IS NULL AND d.pgt_name IS NULL THEN 'FAILED'
        ELSE 'WAITING'
    END AS status,
    h.refresh_id,
    coalesce(
        h.error_message, d.error_message, CASE WHEN s.pgt_id IS NULL AND d.pgt_name IS NULL THEN 'was dropped' END
    ) AS error_message
FROM pgtrickle.pgt_refresh_requests AS r
LEFT JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_schema, pgt_name)
LEFT JOIN pgtrickle.pgt_sql_definitions AS d USING (pgt_schema, pgt_name)
LEFT JOIN LATERAL (
    SELECT x.refresh_id, x.status, x.error_message
    FROM pgtrickle.pgt_refresh_history AS x
    WHERE x.pgt_id = s.pgt_id AND x.start_time >= r.requested_at AND x.status <> 'SKIPPED' AND x.partitions IS NULL
    ORDER BY x.refresh_id LIMIT 1
) AS h ON true;

-- Helpers: not for users.
CREATE FUNCTION pgtrickle._parts(name text, OUT s text, OUT t text)
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF name IS NULL OR name !~ '^[^.]+\.[^.]+$' THEN
        RAISE EXCEPTION 'stream table name % is not of the form schema.table', coalesce(quote_literal(name), 'NULL')
            USING ERRCODE = 'invalid_name';
    END IF;
    s := split_part(name, '.', 1);
    t := split_part(name, '.', 2);
END
$$;

CREATE FUNCTION pgtrickle._project(wanted text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known text[] := ARRAY(SELECT p.project FROM pgtrickle.pgt_projects AS p ORDER BY 1);
BEGIN
    IF wanted = ANY (known) THEN
        RETURN wanted;
    ELSIF wanted IS NOT NULL THEN
        RAISE EXCEPTION 'there is no project %', quote_literal(wanted)
            USING ERRCODE = 'undefined_object', HINT = 'Projects: ' || coalesce(array_to_string(known, ', '), 'none') || '.';
    ELSIF cardinality(known) = 1 THEN
        RETURN known[1];
    ELSIF cardinality(known) = 0 THEN
        RAISE EXCEPTION 'no project is registered in this catalog'
            USING ERRCODE = 'undefined_object', HINT = 'Run `pgtrickle apply` in a project folder.';
    END IF;
    RAISE EXCEPTION 'this catalog holds several projects'
        USING ERRCODE = 'ambiguous_parameter',
              HINT = 'Name one: project => ''...''. Projects: ' || array_to_string(known, ', ') || '.';
END
$$;

-- The options that were given, checked as far as SQL can; the rest is checked when the definition is taken up.
CREATE FUNCTION pgtrickle._options(
    schedule text, refresh_mode text, partition_by text, description text, options jsonb
) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    given jsonb := coalesce(options, '{}') || jsonb_strip_nulls(jsonb_build_object(
        'schedule', schedule, 'refresh_mode', lower(refresh_mode), 'partition_by', partition_by,
        'description', description));
    known text[] := ARRAY['schedule', 'refresh_mode', 'partition_by', 'partition_start', 'partition_end', 'description',
                          'owners', 'tags', 'dialect', 'view'];
    unknown text := (SELECT k FROM jsonb_object_keys(given) AS k WHERE NOT k = ANY (known) ORDER BY k LIMIT 1);
BEGIN
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION 'unknown option %', quote_literal(unknown)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Options: ' || array_to_string(known, ', ') || '.';
    ELSIF given ->> 'refresh_mode' NOT IN ('auto', 'differential', 'full') THEN
        RAISE EXCEPTION 'refresh_mode cannot be %', quote_literal(given ->> 'refresh_mode')
            USING ERRCODE = 'invalid_parameter_value', HINT = 'Modes: auto, differential, full.';
    END IF;
    RETURN given;
END
$$;

-- Where a stream table is defined: 'file', 'python', 'sql', or NULL when there is none.
CREATE FUNCTION pgtrickle._origin(name text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(
        (SELECT s.origin FROM pgtrickle.pgt_stream_tables AS s
         WHERE s.pgt_schema || '.' || s.pgt_name = name AND s.origin <> 'sql'),
        (SELECT 'sql' FROM pgtrickle.pgt_sql_definitions AS d WHERE d.pgt_schema || '.' || d.pgt_name = name),
        (SELECT s.origin FROM pgtrickle.pgt_stream_tables AS s WHERE s.pgt_schema || '.' || s.pgt_name = name))
$$;

CREATE FUNCTION pgtrickle._require(name text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    origin text := pgtrickle._origin(name);
    known text;
BEGIN
    IF origin IS NULL THEN
        PERFORM pgtrickle._parts(name);
        SELECT string_agg(x.n, ', ' ORDER BY x.n) INTO known FROM (
            SELECT s.pgt_schema || '.' || s.pgt_name FROM pgtrickle.pgt_stream_tables AS s
            UNION SELECT d.pgt_schema || '.' || d.pgt_name FROM pgtrickle.pgt_sql_definitions AS d
            ORDER BY 1 LIMIT 12) AS x (n);
        RAISE EXCEPTION 'there is no stream table %', quote_literal(name)
            USING ERRCODE = 'undefined_table', HINT = 'Stream tables: ' || coalesce(known, 'none') || '.';
    END IF;
    RETURN origin;
END
$$;

CREATE FUNCTION pgtrickle._require_sql(name text) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    origin text := pgtrickle._require(name);
    place text;
BEGIN
    IF origin <> 'sql' THEN
        SELECT coalesce('in file ' || s.origin_path, 'in Python') || ' of project ' || quote_literal(s.project) INTO place
        FROM pgtrickle.pgt_stream_tables AS s WHERE s.pgt_schema || '.' || s.pgt_name = name;
        RAISE EXCEPTION 'stream table % is defined %', name, place
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'Change it there.';
    END IF;
END
$$;

CREATE FUNCTION pgtrickle.create_stream_table(
    name text, query text, schedule text DEFAULT NULL, refresh_mode text DEFAULT NULL, initialize boolean DEFAULT true,
    partition_by text DEFAULT NULL, description text DEFAULT NULL, options jsonb DEFAULT NULL, project text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parts record := pgtrickle._parts(name);
    owner text := pgtrickle._project(project);
    given jsonb := pgtrickle._options(schedule, refresh_mode, partition_by, description, options);
BEGIN
    IF pgtrickle._origin(name) IS NOT NULL THEN
        RAISE EXCEPTION 'there is a stream table % already', name
            USING ERRCODE = 'duplicate_table', HINT = 'Change it with pgtrickle.alter_stream_table(), or drop it first.';
    END IF;
    INSERT INTO pgtrickle.pgt_sql_definitions (pgt_schema, pgt_name, project, query, options)
    VALUES (parts.s, parts.t, owner, query, given);
    IF initialize THEN
        INSERT INTO pgtrickle.pgt_refresh_requests (pgt_schema, pgt_name, project) VALUES (parts.s, parts.t, owner);
    END IF;
END
$$;

CREATE FUNCTION pgtrickle.create_stream_table_if_not_exists(
    name text, query text, schedule text DEFAULT NULL, refresh_mode text DEFAULT NULL, initialize boolean DEFAULT true,
    partition_by text DEFAULT NULL, description text DEFAULT NULL, options jsonb DEFAULT NULL, project text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF pgtrickle._origin(name) IS NULL THEN
        PERFORM pgtrickle.create_stream_table(
            name, query, schedule, refresh_mode, initialize, partition_by, description, options, project);
    END IF;
END
$$;

CREATE FUNCTION pgtrickle.pause_stream_table(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pgtrickle._require(name);
    UPDATE pgtrickle.pgt_stream_tables AS s SET status = 'PAUSED', updated_at = clock_timestamp()
    WHERE s.pgt_schema || '.' || s.pgt_name = name;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'stream table % has not been taken up yet', name
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'See pgtrickle.pgt_sql_definitions.';
    END IF;
END
$$;

CREATE FUNCTION pgtrickle.resume_stream_table(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pgtrickle._require(name);
    UPDATE pgtrickle.pgt_stream_tables AS s
    SET status = CASE WHEN s.is_populated THEN 'ACTIVE' ELSE 'INITIALIZING' END, consecutive_errors = 0,
        last_error_message = NULL, last_error_at = NULL, updated_at = clock_timestamp()
    WHERE s.pgt_schema || '.' || s.pgt_name = name;
END
$$;

CREATE FUNCTION pgtrickle.pause_all() RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(pgtrickle.pause_stream_table(s.pgt_schema || '.' || s.pgt_name)::text)
    FROM pgtrickle.pgt_stream_tables AS s WHERE s.status <> 'PAUSED'
$$;

CREATE FUNCTION pgtrickle.resume_all() RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(pgtrickle.resume_stream_table(s.pgt_schema || '.' || s.pgt_name)::text)
    FROM pgtrickle.pgt_stream_tables AS s WHERE s.status IN ('PAUSED', 'SUSPENDED', 'ERROR')
$$;

CREATE FUNCTION pgtrickle.alter_stream_table(
    name text, query text DEFAULT NULL, schedule text DEFAULT NULL, refresh_mode text DEFAULT NULL,
    status text DEFAULT NULL, partition_by text DEFAULT NULL, description text DEFAULT NULL, options jsonb DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    given jsonb := pgtrickle._options(schedule, refresh_mode, partition_by, description, options);
    wanted text := alter_stream_table.query;
BEGIN
    CASE upper(status)
        WHEN 'PAUSED' THEN PERFORM pgtrickle.pause_stream_table(name);
        WHEN 'ACTIVE' THEN PERFORM pgtrickle.resume_stream_table(name);
        ELSE
            IF status IS NOT NULL THEN
                RAISE EXCEPTION 'status cannot be set to %', quote_literal(status)
                    USING ERRCODE = 'invalid_parameter_value', HINT = 'Set it to ACTIVE or PAUSED.';
            END IF;
            PERFORM pgtrickle._require(name);
    END CASE;
    IF wanted IS NOT NULL OR given <> '{}' THEN
        PERFORM pgtrickle._require_sql(name);
        UPDATE pgtrickle.pgt_sql_definitions AS d
        SET query = coalesce(wanted, d.query), options = d.options || given, requested_by = session_user,
            requested_at = clock_timestamp(), refused_at = NULL, error_message = NULL
        WHERE d.pgt_schema || '.' || d.pgt_name = name;
    END IF;
END
$$;

CREATE FUNCTION pgtrickle.create_or_replace_stream_table(
    name text, query text, schedule text DEFAULT NULL, refresh_mode text DEFAULT NULL, initialize boolean DEFAULT true,
    partition_by text DEFAULT NULL, description text DEFAULT NULL, options jsonb DEFAULT NULL, project text DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    given jsonb := pgtrickle._options(schedule, refresh_mode, partition_by, description, options);
    wanted text := create_or_replace_stream_table.query;
BEGIN
    IF pgtrickle._origin(name) IS NULL THEN
        PERFORM pgtrickle.create_stream_table(
            name, query, schedule, refresh_mode, initialize, partition_by, description, options, project);
        RETURN;
    END IF;
    PERFORM pgtrickle._require_sql(name);
    UPDATE pgtrickle.pgt_sql_definitions AS d
    SET query = wanted, options = given, requested_by = session_user, requested_at = clock_timestamp(),
        refused_at = NULL, error_message = NULL
    WHERE d.pgt_schema || '.' || d.pgt_name = name
      AND (regexp_replace(btrim(d.query), '\s+', ' ', 'g') <> regexp_replace(btrim(wanted), '\s+', ' ', 'g')
           OR d.options <> given);
END
$$;

CREATE FUNCTION pgtrickle.drop_stream_table(name text, cascade boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    readers text[];
    reader text;
BEGIN
    PERFORM pgtrickle._require_sql(name);
    WITH RECURSIVE below AS (
        SELECT s.pgt_id, s.pgt_schema || '.' || s.pgt_name AS reader, s.pgt_id AS origin
        FROM pgtrickle.pgt_stream_tables AS s WHERE s.pgt_schema || '.' || s.pgt_name = name
        UNION
        SELECT r.pgt_id, r.pgt_schema || '.' || r.pgt_name, b.origin
        FROM below AS b
        JOIN pgtrickle.pgt_dependencies AS d ON d.source_pgt_id = b.pgt_id
        JOIN pgtrickle.pgt_stream_tables AS r ON r.pgt_id = d.pgt_id
    )
    SELECT array_agg(b.reader ORDER BY b.reader) INTO readers FROM below AS b WHERE b.pgt_id <> b.origin;
    IF readers IS NOT NULL AND NOT cascade THEN
        RAISE EXCEPTION 'stream table % is read by %', name, array_to_string(readers, ', ')
            USING ERRCODE = 'dependent_objects_still_exist',
                  HINT = 'Drop them first, or all at once with cascade => true.';
    END IF;
    FOREACH reader IN ARRAY coalesce(readers, '{}') LOOP
        PERFORM pgtrickle._require_sql(reader);
    END LOOP;
    DELETE FROM pgtrickle.pgt_sql_definitions AS d
    WHERE d.pgt_schema || '.' || d.pgt_name = ANY (array_append(readers, name));
END
$$;

CREATE FUNCTION pgtrickle.refresh_stream_table(name text) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parts record := pgtrickle._parts(name);
    owner text;
    made bigint;
BEGIN
    PERFORM pgtrickle._require(name);
    IF EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS s
               WHERE s.pgt_schema = parts.s AND s.pgt_name = parts.t AND s.status = 'PAUSED') THEN
        RAISE EXCEPTION 'stream table % is paused', name
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = format('SELECT pgtrickle.resume_stream_table(%L);', name);
    END IF;
    SELECT coalesce(
        (SELECT s.project FROM pgtrickle.pgt_stream_tables AS s WHERE s.pgt_schema = parts.s AND s.pgt_name = parts.t),
        (SELECT d.project FROM pgtrickle.pgt_sql_definitions AS d WHERE d.pgt_schema = parts.s AND d.pgt_name = parts.t)
    ) INTO owner;
    INSERT INTO pgtrickle.pgt_refresh_requests (pgt_schema, pgt_name, project) VALUES (parts.s, parts.t, owner)
    RETURNING request_id INTO made;
    RETURN made;
END
$$;
COMMENT ON FUNCTION pgtrickle.refresh_stream_table(text) IS
    'asks for a refresh and returns at once; pgtrickle.pgt_requests shows what became of it';

CREATE FUNCTION pgtrickle.list_snapshots(name text)
RETURNS TABLE (label text, snapshot_version bigint, frontier jsonb, data_timestamp timestamptz, created_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    SELECT n.label, n.snapshot_version, n.frontier, n.data_timestamp, n.created_at
    FROM pgtrickle.pgt_snapshots AS n
    WHERE n.snapshot_schema || '.' || n.snapshot_table = list_snapshots.name
    ORDER BY n.created_at DESC, n.label
$$;

CREATE FUNCTION pgtrickle.explain_st(name text) RETURNS TABLE (property text, value text)
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record;
BEGIN
    PERFORM pgtrickle._require(name);
    SELECT s.* INTO t FROM pgtrickle.stream_tables_info AS s WHERE s.pgt_schema || '.' || s.pgt_name = name;
    IF t IS NULL THEN
        RETURN QUERY SELECT x.* FROM pgtrickle.pgt_sql_definitions AS d, LATERAL (VALUES
            ('status', CASE WHEN d.error_message IS NULL THEN 'waits to be taken up' ELSE 'refused' END),
            ('query', d.query), ('options', d.options::text), ('error', d.error_message)) AS x (p, v)
            WHERE d.pgt_schema || '.' || d.pgt_name = name AND x.v IS NOT NULL;
        RETURN;
    END IF;
    RETURN QUERY SELECT x.* FROM (VALUES
        ('status', t.status), ('project', t.project), ('defined in', coalesce(t.origin_path, t.origin)),
        ('query', t.original_query), ('schedule', t.schedule), ('refresh mode', t.refresh_mode),
        ('effective mode', t.effective_refresh_mode), ('partition by', t.partition_by),
        ('data timestamp', t.data_timestamp::text), ('staleness', t.staleness::text), ('cut', t.cut::text),
        ('lake snapshot', t.ducklake_snapshot_id::text), ('last error', t.last_error_message)) AS x (p, v)
        WHERE x.v IS NOT NULL;
    RETURN QUERY SELECT 'recomputed in full because'::text, r ->> 'detail' FROM jsonb_array_elements(t.mode_reasons) AS r;
    RETURN QUERY SELECT 'state table'::text, r FROM jsonb_array_elements_text(t.state_tables) AS r;
    RETURN QUERY
        SELECT 'reads'::text, lower(replace(d.source_type, '_', ' ')) || ' ' || d.source_name
               || coalesce(' of source ' || d.source_database, '')
               || coalesce(', built up to snapshot ' || min(f.snapshot_id), '')
        FROM pgtrickle.pgt_dependencies AS d
        LEFT JOIN pgtrickle.pgt_frontiers AS f ON f.pgt_id = d.pgt_id AND f.input = d.source_name
        WHERE d.pgt_id = t.pgt_id GROUP BY d.source_type, d.source_name, d.source_database ORDER BY d.source_name;
END
$$;
