-- What people ask of streams: counts by time, last values, top ones, sessions, outliers, funnels, joins with tables.
CREATE STREAM clicks (user_id BIGINT, page STRING, referrer STRING, ip STRING, country STRING, ms INT, status INT,
  bytes BIGINT, at TIMESTAMP) TIMESTAMP BY at;
CREATE STREAM readings (device STRING, room STRING, temperature DOUBLE, humidity DOUBLE, battery FLOAT, ok BOOLEAN,
  at TIMESTAMP) TIMESTAMP BY at;
CREATE STREAM trades (id BIGINT, symbol STRING, side STRING, price DECIMAL(12,4), size INT, at TIMESTAMP) TIMESTAMP BY at;
CREATE STREAM events (id BIGINT, kind STRING, user_id BIGINT, epoch_ms BIGINT, amount DOUBLE, tags STRING, body STRING,
  at TIMESTAMP) TIMESTAMP BY at;
CREATE TABLE devices (device STRING, room STRING, low DOUBLE, high DOUBLE, since DATE);
CREATE TABLE users (id BIGINT, name STRING, plan STRING, born DATE, country STRING);

-- counts by time
CREATE QUERY per_minute AS SELECT date_trunc('minute', at) AS minute, count(*) AS n FROM clicks GROUP BY date_trunc('minute', at);
CREATE QUERY ten_minutes AS SELECT floor(unix_timestamp(at) / 600) * 600 AS slot, count(*) AS n FROM clicks GROUP BY floor(unix_timestamp(at) / 600) * 600;
CREATE QUERY ten_minutes_div AS SELECT unix_timestamp(at) div 600 AS slot, sum(bytes) AS bytes FROM clicks GROUP BY unix_timestamp(at) div 600;
CREATE QUERY ten_minutes_time AS SELECT timestamp_seconds(floor(unix_timestamp(at) / 600) * 600) AS slot, avg(ms) AS ms FROM clicks GROUP BY timestamp_seconds(floor(unix_timestamp(at) / 600) * 600);
CREATE QUERY ten_minutes_mod AS SELECT unix_seconds(at) - unix_seconds(at) % 600 AS slot, max(ms) AS ms FROM clicks GROUP BY unix_seconds(at) - unix_seconds(at) % 600;
CREATE QUERY quarter_hours AS SELECT date_trunc('hour', at) AS hour, floor(minute(at) / 15) AS quarter, count(*) AS n FROM clicks GROUP BY date_trunc('hour', at), floor(minute(at) / 15);
CREATE QUERY tumbling AS SELECT window.start AS start, country, count(*) AS n FROM clicks GROUP BY window(at, '5 minutes'), country;
CREATE QUERY hopping AS SELECT window.start AS start, avg(temperature) AS mean FROM readings GROUP BY window(at, '10 minutes', '5 minutes');
CREATE QUERY visits AS SELECT user_id, session_window.start AS began, count(*) AS pages, max(at) AS last FROM clicks GROUP BY user_id, session_window(at, '30 minutes');
CREATE QUERY by_day_text AS SELECT date_format(at, 'yyyy-MM-dd') AS day, count(DISTINCT user_id) AS users FROM clicks GROUP BY date_format(at, 'yyyy-MM-dd');
CREATE QUERY by_hour_text AS SELECT date_format(at, 'yyyy-MM-dd HH:00') AS hour, count(*) AS n FROM clicks GROUP BY date_format(at, 'yyyy-MM-dd HH:00');
CREATE QUERY by_weekday AS SELECT date_format(at, 'EEEE') AS weekday, hour(at) AS hour, count(*) AS n FROM clicks GROUP BY date_format(at, 'EEEE'), hour(at);
CREATE QUERY by_month AS SELECT trunc(at, 'MM') AS month, sum(amount) AS amount FROM events GROUP BY trunc(at, 'MM');
CREATE QUERY by_week AS SELECT extract(WEEK FROM at) AS week, year(at) AS year, count(*) AS n FROM clicks GROUP BY extract(WEEK FROM at), year(at);
CREATE QUERY from_epoch AS SELECT id, timestamp_millis(epoch_ms) AS made, at FROM events;
CREATE QUERY behind AS SELECT kind, avg(unix_millis(at) - epoch_ms) AS ms_behind, max(unix_millis(at) - epoch_ms) AS most FROM events GROUP BY kind;
CREATE QUERY epoch_text AS SELECT id, from_unixtime(epoch_ms div 1000) AS made, from_unixtime(epoch_ms div 1000, 'HH:mm') AS minute FROM events;
CREATE QUERY seconds_between AS SELECT a.id, timestampdiff(SECOND, a.at, b.at) AS seconds FROM events a JOIN events b ON a.user_id = b.user_id WHERE a.kind = 'cart' AND b.kind = 'buy' AND b.at > a.at;
CREATE QUERY in_an_hour AS SELECT id, timestampadd(HOUR, 1, at) AS due, at + INTERVAL 1 DAY AS later, make_date(year(at), month(at), 1) AS month FROM events;

