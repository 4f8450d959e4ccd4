-- One transaction over four tables: a carrier changes its name, an airport its place, aircraft their entry, and one
-- aircraft its registration, so that a join key moves on both sides at once.
BEGIN;
UPDATE airlines
SET name = CASE WHEN name LIKE '% Group' THEN left(name, -6) ELSE name || ' Group' END
WHERE carrier = 'OO';

UPDATE airports
SET latitude = latitude + 0.0125, longitude = longitude - 0.0125
WHERE code = (ARRAY['EYW', 'BZN', 'JAC', 'PSP'])[1 + extract(doy FROM current_setting('demo.day')::date)::integer % 4];

UPDATE planes
SET manufacturer = 'EMBRAER', seats = 50
WHERE tailnum IN (SELECT tailnum FROM planes WHERE manufacturer IS NULL ORDER BY tailnum LIMIT 3);

INSERT INTO planes
SELECT
    tailnum || '-' || to_char(current_setting('demo.day')::date, 'YYMMDD'), year_built, kind, manufacturer, model, engines,
    seats, cruising_speed, engine
FROM planes
WHERE tailnum = 'N' || to_char(current_setting('demo.day')::date - 1, 'YYMMDD') || 'X';
UPDATE flights
SET tailnum = tailnum || '-' || to_char(current_setting('demo.day')::date, 'YYMMDD')
WHERE tailnum = 'N' || to_char(current_setting('demo.day')::date - 1, 'YYMMDD') || 'X';
DELETE FROM planes WHERE tailnum = 'N' || to_char(current_setting('demo.day')::date - 1, 'YYMMDD') || 'X';
COMMIT;

-- The strongest wind on record was a typing error.
BEGIN;
UPDATE weather
SET wind_speed = CASE WHEN wind_speed > 200 THEN wind_speed / 100 ELSE wind_speed - 1 END
WHERE (origin, observed_at) = (
    SELECT origin, observed_at FROM weather WHERE wind_speed IS NOT NULL ORDER BY wind_speed DESC, observed_at, origin LIMIT 1
);
COMMIT;
