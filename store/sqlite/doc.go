// Package sqlite keeps the outbox in a SQLite file: a [github.com/go-outbox/outbox/core.Store] for services that live
// on one machine, for demos and for tests. It uses modernc.org/sqlite and so needs no cgo.
//
// # Table
//
// [Store].Migrate creates the table outbox(id, event_id, topic, aggregate_type, aggregate_id, event_type, payload,
// headers, created_at, published_at, attempt_count, next_attempt_at, last_error, first_failed_at, dlq, discarded_at,
// replay), and beside it outbox_members, outbox_lanes, outbox_rewinds, outbox_fingerprints and outbox_migrations. Their names begin
// with [Config].Table. Times are milliseconds since 1970, headers is a JSON object of strings or NULL. Four columns are
// enough for a plain INSERT from any language:
//
//	INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
//	VALUES ('order', 'ord_1', 'order.created', '{"total": 42}')
//
// A row that [core.Message] would not allow (headers that are not JSON, text that is not UTF-8) is parked when it is
// reached: dlq becomes 1, last_error says why, and the rows behind it flow.
//
// The next_attempt_at of a blocked row is 9223372036854775807. What is parked or blocked is for [Store.ListDead],
// [Store.RequeueDead], [Store.DiscardDead], [Store.Unblock] and [Store.SkipHead]; they read an index that has nothing else.
//
// # Order
//
// SQLite has one writer at a time, so ids grow in commit order and a fetch misses nothing. The table has one lane: one
// dispatcher works, others stand by and take over when its lease ends. Events are in the order of their INSERTs, never
// of created_at.
//
// A dispatcher reads each id once. Whoever makes a row unpublished by hand, or inserts one under an id of their own,
// tells it so: INSERT INTO outbox_rewinds (id) VALUES (...). [Store].Requeue does that itself.
//
// # Connections and locks
//
// [Open] keeps one writing connection and a small pool for reading. The application takes its transactions from
// [Store].DB (or uses [Store].InTx), so that it shares the writing connection: it then waits in line instead of
// getting SQLITE_BUSY. Transactions begin IMMEDIATE, because one that reads first and writes later can fail with
// SQLITE_BUSY whatever the busy timeout is. No lock is held while a message is published.
//
// Within a transaction only [Store].In may be used: any other method of the Store waits for the connection that the
// transaction occupies, until its context ends. For the same reason close sql.Rows of DB before you begin a
// transaction, and keep transactions short: the dispatcher waits for them. Other processes wait up to
// [Config].BusyTimeout for each other.
//
// # Limits
//
// One file on a local disk: locking does not work on network file systems, and replicas on other machines cannot share
// the file. Databases in memory work with [New] and a pool of one connection. A sleeping dispatcher wakes at once on
// [Store].Nudge, and within about 5 ms when another process commits; with [New] it polls for those.
//
// # Settings
//
//	Path          file name or file: URI; required by Open
//	Table         outbox
//	AfterPublish  mark (keep the row, with published_at) or delete
//	Payload       json (nil or valid JSON, kept byte for byte) or bytes (anything)
//	BusyTimeout   10s
//	Synchronous   full (a commit survives a power cut) or normal (it may be lost, though its event was published)
//
// [ParseURL] reads them from a URL such as sqlite:demo.db?table=events&after_publish=delete.
//
// # Example
//
//	store, err := sqlite.Open(ctx, sqlite.Config{Path: "shop.db"})
//	// once per deployment, or `outbox migrate up`:
//	_, err = store.Migrate(ctx, len(store.Migrations()))
//
//	err = store.InTx(ctx, func(tx *sql.Tx, box core.Enqueuer) error {
//		if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES ('ord_1')`); err != nil {
//			return err
//		}
//		_, err := box.Enqueue(ctx, core.Message{
//			AggregateType: "order", AggregateID: "ord_1", EventType: "order.created", Payload: body,
//		})
//		return err
//	})
package sqlite
