-- Divisors, multiples, buckets, digits.
SELECT id, gcd(a, 12) AS g1, gcd(b, 30) AS g2, gcd(a, b) AS g3, gcd(n, 0.75) AS g4, gcd(n, m) AS g5, gcd(m, id) AS g6, gcd(a, 0) AS g7, gcd(0, b) AS g8 FROM t;
SELECT gcd(0, 0) AS z, gcd(-12, 18) AS x, gcd(2147483647, 2147483646) AS y, gcd(1836311903, 1134903170) AS f, gcd(7540113804746346429, 4660046610375530309) AS fl, gcd(0.00, 5.50) AS d, gcd(-330.3, 462) AS e, gcd(12345678901234567890123456789012345678, 9876543210) AS w, lcm(0, 0) AS lz, lcm(-4, 6) AS l1, lcm(1071, 462) AS l2, lcm(330.3, 462) AS l3, lcm(0, 5.5) AS l4;
SELECT gcd(63245986123456789012345678901234567890, 39088169000000000000000000000000000000) AS w, gcd(0.0000000000000000001, 0.00000000000000000025) AS v;
SELECT id, lcm(a, 12) AS l1, lcm(b, 3) AS l2, lcm(n, 0.75) AS l3, lcm(c, 4) AS l4, lcm(NULL, a) AS l5 FROM t WHERE id NOT IN (8);
SELECT gcd('-2147483648'::int, 2) AS a, gcd('-9223372036854775808'::int8, 6) AS b, lcm('-2147483648'::int8, 3) AS c;
SELECT id, width_bucket(n, 0, 100, 10) AS a, width_bucket(m, 10.5, 0.1, 7) AS b, width_bucket(f, 0, 10, 5) AS c, width_bucket(a, -10, 30, 4) AS d, width_bucket(r, 0, 3, 6) AS e, width_bucket(n, m, m + 1, 3) AS g FROM t WHERE id <> 5;
SELECT id, width_bucket(n::float8, -3, 3, id) AS a, width_bucket(n, 3, -3, id) AS b, width_bucket(f, 3, -3, id) AS c, width_bucket(n, -3.5, 3, c) AS d FROM t WHERE id IN (1, 2, 8) OR (id = 4 AND false);
SELECT width_bucket(5.35, 0.024, 10.06, 5) AS a, width_bucket(10, 10, 0, 4) AS b, width_bucket(0, 10, 0, 4) AS c, width_bucket('infinity'::float8, 0, 10, 4) AS d, width_bucket('-infinity'::float8, 0, 10, 4) AS e, width_bucket(5, '-1e308'::float8, '1e308'::float8, 10) AS f, width_bucket(1.5, 0, 3, 2147483646) AS g, width_bucket(0.9999999999999999::float8, 0, 1, 3) AS h, width_bucket(1e-17::float8, 1, 0, 3) AS i, width_bucket(NULL::numeric, 0, 1, 3) AS n1, width_bucket(1, 0, 1, NULL) AS n2;
SELECT id, width_bucket(a, ARRAY[0, 10, 20]) AS a, width_bucket(n, ARRAY[-1, 0.5, 1.50, 2.5]) AS b, width_bucket(f, '{0,1,2.5}'::float8[]) AS c, width_bucket(d, ARRAY['2024-01-31', '2024-02-28']::date[]) AS d, width_bucket(s, ARRAY['a', 'b']) AS e, width_bucket(a, '{}'::int[]) AS g, width_bucket(ts, ARRAY[TIMESTAMP '2024-01-01', TIMESTAMP '2024-01-31 10:20:30.123456']) AS h, width_bucket(a, ARRAY[0, 7.5, 10]) AS i FROM t;
SELECT factorial(0) AS a, factorial(5) AS b, factorial(33) AS c, factorial(NULL) AS d;
SELECT id, factorial(id) AS a, factorial(a) AS b FROM t WHERE id IN (1, 2, 3, 5, 6, 7);
SELECT id, min_scale(n) AS a, min_scale(m) AS b, min_scale(a) AS c, min_scale(0.000) AS d, min_scale(n * m) AS e, min_scale(NULL::numeric) AS f, min_scale(8.4100) AS g FROM t;
SELECT id, trim_scale(n) AS a, trim_scale(m) AS b, trim_scale(a) AS c, trim_scale(n)::text AS d, trim_scale(m) || '' AS e, trim_scale(-100.00)::text AS f, trim_scale(0.00)::text AS g, trim_scale(a)::text AS h, trim_scale(n) / 3 AS i, CASE WHEN id <> 5 THEN trim_scale(m) / 7 END AS j, min_scale(trim_scale(n)) AS k FROM t;
SELECT avg(trim_scale(n)) AS a, sum(trim_scale(n)) AS b, concat(trim_scale(8.40), '!') AS c FROM t;
SELECT trim_scale(b) AS x FROM t;
SELECT id, div(n, 0.3) AS a, div(a, 3) AS b, div(-7, 2) AS c, mod(n, 0.7) AS d, mod(b, 7) AS e, mod(c, 3::int2) AS f FROM t;
