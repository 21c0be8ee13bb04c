package postgres

// Purge. $1 is a lock that whoever purges holds until the end of its transaction: one at a time.
const (
	aloneSQL = `(SELECT pg_try_advisory_xact_lock($1))`

	// indexedSQL keeps a transaction from reading whole tables.
	indexedSQL = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true)`

	// heapsSQL names the tables whose rows may have been published before a time, and tells their pages: the table itself,
	// or its partitions but those that begin later. The bound is written as the session writes times, and so it is read.
	heapsSQL = `
SELECT h.oid::regclass::text, pg_relation_size(h.oid) / current_setting('block_size')::bigint
FROM (SELECT c.oid, (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\)'))[1]::timestamptz AS begins
      FROM pg_class c WHERE c.relkind = 'r' AND (c.oid = $1::text::regclass
          OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = $1::text::regclass))) h
WHERE h.begins IS NULL OR h.begins < now() - $2::interval ORDER BY h.oid`

	// purgeSQL deletes published rows of the pages from $3 up to $4, as no index leads to them: an entry for each would
	// cost whoever publishes more than reading the pages does. Who is not alone deletes nothing.
	purgeSQL = `
WITH alone AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock($1) AS yes
), old AS MATERIALIZED (
    SELECT o.ctid AS place FROM %[1]s o
    WHERE (SELECT yes FROM alone) AND o.ctid >= ('(' || $3::bigint || ',0)')::tid AND o.ctid < ('(' || $4::bigint || ',0)')::tid
      AND o.published_at < now() - $2::interval
    LIMIT $5 FOR UPDATE SKIP LOCKED
), purged AS (
    DELETE FROM %[1]s WHERE ctid = ANY (ARRAY(SELECT place FROM old)) RETURNING 1
) SELECT count(*), (SELECT yes FROM alone) FROM purged`

	purgeArchivedSQL = `
WITH old AS MATERIALIZED (
    SELECT id, published_at FROM {outbox_archive}
    WHERE ` + aloneSQL + ` AND id > $3 AND published_at < now() - $2::interval
    ORDER BY id LIMIT $4
), purged AS (
    DELETE FROM {outbox_archive} o USING old WHERE o.id = old.id AND o.published_at = old.published_at RETURNING o.id
) SELECT count(*), coalesce(max(id), 0) FROM purged`

	// monthsOverSQL names the partitions of a table that end before the time, the oldest first.
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
