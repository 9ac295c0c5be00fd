-- The questions of TPC-H over its eight tables: orders and line items are streams here, the rest are tables.
CREATE TABLE region (r_regionkey BIGINT, r_name STRING, r_comment STRING);
CREATE TABLE nation (n_nationkey BIGINT, n_name STRING, n_regionkey BIGINT, n_comment STRING);
CREATE TABLE supplier (s_suppkey BIGINT, s_name STRING, s_address STRING, s_nationkey BIGINT, s_phone STRING,
  s_acctbal DECIMAL(15,2), s_comment STRING);
CREATE TABLE part (p_partkey BIGINT, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, p_size INT,
  p_container STRING, p_retailprice DECIMAL(15,2), p_comment STRING);
CREATE TABLE partsupp (ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INT, ps_supplycost DECIMAL(15,2),
  ps_comment STRING);
CREATE TABLE customer (c_custkey BIGINT, c_name STRING, c_address STRING, c_nationkey BIGINT, c_phone STRING,
  c_acctbal DECIMAL(15,2), c_mktsegment STRING, c_comment STRING);
CREATE STREAM orders (o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus STRING, o_totalprice DECIMAL(15,2),
  o_orderdate DATE, o_orderpriority STRING, o_clerk STRING, o_shippriority INT, o_comment STRING);
CREATE STREAM lineitem (l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT,
  l_quantity DECIMAL(15,2), l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), l_tax DECIMAL(15,2),
  l_returnflag STRING, l_linestatus STRING, l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE,
  l_shipinstruct STRING, l_shipmode STRING, l_comment STRING);

CREATE QUERY q01 AS
SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, sum(l_extendedprice) AS base,
  sum(l_extendedprice * (1 - l_discount)) AS discounted,
  sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS charged,
  avg(l_quantity) AS avg_quantity, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_discount, count(*) AS lines
FROM lineitem WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL 90 DAYS
GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus;

CREATE QUERY q02 AS
SELECT s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone
FROM part, supplier, partsupp, nation, region
WHERE p_partkey = ps_partkey AND s_suppkey = ps_suppkey AND p_size = 15 AND p_type LIKE '%BRASS'
  AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'EUROPE'
  AND ps_supplycost = (
    SELECT min(ps.ps_supplycost) FROM partsupp ps, supplier s, nation n, region r
    WHERE p_partkey = ps.ps_partkey AND s.s_suppkey = ps.ps_suppkey AND s.s_nationkey = n.n_nationkey
      AND n.n_regionkey = r.r_regionkey AND r.r_name = 'EUROPE')
ORDER BY s_acctbal DESC, n_name, s_name, p_partkey LIMIT 100;

CREATE QUERY q03 AS
SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
FROM customer, orders, lineitem
WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
  AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate LIMIT 10;

CREATE QUERY q04 AS
SELECT o_orderpriority, count(*) AS late FROM orders
WHERE o_orderdate >= DATE '1993-07-01' AND o_orderdate < DATE '1993-07-01' + INTERVAL 3 MONTHS
  AND EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate)
GROUP BY o_orderpriority ORDER BY o_orderpriority;

CREATE QUERY q05 AS
SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
  AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
  AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1994-01-01' + INTERVAL 1 YEAR
GROUP BY n_name ORDER BY revenue DESC;

CREATE QUERY q06 AS
SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1994-01-01' + INTERVAL 1 YEAR
  AND l_discount BETWEEN 0.06 - 0.01 AND 0.06 + 0.01 AND l_quantity < 24;

CREATE QUERY q07 AS
SELECT supplier_nation, customer_nation, shipped, sum(volume) AS revenue
FROM (
  SELECT a.n_name AS supplier_nation, b.n_name AS customer_nation, year(l_shipdate) AS shipped,
    l_extendedprice * (1 - l_discount) AS volume
  FROM supplier, lineitem, orders, customer, nation a, nation b
  WHERE s_suppkey = l_suppkey AND o_orderkey = l_orderkey AND c_custkey = o_custkey AND s_nationkey = a.n_nationkey
    AND c_nationkey = b.n_nationkey AND l_shipdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
    AND ((a.n_name = 'FRANCE' AND b.n_name = 'GERMANY') OR (a.n_name = 'GERMANY' AND b.n_name = 'FRANCE'))) AS shipping
