SELECT p.id, p.name, p.window_number
FROM (
    SELECT id, name, FLOOR(EXTRACT(EPOCH FROM date_time) / 10) AS window_number
    FROM person
    GROUP BY id, name, FLOOR(EXTRACT(EPOCH FROM date_time) / 10)
) AS p
INNER JOIN (
    SELECT seller, FLOOR(EXTRACT(EPOCH FROM date_time) / 10) AS window_number
    FROM auction
    GROUP BY seller, FLOOR(EXTRACT(EPOCH FROM date_time) / 10)
) AS a ON p.id = a.seller AND p.window_number = a.window_number