-- last values, first values
CREATE QUERY latest AS SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY device ORDER BY at DESC, temperature) AS place FROM readings) AS r WHERE place = 1;
CREATE QUERY latest_by AS SELECT device, max_by(temperature, at) AS temperature, max(at) AS at FROM readings GROUP BY device;
CREATE QUERY open_close AS SELECT symbol, date_trunc('minute', at) AS minute, min_by(price, struct(at, id)) AS open, max(price) AS high, min(price) AS low, max_by(price, struct(at, id)) AS close, sum(size) AS volume FROM trades GROUP BY symbol, date_trunc('minute', at);
CREATE QUERY first_of_day AS SELECT DISTINCT device, to_date(at) AS day, first_value(temperature) OVER (PARTITION BY device, to_date(at) ORDER BY at, temperature) AS first FROM readings;
CREATE QUERY qualified AS SELECT device, temperature, at FROM readings QUALIFY row_number() OVER (PARTITION BY device ORDER BY at DESC, temperature) = 1;
CREATE QUERY deduplicated AS SELECT DISTINCT user_id, page FROM clicks;

-- sums, shares, spread
CREATE QUERY vwap AS SELECT symbol, sum(price * size) / sum(size) AS vwap, count(*) AS trades FROM trades GROUP BY symbol;
CREATE QUERY error_rate AS SELECT page, avg(CASE WHEN status >= 500 THEN 1.0 ELSE 0.0 END) AS rate FROM clicks GROUP BY page HAVING count(*) > 2;
CREATE QUERY error_share AS SELECT page, count_if(status >= 500) / count(*) AS share, round(100 * count_if(status >= 400) / count(*), 2) AS percent FROM clicks GROUP BY page;
CREATE QUERY spread AS SELECT room, avg(temperature) AS mean, stddev(temperature) AS deviation, variance(humidity) AS variance FROM readings GROUP BY room;
CREATE QUERY spread_pop AS SELECT room, stddev_pop(temperature) AS deviation, var_pop(temperature) AS variance FROM readings GROUP BY room;
CREATE QUERY related AS SELECT room, corr(temperature, humidity) AS correlation, covar_samp(temperature, humidity) AS covariance FROM readings GROUP BY room;
CREATE QUERY slow_pages AS SELECT page, percentile(ms, 0.95) AS p95, median(ms) AS p50 FROM clicks GROUP BY page;
CREATE QUERY slow_pages_within AS SELECT page, percentile_cont(0.99) WITHIN GROUP (ORDER BY ms) AS p99 FROM clicks GROUP BY page;
CREATE QUERY slow_pages_approx AS SELECT page, approx_percentile(ms, 0.95) AS p95 FROM clicks GROUP BY page;
CREATE QUERY visitors AS SELECT country, approx_count_distinct(user_id) AS visitors FROM clicks GROUP BY country;
CREATE QUERY outliers AS SELECT r.device, r.temperature, r.at FROM readings r JOIN (SELECT device, avg(temperature) AS mean, stddev(temperature) AS deviation FROM readings GROUP BY device) AS s ON r.device = s.device WHERE abs(r.temperature - s.mean) > 1.5 * s.deviation;
CREATE QUERY norm AS SELECT device, sqrt(avg(power(temperature, 2))) AS rms FROM readings GROUP BY device;
CREATE QUERY histogram AS SELECT width_bucket(ms, 0, 1000, 10) AS bucket, count(*) AS n FROM clicks GROUP BY width_bucket(ms, 0, 1000, 10);
CREATE QUERY growth AS SELECT symbol, ln(max(price) / min(price)) AS change FROM trades GROUP BY symbol;
CREATE QUERY subtotals AS SELECT country, status, count(*) AS n FROM clicks GROUP BY ROLLUP (country, status);
CREATE QUERY two_ways AS SELECT country, page, count(*) AS n FROM clicks GROUP BY GROUPING SETS ((country), (page), ());

