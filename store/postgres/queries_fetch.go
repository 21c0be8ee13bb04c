package postgres

// lastIDSQL is the last id drawn, 0 before the first. Not the sequence's last_value as a SELECT reads it: that takes no
// lock, and while nextval writes its WAL record, every 32nd time, the value stands 32 higher. An id too high looks like a
// server that went back when the next one is read, and makes a sample promise ids that are yet to be drawn.
const lastIDSQL = `coalesce(pg_sequence_last_value({'outbox_id_seq'}::regclass), 0)`

// originSQL names the server as it is now: another one after a restart, a failover or a restore. It fails on a standby.
const originSQL = `('x' || substr(md5(left(pg_walfile_name(pg_current_wal_lsn()), 8) ||
    extract(epoch FROM pg_postmaster_start_time())), 1, 16))::bit(64)::bigint`

// hotPlansSQL keeps the statements of a transaction on their indexes, in their order, whatever the statistics say of a table
// that was empty a moment ago, and however many rows one is about.
const hotPlansSQL = `set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true)`

// Fetch.
const (
	// observeSQL comes first in a fetch: which server this is, the last id drawn, what is open, which of the lanes are
	// held, and what was rewound in those.
	observeSQL = `
WITH held AS MATERIALIZED (
    SELECT l.lane FROM {outbox_lanes} l JOIN unnest($2::smallint[], $3::bigint[]) AS asked (lane, epoch)
        ON l.lane = asked.lane AND l.epoch = asked.epoch
    WHERE l.owner = $1
)
SELECT ` + hotPlansSQL + `,
       ` + originSQL + `, ` + lastIDSQL + `,
       pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint,
       ARRAY(SELECT x::text::bigint FROM pg_snapshot_xip(s) x ORDER BY x),
       ARRAY(SELECT lane FROM held),
       ARRAY(SELECT seq FROM {outbox_rewinds} WHERE lane IN (SELECT lane FROM held) ORDER BY seq LIMIT 1000)
FROM pg_current_snapshot() s`

	// xidSQL makes the transaction obtain its xid. As a sample it must come after observeSQL or prepareSettleSQL, and
	// before anything that writes or locks.
	xidSQL = `SELECT pg_current_xact_id()::text::bigint`

	columnsSQL = `o.id, o.lane, o.event_id, o.topic, o.aggregate_type, o.aggregate_id, o.event_type, o.payload, o.headers,
        o.created_at, o.attempt_count, o.first_failed_at, o.next_attempt_at, o.replay`

	// wantedSQL leaves out what the dispatcher holds or keeps back. Hashed subplans, which keep the order of the index.
	wantedSQL = `o.published_at IS NULL AND NOT o.dlq AND o.id NOT IN (SELECT unnest($6::bigint[]))
        AND (coalesce(o.topic, ''), o.aggregate_type, o.aggregate_id) NOT IN (
            SELECT c.topic, c.aggregate_type, c.aggregate_id
            FROM unnest($7::text[], $8::text[], $9::text[]) AS c (topic, aggregate_type, aggregate_id))`

	recordSQL = `b.id, b.lane, b.event_id, coalesce(b.topic, ''), b.aggregate_type, b.aggregate_id, b.event_type`
	stateSQL  = `b.headers, ` + timesSQL
	timesSQL  = `b.created_at, b.attempt_count, b.first_failed_at,
       CASE WHEN b.next_attempt_at = 'infinity' THEN ` + neverSQL + `
            WHEN b.next_attempt_at > clock_timestamp() THEN (extract(epoch FROM
                least(b.next_attempt_at, clock_timestamp() + interval '100 years') - clock_timestamp()) * 1000000)::bigint
            ELSE 0 END, b.replay`

	// neverSQL is the delay of a blocked row, whose next attempt is at infinity.
	neverSQL = `9223372036854775807`

	// candidatesSQL reads the rows of all lanes in one snapshot. Each lane brings its bounds ($1 lane, $2 mark, $3 gate);
	// $4 is the front, above which no lane was read before. Between mark and gate there is something to find only when
	// one of the transactions $5 is over. Below the front the lanes are read one by one, which is nothing to do for lanes
	// without late commits; above it all lanes ($10) together. Each part has its index of pending rows. At most $11 rows.
	candidatesSQL = `
    SELECT r.*, coalesce(octet_length(r.body), 0) + octet_length(r.event_id) + coalesce(octet_length(r.topic), 0) +
        octet_length(r.aggregate_type) + octet_length(r.aggregate_id) + octet_length(r.event_type) +
        coalesce(octet_length(r.headers::text), 0) AS size
    FROM (
        SELECT u.*, u.{body} AS body
        FROM (
            (SELECT o.* FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS l (lane, mark, gate)
             CROSS JOIN LATERAL (
                (SELECT ` + columnsSQL + ` FROM {outbox} o
                 WHERE o.lane = l.lane AND o.id > l.mark AND o.id <= l.gate AND ` + wantedSQL + `
                    AND (SELECT bool_or(pg_visible_in_snapshot(x::text::xid8, pg_current_snapshot()))
                         FROM unnest($5::bigint[]) x)
                 ORDER BY o.id LIMIT $11::bigint)
                UNION ALL
                (SELECT ` + columnsSQL + ` FROM {outbox} o
                 WHERE o.lane = l.lane AND o.id > l.gate AND o.id <= $4::bigint AND ` + wantedSQL + `
                 ORDER BY o.id LIMIT $11::bigint)
             ) o ORDER BY o.id LIMIT $11::bigint)
            UNION ALL
            (SELECT ` + columnsSQL + ` FROM {outbox} o
             WHERE o.id > $4::bigint AND o.lane >= 0 AND ($10::boolean[])[o.lane + 1] AND ` + wantedSQL + `
             ORDER BY o.id LIMIT $11::bigint)
        ) u ORDER BY u.id LIMIT $11::bigint
    ) r ORDER BY r.id OFFSET 0`

	// rowsSQL cuts the rows at $12 bytes. The row at which the bytes ran out comes without its payload, so that the caller
	// knows where the cut is.
	rowsSQL = `
SELECT ` + recordSQL + `, CASE WHEN b.before = 0 OR b.before + b.size <= $12::bigint THEN b.body END, ` + stateSQL + `,
       (b.before + b.size)::bigint
FROM (
    SELECT p.*, sum(p.size) OVER (ORDER BY p.id ROWS UNBOUNDED PRECEDING) - p.size AS before
    FROM (` + candidatesSQL + `
    ) p
) b WHERE b.before < $12::bigint ORDER BY b.id`

	// smallRowsSQL takes all rows for smaller than $12 bytes, so that nothing needs to be summed up, which takes as long
	// as reading the rows. A larger one comes without its payload and headers.
	smallRowsSQL = `
SELECT ` + recordSQL + `, CASE WHEN b.size <= $12::bigint THEN b.body END,
       CASE WHEN b.size <= $12::bigint THEN b.headers END, ` + timesSQL + `, b.size::bigint
FROM (` + candidatesSQL + `
) b ORDER BY b.id`

	// headsSQL reads rows by primary key, and by nothing else: see settleableSQL.
	headsSQL = `
SELECT ` + recordSQL + `, b.{body}, ` + stateSQL + `, 0::bigint
FROM unnest($1::bigint[], $2::text[]) AS h (id, event_id) JOIN {outbox} b ON b.event_id = h.event_id AND b.id = h.id
WHERE CASE WHEN b.dlq THEN false ELSE b.published_at IS NULL END AND b.lane = ANY ($3::smallint[])`

	// fenceSQL locks the lanes that the member holds under these epochs, so that nobody else can take them before the
	// transaction ends. Waiting for a lock it reads the lane again. The xid is obtained here at the latest.
	fenceSQL = `
SELECT l.lane, pg_current_xact_id()::text::bigint
FROM {outbox_lanes} l JOIN unnest($2::smallint[], $3::bigint[]) AS asked (lane, epoch)
    ON l.lane = asked.lane AND l.epoch = asked.epoch
WHERE l.owner = $1 ORDER BY l.lane FOR SHARE OF l`

	forgetRewindsSQL = `
DELETE FROM {outbox_rewinds} WHERE seq = ANY ($4::bigint[]) AND lane IN (` + leasedSQL + `)
RETURNING lane, id`

	// leasedSQL are the lanes that fenceSQL locked.
	leasedSQL = `SELECT l.lane FROM {outbox_lanes} l JOIN unnest($2::smallint[], $3::bigint[]) AS asked (lane, epoch)
        ON l.lane = asked.lane AND l.epoch = asked.epoch WHERE l.owner = $1`
)
