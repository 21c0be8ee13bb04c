-- Ids are drawn from here. CACHE 1: a session that keeps ids in stock would use them later, below the mark of a fetch.
CREATE SEQUENCE {outbox_id_seq} AS bigint CACHE 1;

-- The lane of an aggregate, as every dispatcher and every other database computes it. A function, as an insert would
-- read the expression anew each time, which takes longer than computing it; and so the place to refuse what has no key.
CREATE FUNCTION {outbox_lane}(aggregate_type text, aggregate_id text) RETURNS smallint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $lane$
BEGIN
    IF aggregate_type = '' OR aggregate_id = '' THEN
        RAISE check_violation USING MESSAGE = 'outbox: aggregate_type and aggregate_id must not be empty';
    END IF;
    RETURN ((('x0' || pg_catalog.substr(pg_catalog.md5(aggregate_type || '/' || aggregate_id), 1, 15))::bit(64)::bigint % {lanes})::smallint);
END
$lane$;

-- The event id of a plain INSERT: a UUIDv7, whose first 48 bits are the time in milliseconds (RFC 9562, 5.7), so that ids
-- of rows that lie together lie together in the index too.
CREATE FUNCTION {outbox_event_id}() RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $event_id$
DECLARE
    at text := pg_catalog.lpad(pg_catalog.to_hex(pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) * 1000)::bigint), 12, '0');
BEGIN
    RETURN overlay(pg_catalog.gen_random_uuid()::text
        PLACING pg_catalog.left(at, 8) || '-' || pg_catalog.right(at, 4) || '-7' FROM 1 FOR 15);
END
$event_id$;

-- The default of id makes the transaction obtain its xid before it draws the id, whatever way the row comes in: the
-- exactness of the fetch rests on that order. Never insert ids of your own.
--
-- The event id is the primary key, and no other index has all rows: marking a row as published adds a second entry for
-- it to each that has. The pages of this one are filled by half, so that it fits: splitting every page costs a settle
-- half of its rate. Lengths are limited by the types and not by constraints, as each insert reads the text of a
-- constraint anew.
CREATE TABLE {outbox} (
    id              bigint      NOT NULL
                                DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval({'outbox_id_seq'}::regclass) END,
    event_id        varchar(128) COLLATE "C" NOT NULL DEFAULT {outbox_event_id}(), -- compared byte by byte, which is fast
    topic           varchar(249),
    aggregate_type  varchar(255) NOT NULL,
    aggregate_id    varchar(1024) NOT NULL,
    event_type      varchar(255) NOT NULL,
    payload         {payload},
    headers         jsonb,
    created_at      timestamptz NOT NULL DEFAULT now(),
    published_at    timestamptz,
    attempt_count   integer     NOT NULL DEFAULT 0,
    next_attempt_at timestamptz,
    last_error      text,
    first_failed_at timestamptz,
    dlq             boolean     NOT NULL DEFAULT false,
    discarded_at    timestamptz,
    replay          integer     NOT NULL DEFAULT 0,
    lane            smallint    NOT NULL GENERATED ALWAYS AS ({outbox_lane}(aggregate_type, aggregate_id)) STORED,
    CONSTRAINT {"outbox_pkey"} PRIMARY KEY (event_id{month}) WITH (fillfactor = 45),
    CONSTRAINT {"outbox_headers"} CHECK (jsonb_typeof(headers) = 'object')
) {storage};

ALTER SEQUENCE {outbox_id_seq} OWNED BY {outbox}.id;

-- lz4 is three times as fast as the default and as good. Servers before 14, or built without it, go on without.
DO $lz4$
BEGIN
    EXECUTE {'ALTER TABLE outbox ALTER COLUMN payload SET COMPRESSION lz4, ALTER COLUMN headers SET COMPRESSION lz4'};
EXCEPTION WHEN OTHERS THEN
    NULL;
END
$lz4$;

-- What is to be published, and nothing else: by id for the lanes that are up to date, which are read together, and by
-- lane for one that starts anew or went back, so that it does not read through the backlog of the others. "lane >= 0" is
-- true of all; only the query that says it too can use the first index, so that the planner cannot mix them up.
CREATE INDEX {"outbox_pending"} ON {outbox} (id) WHERE published_at IS NULL AND NOT dlq AND lane >= 0;
CREATE INDEX {"outbox_pending_lane"} ON {outbox} (lane, id) WHERE published_at IS NULL AND NOT dlq;

-- What waits for a person: parked and discarded rows, and blocked ones, whose next attempt is never.
CREATE INDEX {"outbox_dead"} ON {outbox} (id) WHERE dlq OR next_attempt_at = 'infinity';

CREATE TABLE {outbox_members} (
    member     text        PRIMARY KEY,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- A lane's lease lasts as long as its owner's membership.
CREATE TABLE {outbox_lanes} (
    lane  smallint PRIMARY KEY,
    owner text     REFERENCES {outbox_members} (member) ON DELETE SET NULL,
    epoch bigint   NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- The first epoch is the time, so that a lease of a table that was dropped is never valid for its successor.
INSERT INTO {outbox_lanes} (lane, epoch)
SELECT n, extract(epoch FROM now())::bigint FROM generate_series(0, {lanes} - 1) n;

-- Ids of rows that were made unpublished again, for the owner of the lane. Operators insert here.
CREATE TABLE {outbox_rewinds} (
    seq  bigint   PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    lane smallint NOT NULL,
    id   bigint   NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- By which ordering strategy each destination is published; broker is empty unless there are several.
CREATE TABLE {outbox_fingerprints} (
    broker      text NOT NULL,
    destination text NOT NULL,
    fingerprint text NOT NULL,
    PRIMARY KEY (broker, destination)
);

-- Stores whose dispatchers sleep and want to be notified of the next insert.
CREATE TABLE {outbox_sleepers} (
    sleeper    text        PRIMARY KEY,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- Everybody may know that: who may insert events has to read it, and a function with its owner's rights costs each
-- insert more than the reading.
GRANT SELECT ON {outbox_sleepers} TO PUBLIC;

-- A transaction that has notified cannot be prepared, so nothing is notified where that is allowed.
CREATE FUNCTION {outbox_wake}() RETURNS trigger LANGUAGE plpgsql AS $wake$
BEGIN
    IF EXISTS (SELECT FROM {outbox_sleepers} WHERE expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp())
       AND pg_catalog.current_setting('max_prepared_transactions') OPERATOR(pg_catalog.=) '0' THEN
        PERFORM pg_catalog.pg_notify({channel}, '');
    END IF;
    RETURN NULL;
END
$wake$;

CREATE TRIGGER {"outbox_wake"} AFTER INSERT ON {outbox} FOR EACH STATEMENT EXECUTE FUNCTION {outbox_wake}();
