package core

import "strings"

const (
	switchingMark = "switching: "
	switchingTo   = " -> "
)

// Switching is what a [FingerprintKeeper] remembers of a destination while it goes over from one ordering strategy to
// another: nobody publishes there, and nobody has to do anything but wait. Whoever leads the change writes it with
// [FingerprintKeeper].AcceptFingerprint, waits until no dispatcher can have a publish call in progress any more, does
// what has to be done in between, and writes To alone at the end.
//
// A dispatcher trusts what it has read for its Config.LeaseTTL at most, and a publish call ends with its
// Config.PublishTimeout. So wait for the sum of both at least, and for another LeaseTTL to be generous.
type Switching struct{ From, To string }

// String is the fingerprint to be remembered, which is no strategy's: "switching: From -> To".
func (s Switching) String() string { return switchingMark + s.From + switchingTo + s.To }

// ParseSwitching reads a fingerprint. It returns false for one that is a strategy's.
func ParseSwitching(fingerprint string) (Switching, bool) {
	both, ok := strings.CutPrefix(fingerprint, switchingMark)
	if !ok {
		return Switching{}, false
	}
	from, to, ok := strings.Cut(both, switchingTo)
	return Switching{From: from, To: to}, ok
}
