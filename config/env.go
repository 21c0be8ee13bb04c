package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// envPrefix begins the variables that are ours.
const envPrefix = "OUTBOX_"

// notOurs are variables with our prefix that are no keys: those of this project's tests and scripts, and those that
// Kubernetes and Docker set for a service whose name begins with "outbox".
var notOurs = regexp.MustCompile(`^OUTBOX_(TEST_.*|REQUIRE|SERVICES_.*|STOP_SERVICES|` +
	`(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?))$`)

// maxIndex bounds the numbers of list items in names.
const maxIndex = 999

// override lays the environment and the settings over the files.
func (l *loader) override(root *node) {
	rank := len(l.in.Files)
	type variable struct {
		path []string
		from origin
	}
	var variables []variable
	for _, name := range slices.Sorted(maps.Keys(l.environ)) {
		rest, ours := strings.CutPrefix(name, envPrefix)
		if !ours || l.environ[name] == "" || l.expanded[name] || notOurs.MatchString(name) {
			continue
		}
		path := resolve(rest, l.shape, root)
		if path == nil {
			l.faults.add(origin{name: name, rank: rank}, "", "%s", l.unknownVariable(rest))
			continue
		}
		variables = append(variables, variable{path, origin{name: name, rank: rank}})
	}
	// What is above goes first: a URL for the whole broker must not undo what changes a part.
	slices.SortStableFunc(variables, func(a, b variable) int { return len(a.path) - len(b.path) })
	for _, v := range variables {
		l.set(root, l.shape, v.path, newScalar(l.environ[v.from.name], v.from))
	}
	for _, s := range l.in.Settings {
		from := origin{name: s.Origin, rank: rank + 1}
		l.set(root, l.shape, strings.Split(s.Path, "."), newScalar(s.Value, from))
	}
}

// resolve finds the path that a variable's name means, or nil. Keys have "_" in them too, so all ways to read the name
// are tried.
func resolve(rest string, s *shape, n *node) []string {
	switch s.kind {
	case recordShape:
		for _, f := range s.fields {
			if path := resolveBelow(rest, f.key, f.shape, n.get(f.key)); path != nil {
				return path
			}
		}
	case dictShape:
		return resolveDict(rest, s, n)
	case listShape:
		number, _, _ := strings.Cut(rest, "_")
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i <= maxIndex && strconv.Itoa(i) == number {
			return resolveBelow(rest, number, s.elem, n.item(i))
		}
	}
	return nil
}

// resolveBelow tries whether the name goes on with a key.
func resolveBelow(rest, key string, s *shape, n *node) []string {
	after, ok := strings.CutPrefix(rest, shout(key))
	switch {
	case !ok:
		return nil
	case after == "":
		// A list of single values may be given as a whole, separated by commas.
		if s.kind == scalarShape || s.line || s.kind == listShape && s.elem.kind == scalarShape {
			return []string{key}
		}
		return nil
	case after[0] != '_':
		return nil
	}
	if path := resolve(after[1:], s, n); path != nil {
		return append([]string{key}, path...)
	}
	return nil
}

// resolveDict tries the keys that are there, and then those that the name itself may have, in lower case.
func resolveDict(rest string, s *shape, n *node) []string {
	if n != nil {
		for _, e := range n.entries {
			if path := resolveBelow(rest, e.key, s.elem, e.value); path != nil {
				return path
			}
		}
	}
	for i := 1; i <= len(rest); i++ {
		if i < len(rest) && rest[i] != '_' {
			continue
		}
		if path := resolveBelow(rest, strings.ToLower(rest[:i]), s.elem, nil); path != nil {
			return path
		}
	}
	return nil
}

// unknownVariable says what a variable that names no key may have meant.
func (l *loader) unknownVariable(rest string) string {
	var names []string
	l.shape.leaves(nil, func(path []string) {
		parts := make([]string, len(path))
		for i, key := range path {
			parts[i] = shout(key)
		}
		names = append(names, strings.Join(parts, "_"))
	})
	if near := nearest(rest, names); near != "" {
		return fmt.Sprintf("names no key; did you mean %s%s?", envPrefix, near)
	}
	beginnings := l.shape.keys()
	for i, key := range beginnings {
		beginnings[i] = envPrefix + shout(key)
	}
	return "names no key; the names begin with " + either(beginnings)
}

// set puts a value at a path, making what is missing on the way.
func (l *loader) set(n *node, s *shape, path []string, value *node) {
	step := path[0]
	if n.kind == null {
		n.kind = mapNode
		if s.kind == listShape {
			n.kind = listNode
		}
	}
	if n.kind == scalarNode {
		l.faults.add(value.from, "", "cannot change a part of what is given as one value by %s", n.from)
		return
	}
	var below *shape
	switch {
	case s.kind == listShape && n.kind == listNode:
		below = s.elem
	case s.kind == dictShape && n.kind == mapNode:
		below = s.elem
	case s.kind == recordShape && n.kind == mapNode:
		f, _ := s.field(step)
		below = f.shape
	}
	var slot *node
	if below != nil {
		slot = slotOf(n, s, step, value.from)
	}
	if slot == nil {
		l.faults.add(value.from, "", "cannot change a part of what stands at %s: it has another form", n.from)
		return
	}
	if len(path) > 1 {
		l.set(slot, below, path[1:], value)
		return
	}
	*slot = *value
	if below.kind == listShape {
		*slot = *splitList(value)
	}
}

// slotOf returns the node at a key or index, made if it is missing, or nil when the index is none.
func slotOf(n *node, s *shape, step string, from origin) *node {
	if s.kind != listShape {
		if n.get(step) == nil {
			n.put(step, from, &node{kind: null, from: from})
		}
		return n.get(step)
	}
	i, err := strconv.Atoi(step)
	if err != nil || i < 0 || i > maxIndex {
		return nil
	}
	for len(n.items) <= i {
		n.items = append(n.items, nil)
	}
	if n.items[i] == nil {
		n.items[i] = &node{kind: null, from: from}
	}
	return n.items[i]
}

// splitList makes a list of a text with commas.
func splitList(value *node) *node {
	list := &node{kind: listNode, from: value.from}
	for _, text := range strings.Split(value.text, ",") {
		list.items = append(list.items, newScalar(strings.TrimSpace(text), value.from))
	}
	return list
}
