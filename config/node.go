package config

import (
	"slices"
)

type nodeKind uint8

const (
	null nodeKind = iota // a key without a value
	scalarNode
	listNode
	mapNode
)

// node is a value with the place that it comes from.
type node struct {
	kind nodeKind
	from origin
	// raw is a scalar as it was written, text what it became. Only raw is ever shown.
	raw, text string
	// fromFile says that text is the content of a file, or has such in it.
	fromFile bool
	// unread says that text could not be made, which is a fault already.
	unread  bool
	items   []*node
	entries []entry
}

// entry is a key of a map and its value.
type entry struct {
	key   string
	at    origin
	value *node
}

func newScalar(text string, from origin) *node {
	return &node{kind: scalarNode, raw: text, text: text, from: from}
}

// get returns the value of a key, or nil. It works on a nil node too.
func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	if i := n.index(key); i >= 0 {
		return n.entries[i].value
	}
	return nil
}

func (n *node) index(key string) int {
	return slices.IndexFunc(n.entries, func(e entry) bool { return e.key == key })
}

// item returns an item of a list, or nil.
func (n *node) item(i int) *node {
	if n == nil || i >= len(n.items) {
		return nil
	}
	return n.items[i]
}

func (n *node) put(key string, at origin, value *node) {
	if i := n.index(key); i >= 0 {
		n.entries[i] = entry{key, at, value}
		return
	}
	n.entries = append(n.entries, entry{key, at, value})
}

// keyAt is where a key was written; without the key, where its map is.
func (n *node) keyAt(key string) origin {
	if i := n.index(key); i >= 0 {
		return n.entries[i].at
	}
	return n.from
}

// merge lays a later file over an earlier one: maps key by key, everything else as a whole.
func merge(base, over *node) *node {
	if base == nil || base.kind != mapNode || over.kind != mapNode {
		return over
	}
	for _, e := range over.entries {
		base.put(e.key, e.at, merge(base.get(e.key), e.value))
	}
	return base
}
