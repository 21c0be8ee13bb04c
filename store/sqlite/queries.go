package sqlite

import (
	"strings"

	"github.com/go-outbox/outbox/core"
)

// nowMillis is the only clock of the store: that of SQLite, in milliseconds since 1970.
const nowMillis = `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`

// never is the next attempt of a blocked row: the last time there is.
const never = `9223372036854775807`

// named puts the table's name in place of every `"outbox` of a query, which so stays readable and runs as it is
// written when the table has the default name.
func named(table, query string) string {
	return strings.ReplaceAll(query, `"outbox`, `"`+strings.ReplaceAll(table, `"`, `""`))
}

// queries is the SQL of a store, with the names of its tables.
type queries struct {
	insert, existing                                 string
	join, dropMembers, giveBack, extend, take, leave string
	leaveLanes, leases                               string
	state, records, heads, dropRewinds               string
	unreadable                                       string
	fence, published, failed, parked, blocked        string
	requeue, rewind, purge, purgeDiscarded           string
	dead                                             map[core.DeadLetterState]deadQueries
	unblock, skipHead                                string
	fingerprint, fingerprints, remember, accept      string
}

func newQueries(table string, after AfterPublish) queries {
	published := publishedSQL
	if after == Delete {
		published = deletedSQL
	}
	q := func(query string) string { return named(table, query) }
	return queries{
		insert: q(insertSQL), existing: q(existingSQL),
		join: q(joinSQL), dropMembers: q(dropMembersSQL), giveBack: q(giveBackSQL), extend: q(extendSQL),
		take: q(takeSQL), leave: q(leaveSQL), leaveLanes: q(leaveLanesSQL), leases: q(leasesSQL),
		state: q(stateSQL), records: q(recordsSQL), heads: q(headsSQL), dropRewinds: q(dropRewindsSQL),
		unreadable: q(unreadableSQL),
		fence:      q(fenceSQL), published: q(published), failed: q(failedSQL), parked: q(parkedSQL),
		blocked: q(blockedSQL),
		requeue: q(requeueSQL), rewind: q(rewindSQL), purge: q(purgeSQL), purgeDiscarded: q(purgeDiscardedSQL),
		dead: newDeadQueries(q), unblock: q(unblockSQL), skipHead: q(skipHeadSQL),
		fingerprint: q(fingerprintSQL), fingerprints: q(fingerprintsSQL), remember: q(rememberSQL), accept: q(acceptSQL),
	}
}

// Enqueue. The rows of values follow insertSQL.
const (
	insertSQL = `INSERT INTO "outbox"
		(event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers) VALUES `
	insertRowSQL  = `(?, ?, ?, ?, ?, ?, ?)`
	onConflictSQL = ` ON CONFLICT (event_id) DO NOTHING`

	existingSQL = `SELECT event_id, ifnull(topic, ''), aggregate_type, aggregate_id, event_type FROM "outbox"
		WHERE event_id IN (SELECT value FROM json_each(?))`
)

// Lease. A lease ends when expires_at is reached.
const (
	joinSQL = `INSERT INTO "outbox_members" (member, expires_at) VALUES (?1, ` + nowMillis + ` + ?2)
		ON CONFLICT (member) DO UPDATE SET expires_at = excluded.expires_at`
	dropMembersSQL = `DELETE FROM "outbox_members" WHERE expires_at <= ` + nowMillis
	giveBackSQL    = `UPDATE "outbox_lanes" SET owner = NULL, expires_at = 0 WHERE owner = ?1 AND (lane, epoch) IN
		(SELECT value ->> 0, value ->> 1 FROM json_each(?2))`
	extendSQL = `UPDATE "outbox_lanes" SET expires_at = ` + nowMillis + ` + ?2 WHERE owner = ?1`
	takeSQL   = `UPDATE "outbox_lanes" SET owner = ?1, epoch = epoch + 1, expires_at = ` + nowMillis + ` + ?2
		WHERE lane IN (SELECT value FROM json_each(?3))
		AND (owner IS NULL OR (owner <> ?1 AND expires_at <= ` + nowMillis + `))`
	leaveSQL      = `DELETE FROM "outbox_members" WHERE member = ?1`
	leaveLanesSQL = `UPDATE "outbox_lanes" SET owner = NULL, expires_at = 0 WHERE owner = ?1`
	// leasesSQL is all that a Lease answers: how many lanes there are, the live members, the lanes and epochs that the
	// member holds, and when the first membership or lease of somebody else ends.
	leasesSQL = `SELECT (SELECT count(*) FROM "outbox_lanes"),
		(SELECT json_group_array(member ORDER BY member) FROM "outbox_members" WHERE expires_at > ` + nowMillis + `),
		(SELECT json_group_array(json_object('Lane', lane, 'Epoch', epoch) ORDER BY lane) FROM "outbox_lanes"
			WHERE owner = ?1),
		(SELECT ifnull(min(expires_at) - ` + nowMillis + `, 0) FROM (
			SELECT expires_at FROM "outbox_members" WHERE member <> ?1
			UNION ALL SELECT expires_at FROM "outbox_lanes" WHERE owner <> ?1)
			WHERE expires_at > ` + nowMillis + `)`
)

