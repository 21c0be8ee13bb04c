-- STRICT refuses values of the wrong type at INSERT, where their author sees it. ON CONFLICT REPLACE turns an explicit
-- NULL into the default. The time is written so that SQLite from 3.37 on, as systems have it, can insert.
-- AUTOINCREMENT: the id of a deleted row is never given to another one.
CREATE TABLE "outbox" (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id        TEXT NOT NULL ON CONFLICT REPLACE DEFAULT (lower(hex(randomblob(16)))) UNIQUE,
    topic           TEXT,
    aggregate_type  TEXT NOT NULL,
    aggregate_id    TEXT NOT NULL,
    event_type      TEXT NOT NULL,
    payload         ANY,
    headers         TEXT,
    created_at      INTEGER NOT NULL ON CONFLICT REPLACE
                    DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)),
    published_at    INTEGER,
    attempt_count   INTEGER NOT NULL ON CONFLICT REPLACE DEFAULT 0,
    next_attempt_at INTEGER,
    last_error      TEXT,
    first_failed_at INTEGER,
    dlq             INTEGER NOT NULL ON CONFLICT REPLACE DEFAULT 0,
    discarded_at    INTEGER,
    replay          INTEGER NOT NULL ON CONFLICT REPLACE DEFAULT 0
) STRICT;

-- What a fetch reads: never longer than the backlog.
CREATE INDEX "outbox_unpublished" ON "outbox" (id) WHERE published_at IS NULL AND dlq = 0;

-- What waits for a person: parked and discarded rows, and blocked ones, whose next attempt is never.
CREATE INDEX "outbox_dead" ON "outbox" (id) WHERE dlq <> 0 OR next_attempt_at = 9223372036854775807;

-- What a purge reads.
CREATE INDEX "outbox_published" ON "outbox" (published_at) WHERE published_at IS NOT NULL AND dlq = 0;

CREATE TABLE "outbox_members" (
    member     TEXT PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE "outbox_lanes" (
    lane       INTEGER PRIMARY KEY,
    owner      TEXT,
    epoch      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL DEFAULT 0
) STRICT;

-- The first epoch is the time, so that a lease of a table that was dropped is not taken for one of its successor.
INSERT INTO "outbox_lanes" (lane, epoch) VALUES (0, CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER));

-- Ids of rows that were made unpublished again, for the dispatcher to read. Operators may insert here.
CREATE TABLE "outbox_rewinds" (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id  INTEGER NOT NULL
) STRICT;

-- The ordering strategy by which each destination is published.
CREATE TABLE "outbox_fingerprints" (
    broker      TEXT NOT NULL,
    destination TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    PRIMARY KEY (broker, destination)
) STRICT, WITHOUT ROWID;
