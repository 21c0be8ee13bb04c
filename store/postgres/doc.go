// Package postgres keeps the outbox in PostgreSQL 13 or newer: a [github.com/go-outbox/outbox/core.Store] for any number
// of dispatchers and enqueuers, on github.com/jackc/pgx/v5.
//
//	store, err := postgres.Open(ctx, postgres.Config{DSN: dsn}) // or New(pool, cfg)
//	_, err = store.Migrate(ctx, len(store.Migrations()))        // or print the SQL of store.Migrations()
//
//	tx, err := pool.Begin(ctx)
//	_, err = tx.Exec(ctx, `INSERT INTO orders ...`)
//	_, err = store.In(tx).Enqueue(ctx, message)                 // InSQL for database/sql, EnqueueCopy for bulk
//	err = tx.Commit(ctx)                                        // both or neither
//	store.Nudge()                                               // optional: wakes a dispatcher in this process
//
// # Table
//
// Everything is in one schema and begins with the table's name: outbox, outbox_id_seq, outbox_lanes, outbox_members,
// outbox_rewinds, outbox_sleepers, outbox_archive with its partitions, outbox_migrations, and some functions. Four columns
// are enough for plain SQL from any language:
//
//	INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'ord_1', 'order.created', '{}')
//
// event_id is the primary key and defaults to a UUIDv7, created_at to now(), headers is a JSON object of strings, topic NULL
// means that the dispatcher's configuration decides. A row that [core.Message] would not allow is refused at the INSERT.
// Never give a value for id. To grant a role no more than that: INSERT on the four columns and USAGE on the sequence; and
// EXECUTE on the functions where PUBLIC does not have it. Look rows up by event_id: by id there are indexes of pending and
// dead rows only.
//
// What a person does by SQL: read anything; delete rows; and after making rows unpublished, tell the owner of their lane
// with INSERT INTO outbox_rewinds (lane, id). [Store.Requeue] does both. Without it they are found by the next sweep
// ([Config].Sweep).
//
// # Order
//
// Events of a key reach the broker in commit order, provided that writers of one aggregate are serialised before they
// enqueue, as they are when they lock or version-check its row. Config.StrictOrder is for those that are not.
//
// Transactions commit in another order than they draw their ids, and a fetch still returns every late commit, before any
// later record of its key: package internal/cursor has the reasons. Open transactions and snapshots of others, also in
// other databases, delay no event; a transaction that wrote and stays open costs a fetch nothing until it ends, as long
// as there are no more than a few of them.
//
// After a restart, failover or restore of the server everything in flight is read anew. Where a commit can be lost,
// because of synchronous_commit = off or an asynchronous standby that takes over, an event may have been published whose
// transaction is gone; nothing can help that.
//
// # Dispatchers
//
// A dispatcher holds lanes; a lane's lease lasts as long as its owner's membership, which one small UPDATE renews. All
// times are the server's. A settle is one transaction in one round trip: it locks the rows of its lanes, so that nobody
// takes them meanwhile, and writes all results. No session state is used but for LISTEN, so that poolers in transaction
// mode work; a Store that [Open] made notices PgBouncer and then uses no prepared statements.
//
// An idle dispatcher asks the trigger of the table, by a row in outbox_sleepers, to notify; while events flow nothing is
// notified, as a NOTIFY in every transaction would halve the rate of commits. Where max_prepared_transactions is above 0
// nothing is ever notified, and dispatchers of other processes find new events by polling.
//
// Every statement is within an explicit READ COMMITTED transaction and all names are qualified, so that neither
// default_transaction_isolation nor search_path matters. Fetches use SET LOCAL to stay on their indexes.
//
// # Months
//
// Config.Partitioned keeps the outbox in a partition for each month, so that old rows go by DROP TABLE, which leaves
// nothing to vacuum. Migrate makes the partitions of this month and the next two, and dispatchers go on with that; where
// none has run for so long, enqueuing fails and the error says what to call. [Store.Purge] drops months that are over.
// Keep few of them: a fetch looks into each.
//
// A unique index of such a table must contain created_at, so that none keeps an event id from coming again. Enqueue looks
// for the id, under a lock until the end of the transaction for each id that the caller chose, and behaves as usual in
// READ COMMITTED transactions; plain SQL and [Store.EnqueueCopy] may write an id twice.
//
// To move from a plain outbox, migrate a second one under another Table, let the applications enqueue there, let the
// dispatchers of the first one run until it is empty, and only then start those of the second: so the order is kept.
//
// # Settings
//
//	DSN           required by Open
//	Schema        public
//	Table         outbox
//	Lanes         64; fixed when the table is created
//	AfterPublish  mark (keep the row), archive (move it to a table with a partition for each month) or delete
//	Payload       json (byte for byte), jsonb (can be indexed) or bytea (anything); fixed when the table is created
//	Partitioned   false; fixed when the table is created
//	StrictOrder   false
//	Pooler        false; found out on the first connection
//	NoListen      false
//	Sweep         5m
package postgres