// Fetch.
const (
	fenceSQL = `SELECT count(*) FROM "outbox_lanes" WHERE lane = ? AND owner = ? AND epoch = ?`

	// stateSQL is all that a fetch needs to know before it reads.
	stateSQL = `SELECT (SELECT count(*) FROM "outbox_lanes" WHERE lane = ? AND owner = ? AND epoch = ?),
		(SELECT ifnull(max(id), 0) FROM "outbox"),
		(SELECT ifnull(max(seq), 0) FROM "outbox_rewinds"),
		(SELECT json_group_array(id) FROM "outbox_rewinds")`

	columnsSQL = `SELECT o.id, o.event_id, ifnull(o.topic, ''), o.aggregate_type, o.aggregate_id, o.event_type,
		o.payload IS NULL, o.payload, o.headers, o.created_at, o.attempt_count, ifnull(o.first_failed_at, 0),
		CASE o.next_attempt_at WHEN ` + never + ` THEN ` + never + ` ELSE ifnull(o.next_attempt_at - ` + nowMillis + `, 0) END,
		o.replay `
	unsettledSQL = `o.published_at IS NULL AND o.dlq = 0`

	// recordsSQL is pinned to the index of unpublished rows: without statistics the planner could walk the published.
	recordsSQL = columnsSQL + `FROM "outbox" o INDEXED BY "outbox_unpublished"
		WHERE ` + unsettledSQL + ` AND o.id > ?1
		AND o.id NOT IN (SELECT value FROM json_each(?2))
		AND (ifnull(o.topic, ''), o.aggregate_type, o.aggregate_id) NOT IN
			(SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(?3))
		ORDER BY o.id LIMIT ?4`

	headsSQL = columnsSQL + `FROM json_each(?1) i CROSS JOIN "outbox" o ON o.id = i.value ->> 0
		WHERE o.event_id = i.value ->> 1 AND ` + unsettledSQL

	dropRewindsSQL = `DELETE FROM "outbox_rewinds" WHERE seq <= ?`

	// unreadableSQL takes [id, reason]. It cannot go by event id, which may be what is unreadable.
	unreadableSQL = `UPDATE "outbox" AS o SET dlq = 1, attempt_count = o.attempt_count + 1, next_attempt_at = NULL,
		first_failed_at = ifnull(o.first_failed_at, ` + nowMillis + `), last_error = i.value ->> 1
		FROM json_each(?1) i WHERE o.id = i.value ->> 0 AND ` + unsettledSQL
)

// Settle. Items are [id, event id, replay, attempts, retry in ms, reason].
const (
	matchSQL = `(SELECT o.id FROM json_each(?1) i CROSS JOIN "outbox" o ON o.id = i.value ->> 0
		WHERE o.event_id = i.value ->> 1 AND o.replay = i.value ->> 2 AND ` + unsettledSQL + `) RETURNING id`
	publishedSQL = `UPDATE "outbox" SET published_at = ` + nowMillis + `, next_attempt_at = NULL WHERE id IN ` + matchSQL
	deletedSQL   = `DELETE FROM "outbox" WHERE id IN ` + matchSQL

	itemSQL = ` FROM json_each(?1) i WHERE o.id = i.value ->> 0 AND o.event_id = i.value ->> 1
		AND o.replay = i.value ->> 2 AND ` + unsettledSQL + ` RETURNING id`
	failedSQL = `UPDATE "outbox" AS o SET attempt_count = i.value ->> 3, last_error = i.value ->> 5,
		next_attempt_at = ` + nowMillis + ` + (i.value ->> 4),
		first_failed_at = ifnull(o.first_failed_at, ` + nowMillis + `)` + itemSQL
	parkedSQL = `UPDATE "outbox" AS o SET attempt_count = i.value ->> 3, last_error = i.value ->> 5,
		next_attempt_at = NULL, dlq = 1,
		first_failed_at = ifnull(o.first_failed_at, ` + nowMillis + `)` + itemSQL
	blockedSQL = `UPDATE "outbox" AS o SET attempt_count = i.value ->> 3, last_error = i.value ->> 5,
		next_attempt_at = ` + never + `, first_failed_at = ifnull(o.first_failed_at, ` + nowMillis + `)` + itemSQL
)

// Requeue and purge.
const (
	// freshSQL makes a row as if no attempt had been made.
	freshSQL = `dlq = 0, discarded_at = NULL, published_at = NULL, attempt_count = 0, next_attempt_at = NULL,
		last_error = NULL, first_failed_at = NULL`
	requeueSetSQL = `UPDATE "outbox" SET ` + freshSQL + `, replay = replay + 1 `
	requeueSQL    = requeueSetSQL + `WHERE event_id IN (SELECT value FROM json_each(?)) RETURNING id`
	rewindSQL     = `INSERT INTO "outbox_rewinds" (id) SELECT value FROM json_each(?)`
	purgeSQL      = `DELETE FROM "outbox" WHERE id IN (
		SELECT id FROM "outbox" INDEXED BY "outbox_published"
		WHERE published_at IS NOT NULL AND dlq = 0 AND published_at <= ` + nowMillis + ` - ?1
		ORDER BY published_at LIMIT ?2)`
	purgeDiscardedSQL = `DELETE FROM "outbox" WHERE id IN (
		SELECT id FROM "outbox" INDEXED BY "outbox_dead" WHERE dlq <> 0 AND discarded_at <= ` + nowMillis + ` - ?1
		ORDER BY id LIMIT ?2)`
)

// Fingerprints of ordering strategies.
const (
	fingerprintSQL  = `SELECT fingerprint FROM "outbox_fingerprints" WHERE broker = ? AND destination = ?`
	fingerprintsSQL = `SELECT broker, destination, fingerprint FROM "outbox_fingerprints"`
	rememberSQL     = `INSERT INTO "outbox_fingerprints" (broker, destination, fingerprint) VALUES (?, ?, ?)
		ON CONFLICT (broker, destination) DO NOTHING`
	acceptSQL = `INSERT INTO "outbox_fingerprints" (broker, destination, fingerprint) VALUES (?, ?, ?)
		ON CONFLICT (broker, destination) DO UPDATE SET fingerprint = excluded.fingerprint`
)
