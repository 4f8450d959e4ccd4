/*---
description: Traffic and delay of each route
owners: [team:network]
tags: {tier: gold}
---*/
SELECT
    origin,
    origin_name,
    dest,
    dest_name,
    COUNT(*) AS flights,
    SUM(distance) AS total_distance,
    ROUND(AVG(air_time), 2) AS avg_air_time,
    MIN(air_time) AS shortest_air_time,
    MAX(air_time) AS longest_air_time,
    ROUND(AVG(arrival_delay), 2) AS avg_arrival_delay
FROM silver.flight_details
GROUP BY origin, origin_name, dest, dest_name