-- lists
CREATE QUERY pages_of_user AS SELECT user_id, string_agg(page, ' > ') WITHIN GROUP (ORDER BY at, page) AS path FROM clicks GROUP BY user_id;
CREATE QUERY pages_listed AS SELECT user_id, listagg(DISTINCT page, ',') WITHIN GROUP (ORDER BY page) AS pages FROM clicks GROUP BY user_id;
CREATE QUERY pages_array AS SELECT user_id, sort_array(collect_set(page)) AS pages FROM clicks GROUP BY user_id;
CREATE QUERY pages_joined AS SELECT user_id, array_join(sort_array(collect_list(page)), ',') AS pages FROM clicks GROUP BY user_id;
CREATE QUERY tag_counts AS SELECT tag, count(*) AS n FROM events LATERAL VIEW explode(split(tags, ',')) t AS tag GROUP BY tag;

-- top ones, running values
CREATE QUERY top_pages AS SELECT page, count(*) AS n FROM clicks GROUP BY page ORDER BY n DESC, page LIMIT 10;
CREATE QUERY top_by_country AS SELECT country, page, n FROM (SELECT country, page, n, rank() OVER (PARTITION BY country ORDER BY n DESC) AS place FROM (SELECT country, page, count(*) AS n FROM clicks GROUP BY country, page) AS c) AS r WHERE place <= 3;
CREATE QUERY top_over_groups AS SELECT country, page, count(*) AS n, rank() OVER (PARTITION BY country ORDER BY count(*) DESC) AS place FROM clicks GROUP BY country, page;
CREATE QUERY share_of_all AS SELECT country, sum(bytes) AS bytes, 100.0 * sum(bytes) / sum(sum(bytes)) OVER () AS percent FROM clicks GROUP BY country;
CREATE QUERY moving AS SELECT device, at, avg(temperature) OVER (PARTITION BY device ORDER BY at ROWS BETWEEN 4 PRECEDING AND CURRENT ROW) AS mean FROM readings;
CREATE QUERY moving_time AS SELECT device, at, avg(temperature) OVER (PARTITION BY device ORDER BY at RANGE BETWEEN INTERVAL '10' MINUTES PRECEDING AND CURRENT ROW) AS mean FROM readings;
CREATE QUERY change AS SELECT symbol, at, price - lag(price) OVER (PARTITION BY symbol ORDER BY at, id) AS change FROM trades;
CREATE QUERY next_page AS SELECT user_id, page, lead(page) OVER (PARTITION BY user_id ORDER BY at, page) AS next FROM clicks;
CREATE QUERY running AS SELECT user_id, at, sum(amount) OVER (PARTITION BY user_id ORDER BY at, id) AS total FROM events;
CREATE QUERY quarters AS SELECT user_id, ntile(4) OVER (ORDER BY total DESC, user_id) AS quarter FROM (SELECT user_id, sum(amount) AS total FROM events GROUP BY user_id) AS t;
CREATE QUERY ranked AS SELECT device, temperature, percent_rank() OVER (PARTITION BY room ORDER BY temperature) AS percent FROM readings;
CREATE QUERY gaps AS SELECT device, at, unix_seconds(at) - unix_seconds(lag(at) OVER (PARTITION BY device ORDER BY at)) AS silent FROM readings;

