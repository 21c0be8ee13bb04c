// Package cursor decides what a fetch from PostgreSQL must read so that it misses no late commit, and how little is
// enough. It is pure: no I/O, no goroutines, no clock of its own.
//
// Transactions commit in another order than they draw their ids, so a row can appear below ids that were returned
// before. Per lane the cursor keeps a position, up to which everything visible was returned, and a lower mark, up to
// which nothing can appear any more; a fetch reads everything above the mark. Three facts bring the mark up:
//
//   - A transaction has its xid before it draws an id (the default of the id column sees to that).
//   - A sample is (last id drawn, xid of a transaction that got its xid after that was read). Whoever drew an id up to
//     the sample's has a lower xid than the sample's.
//   - When the oldest open transaction of a later snapshot is not below the sample's xid, they are all over, and the
//     sample's id is settled.
//
// A transaction that stays open holds all that up, as it may have drawn any id. The gate makes it cheap: among the
// samples below the snapshot's end it takes the newest that all but a few open transactions are past. Rows between
// mark and gate can only come from these few, so the range is read only once one of them is over.
//
// What a fetch may rely on is what was known when it was sent; what it found out is installed with its reply, for the
// next one. A reply from another server than the last (restart, failover, restore) voids everything.
package cursor
