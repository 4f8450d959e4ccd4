-- A new day: what flew on the same weekday a year before flies again, a few minutes earlier or later.
-- The session setting demo.day names the day.
BEGIN;
INSERT INTO weather
SELECT
    origin, observed_at + interval '364 days', temperature, dew_point, humidity, wind_direction, wind_speed, wind_gust,
    precipitation, pressure, visibility
FROM weather
WHERE (observed_at AT TIME ZONE 'America/New_York')::date = current_setting('demo.day')::date - 364
ON CONFLICT DO NOTHING;
COMMIT;

-- The flights come in one transaction per airport of departure.
CREATE OR REPLACE FUNCTION pg_temp.fly_from(airport text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO flights (
        flight_date, carrier, flight_number, tailnum, origin, dest, scheduled_hour, scheduled_departure, departure,
        departure_delay, scheduled_arrival, arrival, arrival_delay, air_time, distance
    )
    SELECT
        flight_date + 364, carrier, flight_number, tailnum, origin, dest,
        scheduled_hour + interval '364 days',
        scheduled_departure + interval '364 days',
        departure + interval '364 days' + make_interval(mins => shift),
        departure_delay + shift,
        scheduled_arrival, arrival, arrival_delay + shift, air_time, distance
    FROM flights CROSS JOIN LATERAL (SELECT (flight_id % 7)::integer - 3 AS shift)
    WHERE flight_date = current_setting('demo.day')::date - 364 AND origin = airport
    ORDER BY flight_id
$$;
BEGIN;
SELECT pg_temp.fly_from('EWR');
COMMIT;
BEGIN;
SELECT pg_temp.fly_from('JFK');
COMMIT;
BEGIN;
SELECT pg_temp.fly_from('LGA');
COMMIT;

-- A new aircraft enters the register and makes its first flight in one transaction.
BEGIN;
INSERT INTO planes (tailnum, year_built, kind, manufacturer, model, engines, seats, engine)
VALUES (
    'N' || to_char(current_setting('demo.day')::date, 'YYMMDD') || 'X',
    extract(year FROM current_setting('demo.day')::date), 'Fixed wing multi engine', 'BOMBARDIER INC', 'CS100', 2, 125,
    'Turbo-fan'
);
INSERT INTO flights (
    flight_date, carrier, flight_number, tailnum, origin, dest, scheduled_hour, scheduled_departure, departure,
    departure_delay, scheduled_arrival, arrival, arrival_delay, air_time, distance
)
SELECT
    day, 'B6', 9500, 'N' || to_char(day, 'YYMMDD') || 'X', 'JFK', 'BOS', day + time '15:00' AT TIME ZONE 'UTC',
    day + time '15:20' AT TIME ZONE 'UTC', day + time '15:24' AT TIME ZONE 'UTC', 4, '11:30', '11:31', 1, 38, 187
FROM (SELECT current_setting('demo.day')::date) AS today (day);
COMMIT;