-- texts
CREATE QUERY hosts AS SELECT split_part(referrer, '/', 3) AS host, count(*) AS n FROM clicks GROUP BY split_part(referrer, '/', 3);
CREATE QUERY hosts_index AS SELECT substring_index(page, '/', 2) AS section, count(*) AS n FROM clicks GROUP BY substring_index(page, '/', 2);
CREATE QUERY networks AS SELECT regexp_extract(ip, '^([0-9]+)[.]([0-9]+)', 0) AS network, count(*) AS n FROM clicks GROUP BY regexp_extract(ip, '^([0-9]+)[.]([0-9]+)', 0);
CREATE QUERY masked AS SELECT regexp_replace(ip, '[0-9]+', 'x') AS ip, page FROM clicks;
CREATE QUERY bots AS SELECT count(*) AS n FROM clicks WHERE page RLIKE '^/(robots|feed)[.]' OR page LIKE '%.xml';
CREATE QUERY shouting AS SELECT initcap(plan) AS plan, reverse(name) AS backwards, lpad(CAST(id AS STRING), 8, '0') AS code FROM users;
CREATE QUERY any_of AS SELECT page FROM clicks WHERE page LIKE ANY ('/a%', '/b%');
CREATE QUERY either_case AS SELECT page FROM clicks WHERE page ILIKE '%Shop%';
CREATE QUERY fields AS SELECT get_json_object(body, '$.city') AS city, count(*) AS n FROM events GROUP BY get_json_object(body, '$.city');
CREATE QUERY hashed AS SELECT sha2(CAST(user_id AS STRING), 256) AS who, page FROM clicks;

-- joins with tables, and of streams
CREATE QUERY too_hot AS SELECT r.device, r.temperature, d.high FROM readings r JOIN devices d ON r.device = d.device WHERE r.temperature > d.high;
CREATE QUERY unknown_devices AS SELECT DISTINCT r.device FROM readings r LEFT JOIN devices d ON r.device = d.device WHERE d.device IS NULL;
CREATE QUERY silent AS SELECT d.device FROM devices d WHERE NOT EXISTS (SELECT 1 FROM readings r WHERE r.device = d.device);
CREATE QUERY ages AS SELECT floor(months_between(DATE '2026-01-01', u.born) / 12) AS age, count(*) AS n FROM clicks c JOIN users u ON c.user_id = u.id GROUP BY floor(months_between(DATE '2026-01-01', u.born) / 12);
CREATE QUERY funnel AS SELECT count(DISTINCT v.user_id) AS viewed, count(DISTINCT b.user_id) AS bought FROM events v LEFT JOIN events b ON v.user_id = b.user_id AND b.kind = 'buy' AND b.at > v.at WHERE v.kind = 'view';
CREATE QUERY either AS SELECT user_id, at FROM clicks UNION ALL SELECT user_id, at FROM events;
CREATE QUERY missed AS SELECT user_id FROM clicks EXCEPT SELECT user_id FROM events WHERE kind = 'buy';
CREATE QUERY pairs_in AS SELECT c.page FROM clicks c WHERE (c.user_id, c.country) IN (SELECT u.id, u.country FROM users u);
CREATE QUERY by_side AS SELECT * FROM (SELECT symbol, side, size FROM trades) PIVOT (sum(size) FOR side IN ('buy', 'sell'));

-- alerts
CREATE QUERY brute_force AS SELECT ip, count(*) AS tries FROM clicks WHERE status = 401 GROUP BY ip HAVING count(*) > 2;
CREATE QUERY bad_values AS SELECT device, at, nvl(temperature, -273.15) AS temperature FROM readings WHERE temperature IS NULL OR isnan(temperature) OR NOT ok;
CREATE QUERY levels AS SELECT device, CASE WHEN battery < 0.1 THEN 'empty' WHEN battery < 0.3 THEN 'low' ELSE 'good' END AS level, count(*) AS n FROM readings GROUP BY 1, 2;
CREATE QUERY all_fine AS SELECT room, bool_and(ok) AS fine, any_value(device) IS NOT NULL AS some FROM readings GROUP BY room;
CREATE QUERY flags AS SELECT user_id, bit_or(status) AS bits FROM clicks GROUP BY user_id;
