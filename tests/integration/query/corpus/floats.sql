-- Arithmetic and totals of floating point that stay in range, or began outside of it.
SELECT id, 'Infinity'::float8 * f AS a, f + 'Infinity'::float8 AS b, 'Infinity'::float8 / (id::float8) AS c, (id::float8) / 'Infinity'::float8 AS d, 'NaN'::float8 * f AS e, 0::float8 * f AS g FROM t;
SELECT sum(x) AS a, avg(x) AS b FROM (VALUES ('Infinity'::float8), (1)) v(x);
SELECT id, f * 2 AS a, f + f * 1.5 AS b, f / 3 AS c, (f - 1) / (f + 1.5) AS d, r * 2 AS e, r * r AS g, r / 3 AS h, r + f AS i, -f * f - f AS j, n * f AS k, f::float4 AS l, (r * 1e3::float8)::float4 AS m FROM t WHERE f < 1e30::float8;
SELECT k, sum(f) AS a, avg(f) AS b, sum(r) AS c, avg(r) AS d, sum(f) FILTER (WHERE f < 10) AS e, sum(DISTINCT r) AS g FROM t GROUP BY k;
SELECT id, sum(f) OVER (PARTITION BY k ORDER BY id) AS a, avg(r) OVER (ORDER BY id ROWS 2 PRECEDING) AS b, sum(r) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) AS c FROM t;
SELECT f * 2 AS g, count(*) AS c, sum(f * 2) AS s FROM t GROUP BY f * 2 HAVING f * 2 < 10 ORDER BY f * 2;
SELECT a.id FROM t a JOIN t b ON a.f * 2 = b.f + a.f;
SELECT sum(f) * 2 AS x, sum(f * 0) AS y FROM t;
SELECT id, f / (id - 1) AS x FROM t WHERE id > 1;
SELECT sum(v::float8) AS x, avg(v::float8) AS y FROM e;
SELECT id, (CASE WHEN id = 3 THEN NULL ELSE f * f END) AS x FROM t;
