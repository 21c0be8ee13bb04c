// Package sim simulates dispatchers under everything that goes wrong. It holds tests only.
//
// Real dispatchers of package core run on a model of PostgreSQL, read through the real cursor, or on memstore, and
// publish to membroker. Processes crash and are stopped past their lease, answers get lost, servers fail over to
// replicas that lag behind, people requeue, unblock, skip and delete at any moment. All of it happens in virtual time
// and follows from one seed, so that a run that fails can be repeated step by step:
//
//	go test ./store/postgres/internal/sim -run Simulation -v -sim.seed 17
//
// An agenda puts everything in one order: each statement at the server, each landing at the broker, each request and
// each reply is one moment, and nothing else happens in it. A ledger that knows neither the dispatcher nor the cursor
// compares the broker's log with what was committed.
package sim