GROUP BY supplier_nation, customer_nation, shipped ORDER BY supplier_nation, customer_nation, shipped;

CREATE QUERY q08 AS
SELECT ordered, sum(CASE WHEN nation = 'BRAZIL' THEN volume ELSE 0 END) / sum(volume) AS share
FROM (
  SELECT extract(YEAR FROM o_orderdate) AS ordered, l_extendedprice * (1 - l_discount) AS volume, b.n_name AS nation
  FROM part, supplier, lineitem, orders, customer, nation a, nation b, region
  WHERE p_partkey = l_partkey AND s_suppkey = l_suppkey AND l_orderkey = o_orderkey AND o_custkey = c_custkey
    AND c_nationkey = a.n_nationkey AND a.n_regionkey = r_regionkey AND r_name = 'AMERICA'
    AND s_nationkey = b.n_nationkey AND o_orderdate BETWEEN DATE '1995-01-01' AND DATE '1996-12-31'
    AND p_type = 'ECONOMY ANODIZED STEEL') AS every_nation
GROUP BY ordered ORDER BY ordered;

CREATE QUERY q09 AS
SELECT nation, ordered, sum(amount) AS profit
FROM (
  SELECT n_name AS nation, year(o_orderdate) AS ordered,
    l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity AS amount
  FROM part, supplier, lineitem, partsupp, orders, nation
  WHERE s_suppkey = l_suppkey AND ps_suppkey = l_suppkey AND ps_partkey = l_partkey AND p_partkey = l_partkey
    AND o_orderkey = l_orderkey AND s_nationkey = n_nationkey AND p_name LIKE '%green%') AS profits
GROUP BY nation, ordered ORDER BY nation, ordered DESC;

CREATE QUERY q10 AS
SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name, c_address, c_phone
FROM customer, orders, lineitem, nation
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DATE '1993-10-01'
  AND o_orderdate < DATE '1993-10-01' + INTERVAL 3 MONTHS AND l_returnflag = 'R' AND c_nationkey = n_nationkey
GROUP BY c_custkey, c_name, c_acctbal, c_phone, n_name, c_address ORDER BY revenue DESC LIMIT 20;

CREATE QUERY q11 AS
SELECT ps_partkey, sum(ps_supplycost * ps_availqty) AS value FROM partsupp, supplier, nation
WHERE ps_suppkey = s_suppkey AND s_nationkey = n_nationkey AND n_name = 'GERMANY'
GROUP BY ps_partkey
HAVING sum(ps_supplycost * ps_availqty) > (
  SELECT sum(p.ps_supplycost * p.ps_availqty) * 0.01 FROM partsupp p, supplier s, nation n
  WHERE p.ps_suppkey = s.s_suppkey AND s.s_nationkey = n.n_nationkey AND n.n_name = 'GERMANY')
ORDER BY value DESC;

CREATE QUERY q12 AS
SELECT l_shipmode, count_if(o_orderpriority IN ('1-URGENT', '2-HIGH')) AS high,
  sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low
FROM orders JOIN lineitem ON o_orderkey = l_orderkey
WHERE l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
  AND l_receiptdate >= DATE '1994-01-01' AND l_receiptdate < DATE '1994-01-01' + INTERVAL 1 YEAR
GROUP BY l_shipmode ORDER BY l_shipmode;

CREATE QUERY q13 AS
SELECT orders_of_one, count(*) AS customers
FROM (
  SELECT c_custkey, count(o_orderkey) AS orders_of_one
  FROM customer LEFT JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%requests%'
  GROUP BY c_custkey) AS counts
GROUP BY orders_of_one ORDER BY customers DESC, orders_of_one DESC;

CREATE QUERY q14 AS
SELECT 100.00 * sum(CASE WHEN p_type LIKE 'PROMO%' THEN l_extendedprice * (1 - l_discount) ELSE 0 END)
  / sum(l_extendedprice * (1 - l_discount)) AS promoted
FROM lineitem, part
WHERE l_partkey = p_partkey AND l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-09-01' + INTERVAL 1 MONTH;

CREATE QUERY q15 AS
WITH revenue AS (
  SELECT l_suppkey AS supplier_no, sum(l_extendedprice * (1 - l_discount)) AS total FROM lineitem
  WHERE l_shipdate >= DATE '1996-01-01' AND l_shipdate < DATE '1996-01-01' + INTERVAL 3 MONTHS
  GROUP BY l_suppkey)
