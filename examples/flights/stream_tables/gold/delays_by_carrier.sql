/*---
description: Punctuality of each carrier with at least 30 flights
owners: [team:operations]
tags: {tier: gold}
---*/
SELECT
    carrier,
    carrier_name,
    COUNT(*) AS flights,
    COUNT(departure) AS departed,
    SUM(CASE WHEN arrival_delay > 15 THEN 1 ELSE 0 END) AS late_arrivals,
    ROUND(AVG(departure_delay), 2) AS avg_departure_delay,
    ROUND(AVG(arrival_delay), 2) AS avg_arrival_delay,
    MIN(arrival_delay) AS earliest_arrival,
    MAX(arrival_delay) AS latest_arrival
FROM silver.flight_details
GROUP BY carrier, carrier_name
HAVING COUNT(*) >= 30
