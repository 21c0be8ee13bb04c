package postgres

// Purge. $1 is a lock that whoever purges holds until the end of its transaction: one at a time.
const (
	aloneSQL = `(SELECT pg_try_advisory_xact_lock($1))`

	// indexedSQL keeps a transaction from reading whole tables.
	indexedSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true)`

	// purgeSQL deletes the next rows after an event id. now() and not clock_timestamp(), whose value is not known when the
	// partitions are chosen.
	purgeSQL = `
WITH old AS MATERIALIZED (
    SELECT event_id, created_at FROM {outbox}
    WHERE ` + aloneSQL + ` AND event_id > $3 AND published_at < now() - $2::interval{old_month}
    ORDER BY event_id LIMIT $4 FOR UPDATE SKIP LOCKED
), purged AS (
    DELETE FROM {outbox} o USING old WHERE o.event_id = old.event_id AND o.created_at = old.created_at RETURNING o.event_id
) SELECT count(*), coalesce(max(event_id), '') FROM purged`

	purgeArchivedSQL = `
WITH old AS MATERIALIZED (
    SELECT id, published_at FROM {outbox_archive}
    WHERE ` + aloneSQL + ` AND id > $3::text::bigint AND published_at < now() - $2::interval
    ORDER BY id LIMIT $4
), purged AS (
    DELETE FROM {outbox_archive} o USING old WHERE o.id = old.id AND o.published_at = old.published_at RETURNING o.id
) SELECT count(*), coalesce(max(id), 0)::text FROM purged`

	// monthsOverSQL names the partitions of a table that end before the time, the oldest first. The bound is written as
	// the session writes times, and so it is read.
	monthsOverSQL = `
SELECT m.oid::regclass::text, greatest(m.reltuples, 0)::bigint
FROM (SELECT c.oid, c.reltuples,
          (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1]::timestamptz AS ends
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = $1::text::regclass) m
WHERE m.ends <= now() - $2::interval ORDER BY m.ends`

	// unsettledSQL is quick to answer, by the partial indexes; neededSQL may have to read the whole partition.
	unsettledSQL = `
SELECT EXISTS (SELECT FROM %[1]s WHERE published_at IS NULL AND NOT dlq) OR EXISTS (SELECT FROM %[1]s WHERE dlq)`
	neededSQL = unsettledSQL + ` OR EXISTS (SELECT FROM %[1]s WHERE published_at >= now() - $1::interval)`
)
