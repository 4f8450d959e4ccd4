-- Corrections to what was reported before demo.day.
-- Delays of the day before were under-reported, and a few of old days too.
BEGIN;
UPDATE flights
SET departure = departure + interval '10 minutes', departure_delay = departure_delay + 10,
    arrival = arrival + interval '10 minutes', arrival_delay = arrival_delay + 10
WHERE departure IS NOT NULL
    AND (
        (flight_date = current_setting('demo.day')::date - 1 AND flight_id % 5 = 0)
        OR flight_id % 9001 = extract(doy FROM current_setting('demo.day')::date)::integer
    );
COMMIT;

-- Aircraft changed hands: the day before, each of some flights flew with the aircraft of the next one.
BEGIN;
UPDATE flights
SET tailnum = swapped.tailnum
FROM (
    SELECT
        flight_id,
        coalesce(
            lead(tailnum) OVER (PARTITION BY carrier ORDER BY flight_id),
            first_value(tailnum) OVER (PARTITION BY carrier ORDER BY flight_id)
        ) AS tailnum
    FROM flights
    WHERE flight_date = current_setting('demo.day')::date - 1 AND flight_id % 11 = 0 AND tailnum IS NOT NULL
) AS swapped
WHERE flights.flight_id = swapped.flight_id;
COMMIT;

-- Diverted: flights to Washington came down in Baltimore.
BEGIN;
UPDATE flights
SET dest = 'BWI', distance = distance - 30, arrival_delay = arrival_delay + 45
WHERE flight_date = current_setting('demo.day')::date - 1 AND dest = 'DCA' AND departure IS NOT NULL AND flight_id % 2 = 0;
COMMIT;
