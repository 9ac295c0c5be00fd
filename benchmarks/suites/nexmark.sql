-- The questions of NEXMark over its three streams. Query 10 writes files by day and minute; here it computes their names.
CREATE STREAM person (id BIGINT, name STRING, email STRING, card STRING, city STRING, state STRING, at TIMESTAMP,
  extra STRING) TIMESTAMP BY at;
CREATE STREAM auction (id BIGINT, item STRING, description STRING, initial BIGINT, reserve BIGINT, at TIMESTAMP,
  expires TIMESTAMP, seller BIGINT, category BIGINT, extra STRING) TIMESTAMP BY at;
CREATE STREAM bid (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, at TIMESTAMP, extra STRING)
  TIMESTAMP BY at;
CREATE TABLE side (key BIGINT, value STRING);

CREATE QUERY q00 AS SELECT auction, bidder, price, at, extra FROM bid;

CREATE QUERY q01 AS SELECT auction, bidder, 0.908 * price AS euros, at, extra FROM bid;

CREATE QUERY q02 AS SELECT auction, price FROM bid WHERE auction % 123 = 0;

CREATE QUERY q03 AS
SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

CREATE QUERY q04 AS
SELECT category, avg(final) AS price
FROM (
  SELECT a.id, a.category, max(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.at BETWEEN a.at AND a.expires GROUP BY a.id, a.category) AS closed
GROUP BY category;

CREATE QUERY q05 AS
WITH counts AS (
  SELECT window(at, '10 seconds', '2 seconds').start AS start, auction, count(*) AS bids FROM bid
  GROUP BY window(at, '10 seconds', '2 seconds'), auction),
best AS (SELECT start, max(bids) AS most FROM counts GROUP BY start)
SELECT c.start, c.auction, c.bids FROM counts c JOIN best m ON c.start = m.start AND c.bids = m.most;

CREATE QUERY q06 AS
SELECT seller, at, avg(final) OVER (PARTITION BY seller ORDER BY at ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS price
FROM (
  SELECT a.id, a.seller, b.at, b.price AS final,
    row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.at, b.bidder) AS place
  FROM auction a JOIN bid b ON a.id = b.auction WHERE b.at BETWEEN a.at AND a.expires) AS winners
WHERE place = 1;

CREATE QUERY q07 AS
SELECT b.auction, b.price, b.bidder, b.at, b.extra
FROM bid b JOIN (
  SELECT max(price) AS most, window(at, '10 seconds').end AS ends FROM bid GROUP BY window(at, '10 seconds')) AS w
  ON b.price = w.most
WHERE b.at BETWEEN w.ends - INTERVAL 10 SECONDS AND w.ends;

CREATE QUERY q08 AS
SELECT p.id, p.name, p.start
FROM (
    SELECT id, name, window(at, '10 seconds').start AS start FROM person
    GROUP BY id, name, window(at, '10 seconds')) AS p
  JOIN (
    SELECT seller, window(at, '10 seconds').start AS start FROM auction
    GROUP BY seller, window(at, '10 seconds')) AS a
  ON p.id = a.seller AND p.start = a.start;

CREATE QUERY q09 AS
SELECT id, item, seller, category, auction, bidder, price, bid_at
FROM (
  SELECT a.id, a.item, a.seller, a.category, b.auction, b.bidder, b.price, b.at AS bid_at,
    row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.at ASC, b.bidder) AS place
  FROM auction a JOIN bid b ON a.id = b.auction AND b.at BETWEEN a.at AND a.expires) AS bids
WHERE place = 1;

CREATE QUERY q10 AS
SELECT auction, bidder, price, at, extra, date_format(at, 'yyyy-MM-dd') AS day, date_format(at, 'HH:mm') AS minute
FROM bid;

CREATE QUERY q11 AS
SELECT bidder, count(*) AS bids, session_window.start AS began, session_window.end AS ended FROM bid
GROUP BY bidder, session_window(at, '10 seconds');

CREATE QUERY q12 AS
SELECT bidder, count(*) AS bids, window.start AS began, window.end AS ended FROM bid
GROUP BY bidder, window(at, '10 seconds');

CREATE QUERY q13 AS
SELECT b.auction, b.bidder, b.price, b.at, s.value FROM bid b JOIN side s ON b.auction % 10000 = s.key;

CREATE QUERY q14 AS
SELECT auction, bidder, 0.908 * price AS euros,
  CASE WHEN hour(at) >= 8 AND hour(at) <= 18 THEN 'day'
    WHEN hour(at) <= 6 OR hour(at) >= 20 THEN 'night' ELSE 'other' END AS part_of_day,
  at, length(extra) - length(replace(extra, 'c', '')) AS letters_c
FROM bid WHERE 0.908 * price > 100 AND 0.908 * price < 50000000;

CREATE QUERY q15 AS
SELECT date_format(at, 'yyyy-MM-dd') AS day, count(*) AS bids, count(*) FILTER (WHERE price < 10000) AS low,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle, count(*) FILTER (WHERE price >= 1000000) AS high,
  count(DISTINCT bidder) AS bidders, count(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
  count(DISTINCT auction) AS auctions, count(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions
FROM bid GROUP BY date_format(at, 'yyyy-MM-dd');

CREATE QUERY q16 AS
SELECT channel, date_format(at, 'yyyy-MM-dd') AS day, max(date_format(at, 'HH:mm')) AS minute, count(*) AS bids,
  count(*) FILTER (WHERE price < 10000) AS low, count(DISTINCT bidder) AS bidders,
  count(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
  count(DISTINCT auction) AS auctions
FROM bid GROUP BY channel, date_format(at, 'yyyy-MM-dd');

CREATE QUERY q17 AS
SELECT auction, date_format(at, 'yyyy-MM-dd') AS day, count(*) AS bids, count(*) FILTER (WHERE price < 10000) AS low,
  min(price) AS least, max(price) AS most, avg(price) AS mean, sum(price) AS total
FROM bid GROUP BY auction, date_format(at, 'yyyy-MM-dd');

CREATE QUERY q18 AS
SELECT auction, bidder, price, channel, at
FROM bid QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY at DESC, price DESC, channel) = 1;

CREATE QUERY q19 AS
SELECT * FROM (
  SELECT auction, bidder, price, at, row_number() OVER (PARTITION BY auction ORDER BY price DESC, at, bidder) AS place
  FROM bid) AS ranked
WHERE place <= 10;

CREATE QUERY q20 AS
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.at, a.item, a.description, a.initial, a.reserve, a.seller
FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10;

CREATE QUERY q21 AS
SELECT auction, bidder, price, channel,
  CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
    WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
    ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
  OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu');

CREATE QUERY q22 AS
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
  split_part(url, '/', 6) AS dir3
FROM bid;
