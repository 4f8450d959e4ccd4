/*---
description: Every trip once, without those that have no fare
partition_by: day(day)
---*/
SELECT DISTINCT trip_id, day, zone, fare_cents FROM landing.trips WHERE fare_cents IS NOT NULL
