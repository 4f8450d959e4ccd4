-- The example's tables. `pgtrickle init` has loaded them into the embedded PostgreSQL.
CREATE TABLE IF NOT EXISTS customers (
    id bigint PRIMARY KEY,
    name text NOT NULL,
    region text
);

CREATE TABLE IF NOT EXISTS orders (
    id bigint PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers,
    order_date date NOT NULL
);

CREATE TABLE IF NOT EXISTS order_lines (
    order_id bigint NOT NULL REFERENCES orders,
    line integer NOT NULL,
    quantity integer NOT NULL,
    price numeric(10, 2) NOT NULL,
    PRIMARY KEY (order_id, line)
);

INSERT INTO customers VALUES (1, 'Ada', 'EU'), (2, 'Grace', 'US'), (3, 'Edsger', NULL)
ON CONFLICT DO NOTHING;

INSERT INTO orders VALUES (10, 1, '2024-07-01'), (11, 2, '2024-07-01'), (12, 3, '2024-07-02')
ON CONFLICT DO NOTHING;

INSERT INTO order_lines VALUES (10, 1, 2, 9.50), (10, 2, 1, 30.00), (11, 1, 5, 2.25), (12, 1, 1, 99.90)
ON CONFLICT DO NOTHING;
