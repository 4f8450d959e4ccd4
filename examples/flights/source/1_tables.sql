-- What an airline's operations system would keep. Keys and indexes follow in 3_keys.sql, after the rows are in.
CREATE TABLE airlines (
    carrier text NOT NULL,
    name text NOT NULL
);

-- The data set has no entry for four airports that flights go to (BQN, PSE, SJU, STT). Foreign keys want one, so they
-- get a row that says what is known, the code, and leaves the rest NULL.
CREATE TABLE airports (
    code text NOT NULL,
    name text NOT NULL,
    latitude numeric(10, 7),
    longitude numeric(10, 7),
    altitude_feet integer,
    utc_offset smallint,
    time_zone text
);

-- The same for 721 aircraft that fly but are not in the register.
CREATE TABLE planes (
    tailnum text NOT NULL,
    year_built smallint,
    kind text,
    manufacturer text,
    model text,
    engines smallint,
    seats smallint,
    cruising_speed smallint,
    engine text
);

CREATE TABLE weather (
    origin text NOT NULL,
    observed_at timestamptz NOT NULL,
    temperature numeric(6, 2),
    dew_point numeric(6, 2),
    humidity numeric(5, 2),
    wind_direction smallint,
    wind_speed numeric(9, 5),
    wind_gust numeric(9, 5),
    precipitation numeric(4, 2) NOT NULL,
    pressure numeric(6, 1),
    visibility numeric(4, 2) NOT NULL
);

-- A flight without a departure was cancelled; one without a tail number never got an aircraft. Delays and durations are
-- minutes, distances are miles, arrivals are local times of the destination.
CREATE TABLE flights (
    flight_id bigint GENERATED ALWAYS AS IDENTITY,
    flight_date date NOT NULL,
    carrier text NOT NULL,
    flight_number integer NOT NULL,
    tailnum text,
    origin text NOT NULL,
    dest text NOT NULL,
    scheduled_hour timestamptz NOT NULL,
    scheduled_departure timestamptz NOT NULL,
    departure timestamptz,
    departure_delay integer,
    scheduled_arrival time NOT NULL,
    arrival time,
    arrival_delay integer,
    air_time integer,
    distance integer NOT NULL
);

-- The files as they are, for the time of the load.
CREATE TEMPORARY TABLE file_airlines (carrier text, name text) ON COMMIT DROP;
CREATE TEMPORARY TABLE file_airports (
    faa text, name text, lat numeric, lon numeric, alt integer, tz smallint, dst text, tzone text
) ON COMMIT DROP;
CREATE TEMPORARY TABLE file_planes (
    tailnum text, year smallint, type text, manufacturer text, model text, engines smallint, seats smallint,
    speed smallint, engine text
) ON COMMIT DROP;
CREATE TEMPORARY TABLE file_weather (
    origin text, year integer, month integer, day integer, hour integer, temp numeric, dewp numeric, humid numeric,
    wind_dir smallint, wind_speed numeric, wind_gust numeric, precip numeric, pressure numeric, visib numeric,
    time_hour timestamptz
) ON COMMIT DROP;
CREATE TEMPORARY TABLE file_flights (
    year integer, month integer, day integer, dep_time integer, sched_dep_time integer, dep_delay integer,
    arr_time integer, sched_arr_time integer, arr_delay integer, carrier text, flight integer, tailnum text, origin text,
    dest text, air_time integer, distance integer, hour integer, minute integer, time_hour timestamptz
) ON COMMIT DROP;
