ALTER TABLE airlines ADD PRIMARY KEY (carrier);
ALTER TABLE airports ADD PRIMARY KEY (code);
ALTER TABLE planes ADD PRIMARY KEY (tailnum);
ALTER TABLE weather
    ADD PRIMARY KEY (origin, observed_at),
    ADD FOREIGN KEY (origin) REFERENCES airports;
ALTER TABLE flights
    ADD PRIMARY KEY (flight_id),
    ADD UNIQUE (flight_date, carrier, flight_number, origin, dest),
    ADD FOREIGN KEY (carrier) REFERENCES airlines,
    ADD FOREIGN KEY (tailnum) REFERENCES planes,
    ADD FOREIGN KEY (origin) REFERENCES airports,
    ADD FOREIGN KEY (dest) REFERENCES airports,
    ADD CHECK (distance > 0),
    ADD CHECK ((departure IS NULL) = (departure_delay IS NULL));
CREATE INDEX ON flights (tailnum);
CREATE INDEX ON flights (origin, scheduled_hour);
COMMENT ON TABLE flights IS 'Departures from New York, 2013 and on';
