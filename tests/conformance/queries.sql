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
-- time windows that overlap, and sessions
SELECT window(r.at, '6 hours', '2 hours').start AS f, r.b AS b, count(*) AS n, sum(r.x) AS x, count(DISTINCT r.k) AS k FROM r GROUP BY window(r.at, '6 hours', '2 hours'), r.b
SELECT window(r.at, '7 hours', '2 hours', '45 minutes') AS w, min(r.x) AS x, avg(r.x) AS a FROM r WHERE r.x > 0 GROUP BY window(r.at, '7 hours', '2 hours', '45 minutes')
SELECT window(r.at - INTERVAL 30000 DAYS, '5 hours', '3 hours', '-1 hour').end AS e, count(*) AS n FROM r GROUP BY window(r.at - INTERVAL 30000 DAYS, '5 hours', '3 hours', '-1 hour')
SELECT count(*) AS n, max(r.x) AS x FROM r GROUP BY window(r.at, '1 day', '6 hours'), r.k HAVING (window).end > TIMESTAMP '2024-01-01 12:00:00' AND count(*) > 1 ORDER BY (window).start, n, x
SELECT a.w AS w, count(*) AS n FROM (SELECT window(r.at, '6 hours', '3 hours') AS w, r.k AS k FROM r GROUP BY window(r.at, '6 hours', '3 hours'), r.k) AS a GROUP BY a.w
SELECT window(r.at, '6 hours', '3 hours').start AS w, s.name AS name, count(*) AS n FROM r LEFT JOIN s ON r.k = s.k GROUP BY s.name, window(r.at, '6 hours', '3 hours')
SELECT session_window(r.at, '3 hours').start AS f, session_window(r.at, '3 hours').end AS t, count(*) AS n, sum(r.x) AS x FROM r GROUP BY session_window(r.at, '3 hours')
SELECT session_window(r.at, '2 hours 59 minutes') AS w, count(*) AS n FROM r GROUP BY session_window(r.at, '2 hours 59 minutes')
SELECT session_window(r.at, '4 hours').end AS t, r.k AS k, count(*) AS n, count(DISTINCT r.x) AS x, max(r.s) AS s FROM r GROUP BY r.k, session_window(r.at, '4 hours')
SELECT session_window(r.at, '7 hours') AS w, r.b AS b, r.x % 2 AS o, count(*) AS n FROM r WHERE r.id < 11 GROUP BY r.x % 2, session_window(r.at, '7 hours'), r.b HAVING (session_window).start > TIMESTAMP '2024-01-01 02:00:00'
SELECT session_window(r.at, '3 hours').start AS w, r.y AS y, count(*) AS n FROM r GROUP BY session_window(r.at, '3 hours'), r.y
SELECT session_window(r.at, '10 hours').start AS w, s.name AS name, count(*) AS n FROM r JOIN s ON r.k = s.k GROUP BY s.name, session_window(r.at, '10 hours')
-- decimals of many digits: sums, products and quotients of sums
SELECT r.k AS k, sum(r.d * r.d * r.d) AS a, sum(r.d * (1 - r.d) * (1 + r.d)) AS c, 100.00 * sum(r.d * r.d) / sum(r.d * r.d + 1) AS e FROM r GROUP BY r.k
SELECT sum(CAST(r.d AS DECIMAL(32,4)) * CAST(r.x AS DECIMAL(12,2))) AS a, sum(CAST(r.d AS DECIMAL(35,10))) AS c FROM r
-- spread, order and choice
SELECT r.b AS b, stddev(r.y) AS a, var_pop(r.y) AS c, round(corr(r.x, r.id), 9) AS e, stddev(r.d) AS f, percentile(r.x, 0.25) AS g, median(r.y) AS h FROM r GROUP BY r.b
SELECT r.k AS k, percentile_cont(0.9) WITHIN GROUP (ORDER BY r.x) AS a, percentile(r.y, 0.5) FILTER (WHERE r.x > 0) AS c FROM r GROUP BY r.k
SELECT r.k AS k, max_by(r.s, r.id) AS a, min_by(r.x, r.id) FILTER (WHERE r.b) AS c, max_by(r.id, struct(r.y, r.id)) AS e, min_by(r.id, struct(r.s, r.id)) AS f, max_by(r.at, r.id) FILTER (WHERE r.x > 1) AS g FROM r GROUP BY r.k
SELECT r.id AS id, max_by(r.s, r.id) OVER (PARTITION BY r.b ORDER BY r.id) AS a, stddev(r.x) OVER (ORDER BY r.id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS c FROM r
SELECT r.b AS b, string_agg(r.s, ', ') WITHIN GROUP (ORDER BY r.id DESC) AS a, listagg(r.s) WITHIN GROUP (ORDER BY r.x NULLS LAST, r.id) AS c, listagg(DISTINCT r.s, '-') WITHIN GROUP (ORDER BY r.s DESC) AS e, listagg(r.s, '{}') WITHIN GROUP (ORDER BY r.id) FILTER (WHERE r.x > 1) AS f FROM r GROUP BY r.b
SELECT count(any_value(r.id)) OVER () AS n, any_value(r.k) IS NULL AS a FROM r GROUP BY r.k
SELECT r.id AS id, sum(r.x) FILTER (WHERE r.b) OVER (PARTITION BY r.k) AS t FROM r
SELECT max(r.s) LIKE 'b%' AS a FROM r
-- windows over groups, frames of time, places and shares
SELECT r.k AS k, count(*) AS n, rank() OVER (ORDER BY count(*) DESC) AS place, sum(sum(r.x)) OVER () AS t, 100.0 * sum(r.x) / sum(sum(r.x)) OVER () AS share FROM r GROUP BY r.k
SELECT r.k + 1 AS k, max(r.x) - lag(max(r.x)) OVER (ORDER BY r.k + 1) AS d FROM r GROUP BY r.k + 1
SELECT r.id AS id, sum(r.x) OVER (ORDER BY r.at RANGE BETWEEN INTERVAL '7' HOURS PRECEDING AND CURRENT ROW) AS a, count(*) OVER (PARTITION BY r.b ORDER BY r.at RANGE BETWEEN INTERVAL 10 HOURS PRECEDING AND INTERVAL 1 HOUR FOLLOWING) AS c, max(r.x) OVER (ORDER BY r.at DESC RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL 3 HOURS FOLLOWING) AS e FROM r
SELECT r.id AS id, first_value(r.s) OVER (PARTITION BY r.b ORDER BY r.id) AS a, last_value(r.x) OVER (PARTITION BY r.b ORDER BY r.id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS c, nth_value(r.id, 2) OVER (ORDER BY r.id) AS e, ntile(5) OVER (ORDER BY r.id) AS f, percent_rank() OVER (ORDER BY r.y) AS g, cume_dist() OVER (PARTITION BY r.b ORDER BY r.x) AS h FROM r
-- sets of groups
SELECT r.k AS k, r.b AS b, count(*) AS n, sum(r.x) AS t FROM r GROUP BY ROLLUP (r.k, r.b)
SELECT r.k AS k, r.y AS y, max(r.k) AS m, coalesce(r.k, -1) AS c FROM r GROUP BY CUBE (r.k, r.y) HAVING count(*) > 1
SELECT r.k AS k, r.b AS b, count(*) AS n FROM r GROUP BY GROUPING SETS ((r.k), (r.k, r.b), ())
SELECT r.k AS k, count(*) AS n FROM r WHERE r.id < 0 GROUP BY GROUPING SETS ((r.k), ())
SELECT r.b AS b, r.k AS k, count(*) AS n FROM r GROUP BY r.b, ROLLUP (r.k)
-- times and texts
SELECT timestamp_seconds(floor(unix_timestamp(r.at) / 600) * 600) AS a, from_unixtime(unix_timestamp(r.at) div 60 * 60) AS c, date_format(r.at, 'EEEE, d MMMM yyyy h:mm a') AS e, date_format(r.day, 'yyyy/MM') AS f, r.id AS id FROM r
SELECT timestampdiff(HOUR, r.at, TIMESTAMP '2024-01-02 01:00:00') AS a, timestampdiff(DAY, TIMESTAMP '2024-01-02 01:00:00', r.at) AS c, timestampadd(MINUTE, 90, r.at) AS e, to_timestamp('2024-01-01 10:00:00') < r.at AS f, r.id AS id FROM r
SELECT r.s LIKE ANY ('a%', '_') AS a, r.s LIKE ALL ('a%', '%b%') AS c, r.s ILIKE 'B%' AS e, r.s NOT ILIKE '%A%' AS f, r.s REGEXP '^[a-z]+$' AS g, r.id AS id FROM r
SELECT regexp_extract('/shop/42?x=7', '^/([a-z]+)/(\\d+)', 2) AS a, split_part('a/b/c', '/', -1) AS c, substring_index('www.apache.org', '.', -2) AS e, r.id AS id FROM r
