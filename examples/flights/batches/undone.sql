-- Work that comes to nothing: a transaction that takes back, statement by statement, what it did. It commits, so its
-- changes are captured, and they add up to none.
BEGIN;
CREATE TEMPORARY TABLE kept_flights ON COMMIT DROP AS
SELECT * FROM flights WHERE flight_date = current_setting('demo.day')::date - 1 AND carrier IN ('HA', 'VX');
CREATE TEMPORARY TABLE kept_weather ON COMMIT DROP AS
SELECT * FROM weather WHERE origin = 'LGA' ORDER BY observed_at DESC LIMIT 6;

INSERT INTO planes (tailnum) VALUES ('N0UNDO');
UPDATE flights SET tailnum = 'N0UNDO', dest = 'BOS' WHERE flight_id IN (SELECT flight_id FROM kept_flights);
UPDATE airports SET name = upper(name) || '?' WHERE code = 'JFK';
DELETE FROM weather WHERE (origin, observed_at) IN (SELECT origin, observed_at FROM kept_weather);

INSERT INTO weather SELECT * FROM kept_weather;
UPDATE airports SET name = 'John F Kennedy Intl' WHERE code = 'JFK';
UPDATE flights SET tailnum = kept.tailnum, dest = kept.dest FROM kept_flights AS kept WHERE flights.flight_id = kept.flight_id;
DELETE FROM planes WHERE tailnum = 'N0UNDO';
COMMIT;

-- A column that no stream table reads.
BEGIN;
UPDATE planes SET cruising_speed = coalesce(cruising_speed, 400) + 1 WHERE tailnum < 'N11';
COMMIT;
