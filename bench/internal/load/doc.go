// Package load makes the events that everything is measured with, and checks what became of them: the same JSON for the
// outbox and for the peers, numbered in the order of their commits.
package load
