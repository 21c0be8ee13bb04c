package postgres

import "github.com/go-outbox/outbox/core"

// deadQueries is the SQL for the dead letters of one state.
type deadQueries struct{ list, count, requeue, discard string }

func newDeadQueries(n names) map[core.DeadLetterState]deadQueries {
	all := map[core.DeadLetterState]deadQueries{}
	for state, is := range map[core.DeadLetterState]string{
		core.StateParked:    `b.dlq AND b.discarded_at IS NULL`,
		core.StateDiscarded: `b.dlq AND b.discarded_at IS NOT NULL`,
		core.StateBlocked:   blockedSQL,
	} {
		from := ` FROM {outbox} b WHERE ` + is + filterSQL
		picked := `
WITH picked AS MATERIALIZED (
    SELECT b.event_id, b.created_at` + from + pageSQL + ` FOR UPDATE
)`
		all[state] = deadQueries{
			list:    n.sql(`SELECT ` + deadSQL + from + pageSQL),
			count:   n.sql(`SELECT count(*)` + from),
			requeue: n.sql(picked + requeueDeadSQL),
			discard: n.sql(picked + discardDeadSQL),
		}
	}
	return all
}

// Dead letters. All of them are read by an index of their own.
const (
	deadSQL = recordSQL + `, b.{body}, ` + stateSQL + `, 0::bigint, coalesce(b.last_error, ''), b.discarded_at`

	// blockedSQL says "unsettled" in a way from which the planner does not conclude that the index of all pending rows
	// would do: on a table without statistics it takes that one for as good as the small one.
	blockedSQL = `b.next_attempt_at = 'infinity' AND CASE WHEN b.dlq THEN false ELSE b.published_at IS NULL END`

	// filterSQL takes event ids, topic, aggregate type and id, event type, part of the reason, and two times; what is
	// empty selects all.
	filterSQL = `
    AND (cardinality($1::text[]) = 0 OR b.event_id = ANY ($1::text[]))
    AND ($2::text = '' OR b.topic = $2) AND ($3::text = '' OR b.aggregate_type = $3) AND ($4::text = '' OR b.aggregate_id = $4)
    AND ($5::text = '' OR b.event_type = $5) AND ($6::text = '' OR strpos(lower(b.last_error), lower($6)) > 0)
    AND ($7::timestamptz IS NULL OR b.created_at >= $7) AND ($8::timestamptz IS NULL OR b.created_at < $8)`
	pageSQL = `
    AND b.id > $9::bigint ORDER BY b.id LIMIT $10::bigint`

	// freshSQL makes a row as if no attempt had been made.
	freshSQL = `published_at = NULL, dlq = false, discarded_at = NULL, attempt_count = 0, next_attempt_at = NULL,
        last_error = NULL, first_failed_at = NULL`

	// toldSQL tells the owners of the lanes, in the same transaction.
	toldSQL = `told AS (INSERT INTO {outbox_rewinds} (lane, id) SELECT lane, id FROM changed ORDER BY id)
SELECT count(*), coalesce(max(id), 0) FROM changed`

	// The rows are locked by id before they are changed, so that two who do it at once wait for each other, and count
	// each row once.
	requeueDeadSQL = `, changed AS (
    UPDATE {outbox} o SET ` + freshSQL + `, replay = o.replay + 1
    FROM picked p WHERE o.event_id = p.event_id AND o.created_at = p.created_at RETURNING o.lane, o.id
), ` + toldSQL

	becauseSQL = `coalesce('; ' || nullif(o.last_error, ''), '')`

	discardDeadSQL = `, changed AS (
    UPDATE {outbox} o SET discarded_at = clock_timestamp(), last_error = $11::text || ` + becauseSQL + `
    FROM picked p WHERE o.event_id = p.event_id AND o.created_at = p.created_at RETURNING o.id
) SELECT count(*), coalesce(max(id), 0) FROM changed`

	keySQL = `coalesce(b.topic, '') = $1::text AND b.aggregate_type = $2::text AND b.aggregate_id = $3::text`

	unblockSQL = `
WITH changed AS (
    UPDATE {outbox} b SET ` + freshSQL + ` WHERE ` + blockedSQL + ` AND ` + keySQL + ` RETURNING b.lane, b.id
), ` + toldSQL

	// skipHeadSQL parks the first row of the key if its last attempt failed. The lane, by whose index it is found, is
	// computed from the number of lanes that the table has.
	skipHeadSQL = `
WITH head AS MATERIALIZED (
    SELECT b.event_id, b.created_at FROM {outbox} b
    WHERE b.published_at IS NULL AND NOT b.dlq AND ` + keySQL + `
      AND b.lane = (SELECT (('x0' || substr(md5($2::text || '/' || $3::text), 1, 15))::bit(64)::bigint % count(*))::smallint
                    FROM {outbox_lanes})
    ORDER BY b.id LIMIT 1
), changed AS (
    UPDATE {outbox} o SET dlq = true, next_attempt_at = NULL, last_error = $4::text || ` + becauseSQL + `
    FROM head h WHERE o.event_id = h.event_id AND o.created_at = h.created_at
      AND o.next_attempt_at IS NOT NULL AND CASE WHEN o.dlq THEN false ELSE o.published_at IS NULL END
    RETURNING o.lane, o.id
), ` + toldSQL

	// purgeDiscardedSQL deletes the next discarded rows after an id, $3.
	purgeDiscardedSQL = `
WITH old AS MATERIALIZED (
    SELECT event_id, created_at FROM {outbox}
    WHERE ` + aloneSQL + ` AND id > $3::text::bigint AND dlq AND discarded_at < now() - $2::interval
    ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED
), purged AS (
    DELETE FROM {outbox} o USING old WHERE o.event_id = old.event_id AND o.created_at = old.created_at RETURNING o.id
) SELECT count(*), coalesce(max(id), 0)::text FROM purged`
)
