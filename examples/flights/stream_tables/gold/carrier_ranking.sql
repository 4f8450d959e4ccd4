/*---
description: Carriers in order of their average delay
owners: [team:operations]
tags: {tier: gold}
---*/
SELECT
    RANK() OVER (ORDER BY avg_arrival_delay, carrier) AS place,
    carrier,
    carrier_name,
    avg_arrival_delay,
    flights
FROM gold.delays_by_carrier
