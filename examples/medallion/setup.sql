-- Tables that others than pgtrickle write. They are there, empty, before the first stream table reads them.
CREATE SCHEMA IF NOT EXISTS lake.landing;
CREATE SCHEMA IF NOT EXISTS lake.silver;
CREATE TABLE IF NOT EXISTS lake.landing.trips (trip_id BIGINT, day DATE, zone VARCHAR, fare_cents INTEGER);
ALTER TABLE lake.landing.trips SET PARTITIONED BY (day);
CREATE TABLE IF NOT EXISTS lake.silver.trips (
    trip_id BIGINT, day DATE, zone VARCHAR, kind VARCHAR, fare DECIMAL(10, 2)
);
