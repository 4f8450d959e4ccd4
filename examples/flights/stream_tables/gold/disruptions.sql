/*---
partition_by: value(kind, [cancelled, delayed])
description: Flights to look at, cancelled ones and those that left three hours late or more
owners: [team:operations]
tags: {tier: gold}
---*/
SELECT 'cancelled' AS kind, flight_date, carrier_name, flight_number, origin, dest, NULL::integer AS minutes_late
FROM silver.flight_details
WHERE cancelled
UNION ALL
SELECT 'delayed' AS kind, flight_date, carrier_name, flight_number, origin, dest, departure_delay AS minutes_late
FROM silver.flight_details
WHERE departure_delay >= 180
