INSERT INTO airlines SELECT carrier, name FROM file_airlines;

INSERT INTO airports SELECT faa, name, lat, lon, alt, tz, tzone FROM file_airports;
INSERT INTO airports (code, name)
SELECT DISTINCT dest, 'Airport ' || dest FROM file_flights WHERE dest NOT IN (SELECT faa FROM file_airports);

INSERT INTO planes SELECT tailnum, year, type, manufacturer, model, engines, seats, speed, engine FROM file_planes;
INSERT INTO planes (tailnum)
SELECT DISTINCT tailnum FROM file_flights
WHERE tailnum IS NOT NULL AND tailnum NOT IN (SELECT tailnum FROM file_planes);

INSERT INTO weather
SELECT origin, time_hour, temp, dewp, humid, wind_dir, wind_speed, wind_gust, precip, pressure, visib FROM file_weather;

-- The files write a time of day as hhmm, midnight at the end of a day as 2400.
INSERT INTO flights (
    flight_date, carrier, flight_number, tailnum, origin, dest, scheduled_hour, scheduled_departure, departure,
    departure_delay, scheduled_arrival, arrival, arrival_delay, air_time, distance
)
SELECT
    make_date(year, month, day), carrier, flight, tailnum, origin, dest, time_hour,
    time_hour + make_interval(mins => minute),
    time_hour + make_interval(mins => minute + dep_delay),
    dep_delay,
    make_time(sched_arr_time / 100 % 24, sched_arr_time % 100, 0),
    make_time(arr_time / 100 % 24, arr_time % 100, 0),
    arr_delay, air_time, distance
FROM file_flights
ORDER BY year, month, day, time_hour, carrier, flight, origin;
