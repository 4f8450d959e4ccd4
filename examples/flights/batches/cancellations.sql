-- Flights of the day before demo.day that were reported as flown did not fly.
BEGIN;
UPDATE flights
SET departure = NULL, departure_delay = NULL, arrival = NULL, arrival_delay = NULL, air_time = NULL, tailnum = NULL
WHERE flight_date = current_setting('demo.day')::date - 1 AND flight_id % 17 = 0;
COMMIT;

-- Others never existed: two of the day before in a hundred, and the earliest ones of a small carrier.
BEGIN;
DELETE FROM flights WHERE flight_date = current_setting('demo.day')::date - 1 AND flight_id % 50 = 1;
DELETE FROM flights WHERE flight_id IN (SELECT flight_id FROM flights WHERE carrier = 'OO' ORDER BY flight_id LIMIT 3);
COMMIT;

-- A reader must never see the inside of this transaction: it takes back all it did.
BEGIN;
UPDATE flights SET arrival_delay = arrival_delay + 600 WHERE flight_date = current_setting('demo.day')::date;
DELETE FROM weather WHERE observed_at > current_setting('demo.day')::date + time '12:00';
ROLLBACK;
