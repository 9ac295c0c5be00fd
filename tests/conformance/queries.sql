-- One query a line, over r (id, k, x, y, s, d, at, day, b) and s (k, name, z); run by both engines, rows compared.
SELECT r.id AS id, r.x + 1 AS a, r.y / 2 AS h, r.d * 2 AS p, r.d / 3 AS q, -r.x AS n FROM r
SELECT r.id AS id FROM r WHERE r.x > 0 AND 10 / r.x > 2
SELECT r.id AS id FROM r WHERE NOT (r.x > 0 OR r.s IS NULL) OR r.b
SELECT r.id AS id FROM r WHERE r.x BETWEEN 1 AND 5 AND r.s IN ('a', 'b', NULL) AND r.s LIKE 'a%'
SELECT r.id AS id FROM r WHERE r.x <=> NULL OR r.y IN (1.5, 2)
SELECT r.id AS id FROM r WHERE r.at > '2024-01-01' AND r.at <= TIMESTAMP '2024-01-01 12:00:00' AND r.day >= '2024-01-01'
SELECT r.id AS id FROM r WHERE r.at > TIMESTAMP '2024-01-02 00:00:00' - INTERVAL 18 HOURS
SELECT r.id AS id FROM r WHERE r.at - TIMESTAMP '2024-01-01 00:00:00' > INTERVAL 6 HOURS
SELECT r.k AS k, count(*) AS n, count(r.x) AS c, sum(r.x) AS t, avg(r.x) AS a, min(r.y) AS lo, max(r.s) AS hi FROM r GROUP BY r.k
SELECT r.k AS k, sum(r.d) AS t, avg(r.d) AS a, count(DISTINCT r.s) AS u, sum(r.x) FILTER (WHERE r.b) AS f FROM r GROUP BY r.k HAVING count(*) > 1
SELECT r.k + 1 AS j, r.k + 1 + count(*) AS m FROM r GROUP BY r.k + 1
SELECT r.y AS y, count(*) AS n FROM r GROUP BY r.y
SELECT r.k AS k, count(*) AS n FROM r GROUP BY 1 ORDER BY n DESC, k LIMIT 3
SELECT upperless.k AS k FROM (SELECT r.k AS k, max(r.x) AS m FROM r GROUP BY r.k) AS upperless WHERE upperless.m > 2
SELECT count(*) AS n, sum(r.x) AS t, max(r.y) AS m FROM r WHERE r.id < 0
SELECT CASE WHEN r.x > 3 THEN 'big' WHEN r.x > 1 THEN 'mid' END AS c, count(*) AS n FROM r GROUP BY CASE WHEN r.x > 3 THEN 'big' WHEN r.x > 1 THEN 'mid' END
SELECT date_trunc('hour', r.at) AS h, sum(r.x) AS t FROM r GROUP BY date_trunc('hour', r.at) HAVING sum(r.x) > 1
SELECT DISTINCT r.y AS y FROM r
SELECT DISTINCT r.k AS k, r.b AS b FROM r ORDER BY k, b
SELECT r.id AS id, r.y AS y FROM r ORDER BY y, id
SELECT r.id AS id, r.y AS y FROM r ORDER BY r.y DESC, id
SELECT r.id AS id, r.s AS s FROM r ORDER BY s NULLS LAST, id DESC LIMIT 5 OFFSET 2
SELECT r.id AS id FROM r ORDER BY r.x * -1, 1
SELECT r.k AS k, sum(r.x) AS t FROM r GROUP BY r.k ORDER BY sum(r.x) DESC, k
SELECT r.x AS v FROM r UNION SELECT r.y AS w FROM r
SELECT r.k AS v FROM r UNION ALL SELECT s.z AS z FROM s
SELECT r.k AS v FROM r INTERSECT SELECT s.k AS k FROM s
SELECT r.k AS v FROM r INTERSECT ALL SELECT s.k AS k FROM s
SELECT r.k AS v FROM r EXCEPT SELECT s.k AS k FROM s
SELECT r.k AS v FROM r EXCEPT ALL SELECT s.k AS k FROM s
SELECT r.y AS v FROM r EXCEPT SELECT CAST(0 AS DOUBLE) AS z FROM s
(SELECT r.k AS v FROM r) UNION (SELECT s.k AS k FROM s) ORDER BY v DESC LIMIT 3
SELECT r.d AS v FROM r UNION ALL SELECT r.x AS x FROM r
SELECT r.id AS id, s.name AS name FROM r JOIN s ON r.k = s.k
SELECT r.id AS id, s.name AS name FROM r LEFT JOIN s ON r.k = s.k AND s.z > 1
SELECT r.id AS id, s.name AS name FROM r RIGHT JOIN s ON r.k = s.k
SELECT r.id AS id, s.name AS name FROM r FULL OUTER JOIN s ON r.k = s.k
SELECT r.id AS id, s.name AS name FROM r CROSS JOIN s WHERE r.k < s.k
SELECT r.id AS id, s.name AS name FROM r, s WHERE r.k = s.k AND r.x > 1 AND 10 / r.x > 1
SELECT r.id AS id FROM r LEFT SEMI JOIN s ON r.k = s.k
SELECT r.id AS id FROM r LEFT ANTI JOIN s ON r.k = s.k
SELECT r.id AS id, s.name AS name FROM r JOIN s USING (k)
SELECT a.id AS i, b.id AS j FROM r AS a JOIN r AS b ON a.y = b.y AND a.id < b.id
SELECT r.id AS id FROM r WHERE r.k IN (SELECT s.k AS k FROM s)
SELECT r.id AS id FROM r WHERE r.k NOT IN (SELECT s.k AS k FROM s)
SELECT r.id AS id FROM r WHERE r.k NOT IN (SELECT s.k AS k FROM s WHERE s.k IS NOT NULL)
SELECT r.id AS id FROM r WHERE r.x IN (SELECT s.z AS z FROM s)
SELECT r.id AS id FROM r WHERE EXISTS (SELECT 1 AS one FROM s WHERE s.k = r.k AND s.z > r.x)
SELECT r.id AS id FROM r WHERE NOT EXISTS (SELECT 1 AS one FROM s WHERE s.k = r.k)
SELECT r.id AS id, (SELECT max(s.z) AS m FROM s WHERE s.k = r.k) AS m FROM r
SELECT r.id AS id, (SELECT count(*) AS m FROM s WHERE s.k = r.k) AS m FROM r
SELECT r.id AS id FROM r WHERE r.x > (SELECT avg(q.x) AS a FROM r AS q)
WITH t AS (SELECT r.k AS k, sum(r.x) AS t FROM r GROUP BY r.k), u AS (SELECT t.k AS k FROM t WHERE t.t > 3) SELECT u.k AS k, t.t AS t FROM u JOIN t ON u.k = t.k
WITH t(a, b) AS (SELECT r.k AS k, r.x AS x FROM r) SELECT t.a AS a, max(t.b) AS b FROM t GROUP BY t.a
SELECT v.a AS a, v.b AS b FROM VALUES (1, 'x'), (2.5, NULL), (NULL, 'y') AS v(a, b)
SELECT r.id AS id, row_number() OVER (PARTITION BY r.k ORDER BY r.id) AS n, sum(r.x) OVER (PARTITION BY r.k ORDER BY r.id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS t FROM r
SELECT r.id AS id, rank() OVER (ORDER BY r.y) AS a, dense_rank() OVER (ORDER BY r.y DESC) AS b, lag(r.s, 1) OVER (ORDER BY r.id) AS p FROM r
SELECT r.id AS id, sum(r.x) OVER w AS t FROM r WINDOW w AS (PARTITION BY r.b ORDER BY r.id)
SELECT r.id AS id, sum(r.x) OVER w2 AS t FROM r WINDOW w1 AS (PARTITION BY r.b ORDER BY r.id), w2 AS w1
SELECT q.id AS id FROM (SELECT r.id AS id, row_number() OVER (PARTITION BY r.k ORDER BY r.id DESC) AS n FROM r) AS q WHERE q.n = 1
SELECT coalesce(r.x, r.y, 0) AS a, if(r.b, r.x, r.d) AS c, nvl(r.s, 'none') AS e, nullif(r.x, 2) AS f, r.id AS id FROM r
SELECT CASE r.k WHEN 1 THEN 10 WHEN 2 THEN 20.5 ELSE NULL END AS a, r.id AS id FROM r
SELECT concat(r.s, '-', r.x, '-', r.day) AS a, r.s || r.k AS c, substring(r.s, 2) AS e, r.id AS id FROM r
SELECT year(r.at) AS y, extract(HOUR FROM r.at) AS h, date_add(r.day, 3) AS d, datediff(r.at, r.day) AS f, r.day + INTERVAL 1 MONTH AS m, r.id AS id FROM r
SELECT round(r.y, 1) AS a, floor(r.d) AS c, ceil(r.d) AS e, abs(r.x) AS f, r.x % 3 AS g, r.id AS id FROM r WHERE r.y < 100
SELECT bool_or(r.b) AS a, every(r.b) AS c, any(r.x > 3) AS e, count_if(r.x > 2) AS f FROM r
SELECT avg(r.y) AS a, sum(r.y) AS t FROM r WHERE r.y < 100 AND r.y > 0
SELECT r.d + r.x AS a, r.d - 0.005 AS c, r.d * r.d AS e, r.x / r.d AS f, r.x * 0.5 AS g, 1 - r.d AS h, 7 / 2 AS i, 3 * 0.1 AS j, r.id AS id FROM r WHERE r.d <> 0
SELECT r.x AS `order`, r.k AS `a"b` FROM r
SELECT sum(1 / r.x) FILTER (WHERE r.x <> 0) AS t FROM r WHERE r.id < 6
SELECT q.h AS h FROM (SELECT 10 / r.x AS h, r.x AS x FROM r WHERE r.x <> 0) AS q WHERE q.h > 3
SELECT r.id AS id FROM r WHERE r.x <> 0 AND (r.s = 'a' OR 10 / r.x > 3)
SELECT r.id AS id, r.tags AS tags, r.place AS place FROM r
SELECT X'AB01' AS a, X'' AS b, cast(r.s AS BINARY) = X'61' AS c, X'00' < cast(r.s AS BINARY) AS d, r.id AS id FROM r
SELECT CAST('NaN' AS DOUBLE) AS a, CAST('Infinity' AS FLOAT) AS b, r.y < CAST('-Infinity' AS DOUBLE) AS c, r.y = CAST('NaN' AS DOUBLE) AS d, r.id AS id FROM r
SELECT r.b AS b, window(r.at, '5 hours').start AS f, window(r.at, '5 hours').end AS t, count(*) AS n, sum(r.x) AS x FROM r GROUP BY r.b, window(r.at, '5 hours')
SELECT r.b AS b, window(r.at, '90 minutes', '90 minutes', '20 minutes') AS w, max(r.x) AS x FROM r GROUP BY r.b, window(r.at, '90 minutes', '90 minutes', '20 minutes')
SELECT (q.w).start AS f, q.n AS n FROM (SELECT window(r.at - INTERVAL 30000 DAYS, 'interval 1 day 7 hours') AS w, count(*) AS n FROM r WHERE r.x > 0 GROUP BY r.b, window(r.at - INTERVAL 30000 DAYS, 'interval 1 day 7 hours')) AS q
SELECT count(*) AS n FROM r GROUP BY r.b, window(r.at, '5 hours') HAVING (window).end > TIMESTAMP '2024-01-01 12:00:00' ORDER BY (window).start, n
