SELECT b.auction, b.price, b.bidder, b.date_time, m.window_number
FROM bid AS b
INNER JOIN (
    SELECT MAX(price) AS max_price, FLOOR(EXTRACT(EPOCH FROM date_time) / 10) AS window_number
    FROM bid
    GROUP BY FLOOR(EXTRACT(EPOCH FROM date_time) / 10)
) AS m ON b.price = m.max_price AND FLOOR(EXTRACT(EPOCH FROM b.date_time) / 10) = m.window_number
