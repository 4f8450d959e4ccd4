/*---
description: Which carrier serves which route
owners: [team:network]
tags: {tier: gold}
---*/
SELECT DISTINCT carrier, carrier_name, origin, dest
FROM silver.flight_details
