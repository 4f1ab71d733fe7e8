CREATE TABLE item(id INTEGER PRIMARY KEY, kind INTEGER, name TEXT, price REAL);
CREATE TABLE sale(id INTEGER PRIMARY KEY, item INTEGER, day INTEGER, pieces INTEGER);
CREATE INDEX sale_item ON sale(item);
WITH RECURSIVE n(i, r) AS (SELECT 1, 42 UNION ALL SELECT i + 1, (r * 1103515245 + 12345) % 2147483648 FROM n
  WHERE i < @rows / 10)
INSERT INTO item SELECT i, r % 17, printf('%x-%d', r, i), (r % 10000) / 100.0 FROM n;
WITH RECURSIVE n(i, r) AS (SELECT 1, 7 UNION ALL SELECT i + 1, (r * 1103515245 + 12345) % 2147483648 FROM n
  WHERE i < @rows)
INSERT INTO sale SELECT i, 1 + r % (@rows / 10), r / 65536 % 365, 1 + r % 5 FROM n;
SELECT kind, count(*), sum(pieces * price), max(name) FROM item JOIN sale ON sale.item = item.id
  GROUP BY kind ORDER BY 3 DESC LIMIT 5;
SELECT count(*) FROM item WHERE name LIKE '%a_-%7%' OR upper(name) LIKE 'F%';
SELECT day, sum(pieces) FROM sale WHERE day BETWEEN 100 AND 300 GROUP BY day HAVING sum(pieces) > 10 ORDER BY 2 DESC
  LIMIT 5;
UPDATE item SET price = price * 1.1 WHERE id IN (SELECT item FROM sale WHERE day % 7 = 3);
SELECT round(sum(price), 2), count(DISTINCT substr(name, 1, 3)) FROM item;
DELETE FROM sale WHERE pieces = 2 AND day % 2 = 1;
SELECT count(*), sum(day) FROM sale;
