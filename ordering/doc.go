// Package ordering holds everything that decides the order of events: the [Key] that is the unit of order, the stable
// [Hash] that spreads aggregates over lanes, the [Strategy] that tells a broker what keeps a key together there, the
// [Assign] rule by which replicas share lanes without talking to each other, and the [Gate] that holds records of one
// lane back until they may be published.
//
// The package is pure: no I/O, no goroutines, no clock of its own, the standard library only.
package ordering
