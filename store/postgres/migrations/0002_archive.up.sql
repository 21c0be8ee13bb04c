-- Published rows of a store with AfterPublish archive, one partition a month (UTC). Without an index but the key: build
-- what you search by on months that are over.
CREATE TABLE {outbox_archive} (
    id              bigint      NOT NULL,
    event_id        text        NOT NULL,
    topic           text,
    aggregate_type  text        NOT NULL,
    aggregate_id    text        NOT NULL,
    event_type      text        NOT NULL,
    payload         {payload},
    headers         jsonb,
    created_at      timestamptz NOT NULL,
    published_at    timestamptz NOT NULL,
    attempt_count   integer     NOT NULL,
    last_error      text,
    first_failed_at timestamptz,
    replay          integer     NOT NULL,
    CONSTRAINT {"outbox_archive_pkey"} PRIMARY KEY (id, published_at)
) PARTITION BY RANGE (published_at);

-- Makes the partitions of this month and the next. A table is made first and attached then, which locks out nobody.
CREATE FUNCTION {outbox_archive_ahead}() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $ahead$
DECLARE
    month timestamp := date_trunc('month', now() AT TIME ZONE 'UTC');
    name  text;
BEGIN
    FOR i IN 0..1 LOOP
        name := format('%I.%I', {schema}, {table} || to_char(month, '"_archive_"YYYYMM'));
        IF to_regclass(name) IS NULL THEN
            PERFORM pg_advisory_xact_lock(hashtextextended(name, 0));
            IF to_regclass(name) IS NULL THEN
                EXECUTE format('CREATE TABLE %s (LIKE %s INCLUDING ALL)', name, {'outbox_archive'});
                EXECUTE format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', {'outbox_archive'}, name,
                    month AT TIME ZONE 'UTC', (month + interval '1 month') AT TIME ZONE 'UTC');
            END IF;
        END IF;
        month := month + interval '1 month';
    END LOOP;
END
$ahead$;

SELECT {outbox_archive_ahead}();
