-- DISTINCT ON over groups, aggregates and windows.
SELECT DISTINCT ON (k) k, count(*) AS n FROM t GROUP BY k, bo ORDER BY k, n DESC;
SELECT DISTINCT ON (k) k, bo, sum(a) AS s FROM t GROUP BY k, bo ORDER BY k, sum(a) DESC NULLS LAST, bo;
SELECT DISTINCT ON (count(*)) count(*) AS n, k FROM t GROUP BY k ORDER BY count(*), k;
SELECT DISTINCT ON (n) count(*) AS n, k FROM t GROUP BY k ORDER BY n DESC, k DESC NULLS LAST;
SELECT DISTINCT ON (1) bo, k, max(a) AS m FROM t GROUP BY bo, k ORDER BY 1, m DESC, k;
SELECT DISTINCT ON (upper(k)) k, min(id) AS m FROM t GROUP BY k ORDER BY upper(k);
SELECT DISTINCT ON (k) k, bo, avg(n) AS av FROM t GROUP BY ROLLUP (k, bo) ORDER BY k, bo NULLS FIRST, av;
SELECT DISTINCT ON (max(a) > 10) k, max(a) AS m FROM t GROUP BY k HAVING count(*) > 0 ORDER BY max(a) > 10, m, k;
SELECT DISTINCT ON (k) k, bo FROM t GROUP BY k, bo ORDER BY k, bo LIMIT 2;
SELECT DISTINCT ON (k) k, rank() OVER (ORDER BY count(*), bo) AS r FROM t GROUP BY k, bo ORDER BY k, r, bo;
SELECT DISTINCT ON (sum(a)) count(*) AS n FROM t;
SELECT DISTINCT ON (k, count(*)) bo FROM t GROUP BY k, bo ORDER BY k, count(*), bo DESC;
SELECT DISTINCT ON (k) bo, count(*) AS n FROM t GROUP BY k, bo ORDER BY k, bo;
SELECT DISTINCT ON (row_number() OVER (ORDER BY k) % 2) k, count(*) AS n FROM t GROUP BY k ORDER BY row_number() OVER (ORDER BY k) % 2, k;
SELECT DISTINCT ON (rank() OVER (ORDER BY a)) id FROM t ORDER BY rank() OVER (ORDER BY a), id;
SELECT DISTINCT ON (rank() OVER (ORDER BY a)) a FROM t;
SELECT DISTINCT ON (k) k, (SELECT max(v) FROM u WHERE u.k = t.k) AS m, count(*) AS n FROM t GROUP BY k, bo ORDER BY k, n DESC, bo;
SELECT DISTINCT ON (count(*)) k FROM t GROUP BY k ORDER BY count(*), k LIMIT 1 OFFSET 1;
