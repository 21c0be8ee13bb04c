package postgres

import "github.com/go-outbox/outbox/core"

// queries is the SQL of a store, with its names. See [names] for the braces.
type queries struct {
	lockKeys, insert, insertOne, existing                      string
	release, leave, join, take, dropMembers, leases            string
	observe, rows, smallRows, heads, xid, fence, forgetRewinds string
	prepareSettle, published, failed                           string
	requeue, requeueArchived, monthOfArchived                  string
	purge, purgeArchived                                       string
	remember, fingerprint, fingerprints, accept                string
	dead                                                       map[core.DeadLetterState]deadQueries
	unblock, skipHead, purgeDiscarded                          string
	sleep, wakeUp, version, tableType                          string
	monthsAhead, archiveAhead                                  string
	bytes                                                      bool // payloads go as bytea
}

func newQueries(n names, after AfterPublish) queries {
	published := publishedSQL
	switch after {
	case Delete:
		published = deletedSQL
	case Archive:
		published = archivedSQL
	}
	insertOne := n.sql(insertOneSQL)
	if n.partitioned {
		insertOne = ""
	}
	return queries{
		lockKeys: lockKeysSQL, insert: n.sql(insertSQL), insertOne: insertOne, existing: n.sql(existingSQL),
		release: n.sql(releaseSQL), leave: n.sql(leaveSQL), join: n.sql(joinSQL), take: n.sql(takeSQL),
		dropMembers: n.sql(dropMembersSQL), leases: n.sql(leasesSQL),
		observe: n.sql(observeSQL), rows: n.sql(rowsSQL), smallRows: n.sql(smallRowsSQL), heads: n.sql(headsSQL), xid: xidSQL, fence: n.sql(fenceSQL),
		forgetRewinds: n.sql(forgetRewindsSQL),
		prepareSettle: n.sql(prepareSettleSQL), published: n.sql(published), failed: n.sql(failedSQL),
		remember: n.sql(rememberSQL), fingerprint: n.sql(fingerprintSQL), fingerprints: n.sql(fingerprintsSQL), accept: n.sql(acceptSQL),
		requeue: n.sql(requeueSQL), requeueArchived: n.sql(requeueArchivedSQL), monthOfArchived: n.sql(monthOfArchivedSQL),
		purge: n.sql(purgeSQL), purgeArchived: n.sql(purgeArchivedSQL), dead: newDeadQueries(n),
		unblock: n.sql(unblockSQL), skipHead: n.sql(skipHeadSQL), purgeDiscarded: n.sql(purgeDiscardedSQL),
		sleep: n.sql(sleepSQL), wakeUp: n.sql(wakeUpSQL), version: n.sql(versionSQL),
		monthsAhead: n.sql(monthsAheadSQL), archiveAhead: n.sql(archiveAheadSQL), tableType: n.sql(tableTypeSQL),
		bytes: n.payload == Bytes,
	}
}

// insertion is the statement that writes messages, and its arguments as pgx sends them.
func (q queries) insertion(messages []core.Message) (string, []any) {
	if len(messages) == 1 && q.insertOne != "" {
		m := &messages[0]
		var payload any = m.Payload
		if !q.bytes && m.Payload != nil {
			payload = string(m.Payload) // bytes would not be sent as JSON in every mode
		}
		return q.insertOne, []any{
			m.EventID, orNil(m.Topic), m.AggregateType, m.AggregateID, m.EventType, payload, orNil(headersText(m.Headers)),
		}
	}
	rows := newMessageArrays(messages)
	var payloads any = rows.payloads
	if !q.bytes {
		payloads = rows.payloadTexts()
	}
	return q.insert, []any{rows.eventIDs, rows.topics, rows.types, rows.ids, rows.eventTypes, payloads, rows.headers}
}

// Every transaction of the store says its isolation: under a serializable default all statements of a pipeline would
// see the snapshot of the first one.
const (
	beginSQL  = `BEGIN ISOLATION LEVEL READ COMMITTED`
	pathSQL   = `SET LOCAL search_path TO pg_catalog` // no function of somebody else's stands in for the server's
	commitSQL = `COMMIT`
)

// Enqueue.
const (
	// lockKeysSQL takes the locks in the order of the array.
	lockKeysSQL = `SELECT pg_advisory_xact_lock(key) FROM unnest($1::bigint[]) key`

	insertSQL = `
INSERT INTO {outbox} (event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers)
SELECT m.event_id, m.topic, m.aggregate_type, m.aggregate_id, m.event_type, m.payload::{payload}, m.headers::jsonb
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::{element}[], $7::text[])
     WITH ORDINALITY AS m (event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers, place)
{unknown}ORDER BY m.place
ON CONFLICT (event_id{month}) DO NOTHING`

	// insertOneSQL is insertSQL for a single message, which most transactions have: it costs half. Not for months, where
	// no unique index finds a conflict.
	insertOneSQL = `
INSERT INTO {outbox} (event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers)
VALUES ($1, $2, $3, $4, $5, $6::{payload}, $7::jsonb)
ON CONFLICT (event_id) DO NOTHING`

	existingSQL = `
SELECT event_id, coalesce(topic, ''), aggregate_type, aggregate_id, event_type
FROM {outbox} WHERE event_id = ANY ($1::text[])`
)

