-- JSON objects of groups, lists over windows, arrays of percentiles.
SELECT k, json_object_agg(id, a ORDER BY id) AS x, jsonb_object_agg(id, s) AS y, json_object_agg(s, n ORDER BY id DESC) FILTER (WHERE s IS NOT NULL) AS z FROM t GROUP BY k;
SELECT json_object_agg(id, a ORDER BY a DESC NULLS LAST, id)::text AS x, jsonb_object_agg(id, bo)::text AS y FROM t;
SELECT jsonb_object_agg(k, id ORDER BY id)::text AS a, jsonb_object_agg(k, id ORDER BY id DESC)::text AS b, json_object_agg(k, id ORDER BY id DESC)::text AS c FROM t WHERE k IS NOT NULL;
SELECT jsonb_object_agg(x, n ORDER BY n)::text AS a, json_object_agg(x, n ORDER BY n)::text AS b FROM (VALUES ('b', 1), ('aa', 2), ('B', 3), ('é', 4), ('', 5), ('q"\', 6), ('aa', NULL), ('Z', 8), ('zz', 9)) v(x, n);
SELECT json_object_agg(d, ts ORDER BY id)::text AS a, json_object_agg(bo, d ORDER BY id) FILTER (WHERE bo IS NOT NULL)::text AS b, json_object_agg(n, bo ORDER BY id) FILTER (WHERE n IS NOT NULL)::text AS c, json_object_agg(ts, tz ORDER BY id)::text AS e FROM t WHERE d IS NOT NULL;
SELECT json_object_agg(uid, doc -> 'tags' ORDER BY id) AS a, jsonb_object_agg(id, doc) AS b, jsonb_object_agg('x', id ORDER BY id) AS c, jsonb_object_agg('x', NULL) AS d FROM j WHERE uid IS NOT NULL;
SELECT json_object_agg(id, v) AS a, jsonb_object_agg(id, v) AS b FROM e;
SELECT id, ARRAY_AGG(a) OVER (PARTITION BY k ORDER BY id) AS x, STRING_AGG(s, ',') OVER (PARTITION BY k ORDER BY id) AS y, JSON_AGG(a) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS z, JSONB_AGG(s) OVER (PARTITION BY k ORDER BY id DESC) AS w FROM t;
SELECT id, ARRAY_AGG(id) OVER (PARTITION BY k ORDER BY a DESC NULLS LAST, id) AS x, ARRAY_AGG(k) OVER (ORDER BY k) AS y, ARRAY_AGG(a) OVER (ORDER BY a) AS z, STRING_AGG(k, '') OVER (ORDER BY k DESC) AS w, ARRAY_AGG(s) OVER (ORDER BY id ROWS BETWEEN 3 FOLLOWING AND 4 FOLLOWING) AS v FROM t;
SELECT id, ARRAY_AGG(a) FILTER (WHERE a > 5) OVER (ORDER BY id) AS x, STRING_AGG(s, '; ') FILTER (WHERE bo) OVER (ORDER BY id DESC) AS y, JSON_OBJECT_AGG(id, a) OVER (ORDER BY id ROWS 2 PRECEDING) AS z, JSONB_OBJECT_AGG(coalesce(k, '-'), id) OVER (ORDER BY id) AS w FROM t;
SELECT id, ARRAY_AGG(a) OVER (ORDER BY c RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS x, ARRAY_AGG(id) OVER (PARTITION BY k ORDER BY d, id) AS y FROM t WHERE c IS NOT NULL;
SELECT k, ARRAY_AGG(SUM(a)) OVER (ORDER BY k) AS x, STRING_AGG(COALESCE(k, '?'), '') OVER (ORDER BY COUNT(*), k) AS y FROM t GROUP BY k;
SELECT k, PERCENTILE_CONT(ARRAY[0.25, 0.5, 0.75]) WITHIN GROUP (ORDER BY a) AS x, PERCENTILE_DISC(ARRAY[0, 0.5, 1]) WITHIN GROUP (ORDER BY s) AS y, PERCENTILE_DISC('{0.1,0.9}'::float8[]) WITHIN GROUP (ORDER BY n DESC) AS z, PERCENTILE_CONT(ARRAY[0.5, NULL, 0.5]) WITHIN GROUP (ORDER BY n) AS w FROM t GROUP BY k;
SELECT PERCENTILE_CONT(ARRAY[0.5]) WITHIN GROUP (ORDER BY v) AS x, PERCENTILE_DISC(ARRAY[0.5, 1]) WITHIN GROUP (ORDER BY n) FILTER (WHERE v > 3) AS y FROM e;
SELECT PERCENTILE_DISC(ARRAY[0.5, 1]::float8[]) WITHIN GROUP (ORDER BY d) AS x FROM t;
SELECT array_agg('x'::text) AS a, json_agg(1) AS b, array_agg(id ORDER BY 1, id) AS c, string_agg('q', '-') AS d FROM j;
SELECT id, array_agg(7) OVER (ORDER BY id) AS x FROM j;
