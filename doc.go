// Package outbox is a framework for the transactional outbox: events are written in the same transaction as the data
// they are about, and a dispatcher carries them to a message broker, at least once and in commit order per aggregate,
// with any number of replicas.
//
// This package holds no code. The tour:
//
//   - [github.com/go-outbox/outbox/core]: begin here. What you enqueue (Message, Enqueuer), the Dispatcher that carries
//     it, its configuration, and the contracts of stores and brokers.
//   - [github.com/go-outbox/outbox/store/postgres] and [github.com/go-outbox/outbox/store/sqlite]: the outbox in your
//     database.
//   - [github.com/go-outbox/outbox/broker/kafka]: where the events go.
//   - [github.com/go-outbox/outbox/store/memstore] and [github.com/go-outbox/outbox/broker/membroker]: both in memory,
//     for tests; they fail in all the ways that real ones do, when told to.
//   - [github.com/go-outbox/outbox/ordering]: what decides the order: keys, lanes, strategies and the gate.
//   - [github.com/go-outbox/outbox/store/storetest] and [github.com/go-outbox/outbox/broker/brokertest]: the contracts as
//     test suites, for those who write an adapter.
//   - cmd/outbox: the dispatcher as a program of its own, and the migrations.
//   - examples/quickstart: a service, its outbox and a checking consumer in one process.
//
// A service needs three things: a store on its database, whose Enqueuer it calls in its transactions; a broker; and a
// Dispatcher between them, in the same process or beside it. README.md shows all three in 30 lines, docs/ explains them.
package outbox
