/*---
partition_by: month(flight_date)
partition_start: 2013-01-01
partition_end: 2016-01-01
description: Every flight with the names of its carrier and of both airports
owners: [team:operations]
tags: {tier: silver}
---*/
SELECT
    f.flight_id,
    f.flight_date,
    f.carrier,
    l.name AS carrier_name,
    f.flight_number,
    f.tailnum,
    f.origin,
    o.name AS origin_name,
    f.dest,
    d.name AS dest_name,
    d.latitude AS dest_latitude,
    d.longitude AS dest_longitude,
    f.scheduled_departure,
    f.departure,
    f.departure_delay,
    f.arrival_delay,
    f.air_time,
    f.distance,
    f.departure IS NULL AS cancelled
FROM flights f
JOIN airlines l ON l.carrier = f.carrier
JOIN airports o ON o.code = f.origin
JOIN airports d ON d.code = f.dest
