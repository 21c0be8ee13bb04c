
-- Makes the partition of a month (UTC) unless it is there. A table is made first and attached then, which locks out
-- nobody.
CREATE FUNCTION {outbox_month}(at timestamptz) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $month$
DECLARE
    month timestamp := date_trunc('month', at AT TIME ZONE 'UTC');
    name  text := format('%I.%I', {schema}, {table} || to_char(month, '"_"YYYYMM'));
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended(name, 0));
    IF to_regclass(name) IS NULL THEN
        EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING ALL) {vacuuming}', name, {'outbox'});
        EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', {'outbox'}, name,
            month AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC');
    END IF;
END
$month$;

SELECT {outbox_month}(now() + n * interval '1 month') FROM generate_series(0, 2) n;
