package postgres

// Settle.
const (
	// pendingSQL is true of rows that are neither settled nor parked.
	pendingSQL = `CASE WHEN o.dlq THEN false ELSE o.published_at IS NULL END`

	// prepareSettleSQL comes first: a client that is stopped in the middle must not hold the lanes for long. It reads the
	// first half of a sample.
	prepareSettleSQL = `
SELECT set_config('idle_in_transaction_session_timeout', $1, true), ` + hotPlansSQL + `,
       ` + originSQL + `, ` + lastIDSQL

	// settleableSQL finds the row that was read, and no other one that got its id, was sent again or is settled. By primary
	// key, and with a condition that no other index answers: statistics of a minute ago may say that nothing is pending, and
	// then the planner would rather read all that is, for each row to settle.
	settleableSQL = `
o.event_id = i.event_id{same_month} AND o.id = i.id AND o.replay = i.replay AND ` + pendingSQL + `
    AND o.lane = ANY (ARRAY(` + leasedSQL + `)) AND i.origin = (SELECT ` + originSQL + `)`

	settledSQL = `
FROM unnest($4::bigint[], $5::text[], $6::integer[], $7::bigint[], $8::timestamptz[])
    AS i (id, event_id, replay, origin, created_at)
WHERE ` + settleableSQL

	publishedSQL = `
WITH settled AS (
    UPDATE {outbox} o SET published_at = clock_timestamp()` + settledSQL + ` RETURNING o.id
) SELECT coalesce(array_agg(id), '{}') FROM settled`

	deletedSQL = `
WITH settled AS (
    DELETE FROM {outbox} o USING unnest($4::bigint[], $5::text[], $6::integer[], $7::bigint[], $8::timestamptz[])
    AS i (id, event_id, replay, origin, created_at)
    WHERE ` + settleableSQL + ` RETURNING o.id
) SELECT coalesce(array_agg(id), '{}') FROM settled`

	archivedSQL = `
WITH settled AS (
    DELETE FROM {outbox} o USING unnest($4::bigint[], $5::text[], $6::integer[], $7::bigint[], $8::timestamptz[])
    AS i (id, event_id, replay, origin, created_at)
    WHERE ` + settleableSQL + ` RETURNING o.*
), archived AS (
    INSERT INTO {outbox_archive} (id, event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers,
        created_at, published_at, attempt_count, last_error, first_failed_at, replay)
    SELECT id, event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers,
        created_at, clock_timestamp(), attempt_count, last_error, first_failed_at, replay FROM settled
) SELECT coalesce(array_agg(id), '{}') FROM settled`

	// failedSQL writes failures, blocks and parks. Attempts are absolute, so that a repeat counts nothing twice.
	failedSQL = `
WITH settled AS (
    UPDATE {outbox} o SET attempt_count = i.attempts, last_error = i.reason, dlq = i.park,
        first_failed_at = coalesce(o.first_failed_at, clock_timestamp()),
        next_attempt_at = CASE WHEN i.park THEN NULL WHEN i.retry_in = ` + neverSQL + ` THEN 'infinity'
            ELSE clock_timestamp() + i.retry_in * interval '1 microsecond' END
    FROM unnest($4::bigint[], $5::text[], $6::integer[], $7::bigint[], $8::timestamptz[], $9::integer[], $10::text[],
        $11::boolean[], $12::bigint[]) AS i (id, event_id, replay, origin, created_at, attempts, reason, park, retry_in)
    WHERE ` + settleableSQL + ` RETURNING o.id
) SELECT coalesce(array_agg(id), '{}') FROM settled`
)
