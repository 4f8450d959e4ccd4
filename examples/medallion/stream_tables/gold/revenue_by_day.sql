/*---
description: Revenue per day, zone and kind of trip, from a model that dbt builds
partition_by: day(day)
---*/
SELECT day, zone, kind, count(*) AS trips, sum(fare) AS revenue FROM silver.trips GROUP BY day, zone, kind
