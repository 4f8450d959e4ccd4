/*---
partition_by: day(flight_date)
partition_start: 2013-01-01
partition_end: 2016-01-01
description: Departures, cancellations and delays per day and airport of departure
owners: [team:operations]
tags: {tier: gold}
---*/
SELECT
    flight_date,
    origin,
    COUNT(*) AS flights,
    SUM(CASE WHEN cancelled THEN 1 ELSE 0 END) AS cancelled_flights,
    SUM(CASE WHEN arrival_delay <= 15 THEN 1 ELSE 0 END) AS on_time,
    ROUND(AVG(departure_delay), 2) AS avg_departure_delay,
    MAX(departure_delay) AS worst_departure_delay
FROM silver.flight_details
GROUP BY flight_date, origin