// Leases. A lane's lease lasts as long as the membership of its owner, so renewing writes one row, and settles that
// lock lanes do not stand in its way.
const (
	releaseSQL = `
UPDATE {outbox_lanes} l SET owner = NULL
FROM unnest($2::smallint[], $3::bigint[]) AS given (lane, epoch)
WHERE l.lane = given.lane AND l.epoch = given.epoch AND l.owner = $1`

	// leaveSQL frees the lanes too (ON DELETE SET NULL).
	leaveSQL = `DELETE FROM {outbox_members} WHERE member = $1`

	// joinSQL locks the member's row until the end of the transaction: nobody can take its lanes meanwhile.
	joinSQL = `
INSERT INTO {outbox_members} (member, expires_at) VALUES ($1, clock_timestamp() + $2::interval)
ON CONFLICT (member) DO UPDATE SET expires_at = excluded.expires_at`

	// takeSQL takes lanes of a member only while it holds that member's expired row locked: its next renewal waits, and
	// finds them gone.
	takeSQL = `
WITH expired AS MATERIALIZED (
    SELECT member FROM {outbox_members} WHERE expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED
), free AS MATERIALIZED (
    SELECT lane FROM {outbox_lanes}
    WHERE lane = ANY ($2::smallint[]) AND (owner IS NULL OR owner IN (SELECT member FROM expired))
    FOR UPDATE SKIP LOCKED
)
UPDATE {outbox_lanes} SET owner = $1, epoch = epoch + 1 WHERE lane IN (SELECT lane FROM free)`

	dropMembersSQL = `
DELETE FROM {outbox_members} WHERE member IN (
    SELECT m.member FROM {outbox_members} m
    WHERE m.expires_at <= clock_timestamp() AND NOT EXISTS (SELECT FROM {outbox_lanes} l WHERE l.owner = m.member)
    FOR UPDATE SKIP LOCKED)`

	leasesSQL = `
SELECT (SELECT count(*) FROM {outbox_lanes}),
       ARRAY(SELECT member FROM {outbox_members} WHERE expires_at > clock_timestamp() ORDER BY member),
       ARRAY(SELECT lane FROM {outbox_lanes} WHERE owner = $1 ORDER BY lane),
       ARRAY(SELECT epoch FROM {outbox_lanes} WHERE owner = $1 ORDER BY lane),
       coalesce((SELECT min(expires_at) - clock_timestamp() FROM {outbox_members}
                 WHERE expires_at > clock_timestamp() AND member <> $1), '0')`
)

// Operations.
const (
	rememberSQL = `INSERT INTO {outbox_fingerprints} (broker, destination, fingerprint) VALUES ($1, $2, $3)
ON CONFLICT (broker, destination) DO NOTHING`
	fingerprintSQL  = `SELECT fingerprint FROM {outbox_fingerprints} WHERE broker = $1 AND destination = $2`
	fingerprintsSQL = `SELECT broker, destination, fingerprint FROM {outbox_fingerprints}`
	acceptSQL       = `INSERT INTO {outbox_fingerprints} (broker, destination, fingerprint) VALUES ($1, $2, $3)
ON CONFLICT (broker, destination) DO UPDATE SET fingerprint = excluded.fingerprint`

	requeueSQL = `
WITH requeued AS (
    UPDATE {outbox} SET ` + freshSQL + `, replay = replay + 1
    WHERE event_id = ANY ($1::text[]) RETURNING lane, id
), told AS (INSERT INTO {outbox_rewinds} (lane, id) SELECT lane, id FROM requeued ORDER BY id)
SELECT count(*) FROM requeued`

	requeueArchivedSQL = `
WITH back AS (
    DELETE FROM {outbox_archive} WHERE event_id = ANY ($1::text[])
    RETURNING id, event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers, created_at, replay
), requeued AS (
    INSERT INTO {outbox} (id, event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers, created_at, replay)
    SELECT id, event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers, created_at, replay + 1 FROM back
    RETURNING lane, id
), told AS (INSERT INTO {outbox_rewinds} (lane, id) SELECT lane, id FROM requeued ORDER BY id)
SELECT count(*) FROM requeued`
)

// Waking up.
const (
	sleepSQL = `
INSERT INTO {outbox_sleepers} (sleeper, expires_at) VALUES ($1, clock_timestamp() + $2::interval)
ON CONFLICT (sleeper) DO UPDATE SET expires_at = excluded.expires_at`
	wakeUpSQL = `DELETE FROM {outbox_sleepers} WHERE sleeper = $1 OR expires_at < clock_timestamp() - interval '1 hour'`
)

// Migrations.
const (
	createMigrationsSQL = `
CREATE TABLE IF NOT EXISTS {outbox_migrations} (
    version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())`
	dropMigrationsSQL = `DROP TABLE IF EXISTS {outbox_migrations}`
	versionSQL        = `SELECT coalesce(max(version), 0) FROM {outbox_migrations}`
	appliedSQL        = `INSERT INTO {outbox_migrations} (version, name) VALUES ($1, $2)`
	undoneSQL         = `DELETE FROM {outbox_migrations} WHERE version = $1`
	tableTypeSQL      = `
SELECT format_type(a.atttypid, NULL), c.relkind = 'p' FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.oid = to_regclass({'outbox'}) AND a.attname = 'payload'`
)
