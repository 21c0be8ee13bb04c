package config

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/go-outbox/outbox/core"
)

// complaint is what a Validate says about one key.
type complaint struct {
	at           origin
	path, reason string
	given        bool // the key is there; otherwise it is missing, or has its default
}

// refuse reports what a Validate or a ParseURL says, each fault at the place that it is about. What only follows from
// another fault is left out: one cause is one message.
func (l *loader) refuse(err error, n *node, path string, s *shape) {
	names := s.goNames(map[string]bool{})
	var found []complaint
	var whole []error // of no single key
	for _, one := range flatten(err) {
		var fault *core.FieldError
		if !errors.As(one, &fault) {
			whole = append(whole, one)
			continue
		}
		c := complaint{reason: retell(fault.Reason, names)}
		c.at, c.path, c.given = locate(n, path, fault.Path)
		if l.faults.has(c.path) || !c.given && l.faults.meant[c.path] {
			continue // its value could not be read, or has the wrong name
		}
		found = append(found, c)
	}
	unread := slices.Clone(l.faults.list)
	for _, c := range found {
		follows := slices.ContainsFunc(found, c.follows) ||
			slices.ContainsFunc(unread, func(p placed) bool { return c.compares(p.fault.Path) })
		if !follows && !l.faults.has(c.path) {
			l.faults.add(c.at, c.path, "%s", c.reason)
		}
	}
	for _, one := range whole {
		l.faults.add(n.from, path, "%v", one)
	}
}

// follows tells whether this is another complaint once more: of the value that this key takes over from the other, or
// of one that is compared with it.
func (c complaint) follows(other complaint) bool {
	if !other.given || other.path == c.path {
		return false
	}
	_, here := cutLast(c.path)
	_, there := cutLast(other.path)
	return !c.given && here == there && c.reason == other.reason || c.compares(other.path)
}

// compares tells whether the reason names the key of that path, which stands beside this one.
func (c complaint) compares(path string) bool {
	within, _ := cutLast(c.path)
	beside, key := cutLast(path)
	return path != c.path && within == beside && key != "" && slices.Contains(words.FindAllString(c.reason, -1), key)
}

var words = regexp.MustCompile(`\w+`)

// cutLast splits a path before its last key.
func cutLast(path string) (above, key string) {
	i := strings.LastIndexByte(path, '.')
	return path[:max(i, 0)], path[i+1:]
}

// flatten takes joined errors apart, and drops what stands before them.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	//nolint:errorlint // the tree itself is walked
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range e.Unwrap() {
			all = append(all, flatten(one)...)
		}
		return all
	case interface{ Unwrap() error }:
		if below := flatten(e.Unwrap()); len(below) > 1 {
			return below
		}
	}
	return []error{err}
}
