SELECT
    w.seller,
    w.id,
    AVG(w.price) OVER (
        PARTITION BY w.seller ORDER BY w.expires, w.id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW
    ) AS average_price
FROM (
    SELECT a.id, a.seller, a.expires, MAX(b.price) AS price
    FROM auction AS a
    INNER JOIN bid AS b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.seller, a.expires
) AS w
