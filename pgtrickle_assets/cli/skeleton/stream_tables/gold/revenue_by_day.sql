/*---
description: Revenue per day and region
partition_by: day(order_date)
---*/
SELECT
    order_date,
    region,
    COUNT(*) AS order_lines,
    SUM(amount) AS revenue
FROM silver.order_details
GROUP BY order_date, region
