// Package memstore is a [core.Store] in memory: for tests, for examples, and as the reference that shows what the
// contract means. Nothing survives the process.
//
// It behaves as a database does where that matters to order and loss: a transaction draws its ids when it enqueues and
// becomes visible when it commits, late and in any order; leases expire by the store's clock; settles are fenced; and
// [Config.Fault] can fail any call before it is done, or after it is done with its answer lost.
//
//	store, err := memstore.New(memstore.Config{})
//	tx := store.Begin()
//	ids, err := tx.Enqueue(ctx, core.Message{AggregateType: "order", AggregateID: "ord_1", EventType: "order.created"})
//	err = tx.Commit() // now a dispatcher finds it
//
// What a person does to a table by SQL are methods here: [Store.Rows] and [Store.Row] read it, [Store.Requeue],
// [Store.Purge], [Store.Delete] and [Store.Expire] change it, [Store.Restart] is a crash of the server. [Store.Replica] opens the same
// tables a second time, as another process would.
//
// The clock is time.Now, so that a test in a testing/synctest bubble owns the time of a store made in that bubble.
package memstore
