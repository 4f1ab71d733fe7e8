-- Work for SQLite in memory: inserts, an index, joins, groups and a recursive query.
CREATE TABLE item(id INTEGER PRIMARY KEY, kind INTEGER, name TEXT, price REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 350000)
  INSERT INTO item SELECT i, i * 7919 % 1009, printf('item %d', i * 31 % 65537), i % 997 * 0.25 FROM n;
CREATE INDEX by_kind ON item(kind, price);
SELECT kind % 10, count(*), round(avg(price), 3), max(name) FROM item GROUP BY kind % 10;
SELECT count(*), sum(a.price) FROM item a JOIN item b ON a.id = b.kind WHERE b.price > 100;
SELECT count(*) FROM item WHERE name LIKE '%77%' OR substr(name, 6, 2) = '42';
SELECT name, price FROM item ORDER BY name DESC, price LIMIT 5;
UPDATE item SET price = price * 1.01 WHERE kind BETWEEN 100 AND 500;
DELETE FROM item WHERE id % 3 = 0;
SELECT count(DISTINCT name), sum(length(name)) FROM item;
