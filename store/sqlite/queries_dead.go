package sqlite

import "github.com/go-outbox/outbox/core"

// deadQueries is the SQL for the dead letters of one state.
type deadQueries struct{ list, count, requeue, discard string }

func newDeadQueries(q func(string) string) map[core.DeadLetterState]deadQueries {
	all := map[core.DeadLetterState]deadQueries{}
	for state, is := range map[core.DeadLetterState]string{
		core.StateParked:    `o.dlq <> 0 AND o.discarded_at IS NULL`,
		core.StateDiscarded: `o.dlq <> 0 AND o.discarded_at IS NOT NULL`,
		core.StateBlocked:   blockedRowSQL,
	} {
		from := ` FROM "outbox" o INDEXED BY "outbox_dead" WHERE ` + is + filterSQL
		batch := `WHERE id IN (SELECT o.id` + from + pageSQL + `) RETURNING id`
		all[state] = deadQueries{
			list:    q(columnsSQL + deadColumnsSQL + from + pageSQL),
			count:   q(`SELECT count(*)` + from),
			requeue: q(requeueSetSQL + batch),
			discard: q(discardSetSQL + batch),
		}
	}
	return all
}

// Dead letters. All of them are read by their own small index, so that nobody scans the table.
const (
	deadColumnsSQL = `, ifnull(o.last_error, ''), ifnull(o.discarded_at, 0)`

	blockedRowSQL = unsettledSQL + ` AND o.next_attempt_at = ` + never

	// filterSQL takes event ids, topic, aggregate type and id, event type, part of the reason, and two times; what is
	// empty selects all.
	filterSQL = `
		AND (?1 = '[]' OR o.event_id IN (SELECT value FROM json_each(?1)))
		AND (?2 = '' OR o.topic = ?2) AND (?3 = '' OR o.aggregate_type = ?3) AND (?4 = '' OR o.aggregate_id = ?4)
		AND (?5 = '' OR o.event_type = ?5) AND (?6 = '' OR instr(lower(o.last_error), lower(?6)) > 0)
		AND (?7 IS NULL OR o.created_at >= ?7) AND (?8 IS NULL OR o.created_at < ?8)`
	pageSQL = ` AND o.id > ?9 ORDER BY o.id LIMIT ?10`

	// discardSetSQL puts the decision before the error that led to it.
	discardSetSQL = `UPDATE "outbox" SET discarded_at = ` + nowMillis + `,
		last_error = ?11 || ifnull('; ' || nullif(last_error, ''), '') `

	keySQL = ` AND ifnull(o.topic, '') = ?1 AND o.aggregate_type = ?2 AND o.aggregate_id = ?3`

	unblockSQL = `UPDATE "outbox" SET ` + freshSQL + `
		WHERE id IN (SELECT o.id FROM "outbox" o INDEXED BY "outbox_dead" WHERE ` + blockedRowSQL + keySQL + `) RETURNING id`

	// skipHeadSQL parks the first row of the key if its last attempt failed.
	skipHeadSQL = `UPDATE "outbox" SET dlq = 1, next_attempt_at = NULL,
		last_error = ?4 || ifnull('; ' || nullif(last_error, ''), '')
		WHERE next_attempt_at IS NOT NULL AND id = (SELECT o.id FROM "outbox" o INDEXED BY "outbox_unpublished"
			WHERE ` + unsettledSQL + keySQL + ` ORDER BY o.id LIMIT 1) RETURNING id`
)
