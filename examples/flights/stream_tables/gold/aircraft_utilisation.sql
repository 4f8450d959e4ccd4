/*---
description: What each carrier flies, by manufacturer; NULL where the register does not know the aircraft
owners: [team:fleet]
tags: {tier: gold}
---*/
SELECT
    p.manufacturer,
    l.name AS carrier_name,
    COUNT(*) AS flights,
    SUM(f.air_time) AS minutes_in_the_air,
    SUM(f.distance) AS total_distance,
    SUM(p.seats) AS seats_offered,
    MIN(p.year_built) AS oldest,
    MAX(p.year_built) AS newest
FROM flights f
JOIN planes p ON p.tailnum = f.tailnum
JOIN airlines l ON l.carrier = f.carrier
GROUP BY p.manufacturer, l.name
