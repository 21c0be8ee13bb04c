// Package core is the heart of the outbox: what users enqueue ([Message], [Enqueuer]), the contracts that adapters
// implement ([Store], [Broker]) and the [Dispatcher] that carries records from one to the other.
//
// A service writes a [Message] through its store's Enqueuer in the same transaction as its own data. A Dispatcher
// fetches committed records, publishes them and settles them: at least once, in commit order per
// [github.com/go-outbox/outbox/ordering.Key], with as many replicas as you like.
//
//	d, err := core.NewDispatcher(store, broker, core.Config{})
//	if err != nil {
//		return err
//	}
//	return d.Run(ctx) // blocks; cancel ctx to finish what is in flight and return
//
// Whoever writes a Store runs package store/storetest against it, whoever writes a Broker runs broker/brokertest: the
// subtests of these kits are the contract, the prose here explains them.
//
// The package uses the standard library only.
package core
