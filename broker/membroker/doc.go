// Package membroker is a message broker in memory: the reference implementation of [core.Broker], for tests,
// simulations and first steps. It keeps a log per destination, reads back what it stored ([Broker].Messages), and can
// be told to fail in all the ways in which real brokers fail ([Script]).
//
//	broker := membroker.New(membroker.Config{
//		Script: membroker.Calls(
//			membroker.BrokerDown(), // the first call
//			membroker.LoseReply(),  // the second: stored, but the answer is lost
//		), // later calls deliver
//	})
//
// Mapping: the topic is the destination and the aggregate id the token, unless Config.Strategy says otherwise; headers
// are those of [core.Record.WireHeaders]; nil and empty payloads stay different. Order: the order of the calls, and
// within a call that of the batch. Delivery: until the process ends. Waits are timers and channels only, so that tests
// may run under testing/synctest.
//
// Brokers that share a [Server] are like the clients of one cluster.
package membroker
