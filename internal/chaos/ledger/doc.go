// Package ledger compares what was committed with what arrived.
//
// The writers keep a [Ledger], the consumer keeps a [Journal], neither knows of the other, and [Compare] says what they
// disagree about.
package ledger
