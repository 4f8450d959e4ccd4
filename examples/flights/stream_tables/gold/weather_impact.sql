/*---
description: Delay by visibility and rain in the hour of departure
owners: [team:operations]
tags: {tier: gold}
---*/
SELECT
    a.name AS origin_name,
    CASE WHEN w.visibility < 2 THEN 'poor' WHEN w.visibility < 6 THEN 'reduced' ELSE 'good' END AS visibility,
    w.precipitation > 0 AS rain,
    COUNT(*) AS flights,
    SUM(CASE WHEN f.departure IS NULL THEN 1 ELSE 0 END) AS cancelled_flights,
    ROUND(AVG(f.departure_delay), 2) AS avg_departure_delay,
    MAX(w.wind_speed) AS strongest_wind
FROM flights f
JOIN weather w ON w.origin = f.origin AND w.observed_at = f.scheduled_hour
JOIN airports a ON a.code = w.origin
GROUP BY
    a.name,
    CASE WHEN w.visibility < 2 THEN 'poor' WHEN w.visibility < 6 THEN 'reduced' ELSE 'good' END,
    w.precipitation > 0
