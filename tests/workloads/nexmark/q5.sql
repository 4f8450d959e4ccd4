WITH hops AS (
    -- Windows of ten seconds, one every two seconds: each bid is in five of them.
    SELECT b.auction, FLOOR(EXTRACT(EPOCH FROM b.date_time) / 2) - k.hop AS window_number
    FROM bid AS b
    CROSS JOIN (VALUES (0), (1), (2), (3), (4)) AS k (hop)
),
counted AS (
    SELECT window_number, auction, COUNT(*) AS bids FROM hops GROUP BY window_number, auction
)
SELECT c.window_number, c.auction, c.bids
FROM counted AS c
INNER JOIN (SELECT window_number, MAX(bids) AS most FROM counted GROUP BY window_number) AS m
    ON m.window_number = c.window_number AND c.bids >= m.most
