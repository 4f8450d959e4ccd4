/*---
description: Each order line with its order and customer
---*/
SELECT
    o.id AS order_id,
    l.line,
    o.order_date,
    c.name AS customer,
    c.region,
    l.quantity * l.price AS amount
FROM orders o
JOIN customers c ON c.id = o.customer_id
JOIN order_lines l ON l.order_id = o.id
