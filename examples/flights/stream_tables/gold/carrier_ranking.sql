/*---
description: Carriers in order of their average delay; recomputed in full, it has one row per carrier
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
