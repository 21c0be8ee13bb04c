// Package mux is a core.Broker made of several: each topic goes to the first broker whose pattern matches it.
//
// Every broker keeps its own ordering strategy, capabilities, calls in flight and outages: while one is down, the
// topics of the others flow (the dispatcher learns that through core.Multi), and where one can go over to another
// strategy while it runs, it can here (core.Adopter). A topic that no pattern matches cannot be published; its events
// are parked with the reason, so end the list with the pattern "*" unless that is what you want.
//
//	b, err := mux.New(mux.Config{
//		Brokers: map[string]core.Broker{"events": kafkaBroker, "jobs": sqsBroker},
//		Routes: []mux.Route{
//			{Match: "jobs.*", Broker: "jobs"},
//			{Match: "*", Broker: "events"},
//		},
//	})
package mux