SELECT s_suppkey, s_name, s_address, s_phone, total FROM supplier, revenue
WHERE s_suppkey = supplier_no AND total = (SELECT max(total) FROM revenue) ORDER BY s_suppkey;

CREATE QUERY q16 AS
SELECT p_brand, p_type, p_size, count(DISTINCT ps_suppkey) AS suppliers FROM partsupp, part
WHERE p_partkey = ps_partkey AND p_brand <> 'Brand#45' AND p_type NOT LIKE 'MEDIUM POLISHED%'
  AND p_size IN (49, 14, 23, 45, 19, 3, 36, 9)
  AND ps_suppkey NOT IN (SELECT s_suppkey FROM supplier WHERE s_comment LIKE '%Customer%Complaints%')
GROUP BY p_brand, p_type, p_size ORDER BY suppliers DESC, p_brand, p_type, p_size;

CREATE QUERY q17 AS
SELECT sum(l_extendedprice) / 7.0 AS yearly FROM lineitem, part
WHERE p_partkey = l_partkey AND p_brand = 'Brand#23' AND p_container = 'MED BOX'
  AND l_quantity < (SELECT 0.2 * avg(l.l_quantity) FROM lineitem l WHERE l.l_partkey = p_partkey);

CREATE QUERY q18 AS
SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
FROM customer, orders, lineitem
WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey HAVING sum(l_quantity) > 60)
  AND c_custkey = o_custkey AND o_orderkey = l_orderkey
GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice ORDER BY o_totalprice DESC, o_orderdate LIMIT 100;

CREATE QUERY q19 AS
SELECT sum(l_extendedprice * (1 - l_discount)) AS revenue FROM lineitem JOIN part ON p_partkey = l_partkey
WHERE l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON' AND (
  (p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX') AND l_quantity BETWEEN 1 AND 11 AND p_size < 6)
  OR (p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX') AND l_quantity BETWEEN 10 AND 20 AND p_size < 11)
  OR (p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX') AND l_quantity BETWEEN 20 AND 30 AND p_size < 16));

CREATE QUERY q20 AS
SELECT s_name, s_address FROM supplier, nation
WHERE s_suppkey IN (
    SELECT ps_suppkey FROM partsupp
    WHERE ps_partkey IN (SELECT p_partkey FROM part WHERE p_name LIKE 'forest%')
      AND ps_availqty > (
        SELECT 0.5 * sum(l_quantity) FROM lineitem
        WHERE l_partkey = ps_partkey AND l_suppkey = ps_suppkey AND l_shipdate >= DATE '1994-01-01'
          AND l_shipdate < DATE '1994-01-01' + INTERVAL 1 YEAR))
  AND s_nationkey = n_nationkey AND n_name = 'CANADA'
ORDER BY s_name;

CREATE QUERY q21 AS
SELECT s_name, count(*) AS waits FROM supplier, lineitem a, orders, nation
WHERE s_suppkey = a.l_suppkey AND o_orderkey = a.l_orderkey AND o_orderstatus = 'F'
  AND a.l_receiptdate > a.l_commitdate
  AND EXISTS (SELECT 1 FROM lineitem b WHERE b.l_orderkey = a.l_orderkey AND b.l_suppkey <> a.l_suppkey)
  AND NOT EXISTS (
    SELECT 1 FROM lineitem c
    WHERE c.l_orderkey = a.l_orderkey AND c.l_suppkey <> a.l_suppkey AND c.l_receiptdate > c.l_commitdate)
  AND s_nationkey = n_nationkey AND n_name = 'SAUDI ARABIA'
GROUP BY s_name ORDER BY waits DESC, s_name LIMIT 100;

CREATE QUERY q22 AS
SELECT code, count(*) AS customers, sum(c_acctbal) AS balance
FROM (
  SELECT substring(c_phone, 1, 2) AS code, c_acctbal FROM customer
  WHERE substring(c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17')
    AND c_acctbal > (
      SELECT avg(c.c_acctbal) FROM customer c
      WHERE c.c_acctbal > 0.00 AND substring(c.c_phone, 1, 2) IN ('13', '31', '23', '29', '30', '18', '17'))
    AND NOT EXISTS (SELECT * FROM orders WHERE o_custkey = c_custkey)) AS idle
GROUP BY code ORDER BY code;
