SELECT id, item_name, initial_bid, reserve, expires, seller, category, bidder, price, bid_time
FROM (
    SELECT
        a.*,
        b.bidder,
        b.price,
        b.date_time AS bid_time,
        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) AS position
    FROM auction AS a
    INNER JOIN bid AS b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
) AS ranked
WHERE position = 1
