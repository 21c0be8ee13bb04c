package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// section is a store or a broker as it is configured.
type section struct {
	path  string
	typ   string
	from  origin // of the type
	node  *node  // its block, or its URL
	isURL bool
	shape *shape // of its settings
	// given are the settings as configured, effective those with defaults.
	given, effective reflect.Value
}

// loadSection checks a section. It returns nil when it is not there, or when even its type is unknown.
func loadSection[F ~opener[T], T any](
	ctx context.Context, l *loader, n *node, path string, factories map[string]F,
) *section {
	if n == nil || n.unread {
		return nil
	}
	types := slices.Sorted(maps.Keys(factories))
	var s *section
	switch n.kind {
	case scalarNode:
		s = l.sectionFromURL(n, path, types)
	case mapNode:
		s = l.sectionFromMap(n, path, types)
	default:
		l.faults.add(n.from, path, "must be a URL, or a type and its settings (types: %s)", strings.Join(types, ", "))
	}
	if s == nil {
		return nil
	}
	t, err := probe(ctx, opener[T](factories[s.typ]))
	if err != nil { // it could be probed before
		l.faults.add(n.from, path, "%v", err)
		return nil
	}
	l.fill(s, t)
	return s
}

var scheme = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]*):`)

func (l *loader) sectionFromURL(n *node, path string, types []string) *section {
	found := scheme.FindStringSubmatch(n.text)
	if found == nil { // the text may be a password in the wrong place
		l.faults.add(n.from, path, "is not a URL; its scheme must be one of %s, or give type and settings below it",
			strings.Join(types, ", "))
		return nil
	}
	name := strings.ToLower(found[1])
	typ := name
	if meant, ok := l.registry.Schemes[name]; ok {
		typ = meant
	}
	if !slices.Contains(types, typ) {
		if n.raw != n.text {
			name = n.raw // what stands for a secret, not a part of it
		}
		l.faults.add(n.from, path, "unknown scheme %q; known are %s", name, strings.Join(types, ", "))
		return nil
	}
	return &section{path: path, typ: typ, from: n.from, node: n, isURL: true}
}

func (l *loader) sectionFromMap(n *node, path string, types []string) *section {
	s := &section{path: path, node: &node{kind: mapNode, from: n.from}}
	blocks := slices.DeleteFunc(slices.Clone(types), func(name string) bool { return n.get(name) == nil })
	shape := l.sectionKeys(n, path, types)
	for _, e := range n.entries {
		if _, known := shape.field(e.key); !known {
			(&decoder{faults: &l.faults, root: l.shape}).unknown(e, shape, path)
		}
	}
	named := l.sectionType(n, path, types, blocks)
	if named == nil {
		return nil
	}
	s.typ, s.from = named.text, named.from
	for _, name := range blocks {
		if name != s.typ {
			l.faults.add(n.keyAt(name), join(path, name), "is settings for another type than %s, %q (%s); keep only one block",
				join(path, typeKey), s.typ, s.from)
		}
	}
	switch block := n.get(s.typ); {
	case block != nil:
		s.node = block
	case len(blocks) > 0: // either the type is wrong or the block: what the other one lacks is no further fault
		return nil
	}
	s.path = join(path, s.typ)
	return s
}

// sectionKeys is the shape of a section in which only the block of the chosen type has keys: others are not meant.
func (l *loader) sectionKeys(n *node, path string, types []string) *shape {
	top := brokerKey
	if path == storeKey {
		top = storeKey
	}
	section, _ := l.shape.field(top)
	keys := record(field{key: typeKey, shape: stringShape()})
	for _, name := range types {
		block := field{key: name, shape: record()}
		if chosen := n.get(typeKey); chosen != nil && chosen.text == name {
			block, _ = section.shape.field(name)
		}
		keys.fields = append(keys.fields, block)
	}
	return keys
}

// sectionType returns the node of a known type, or nil after a fault.
func (l *loader) sectionType(n *node, path string, types, blocks []string) *node {
	named := n.get(typeKey)
	known := "known are " + strings.Join(types, ", ")
	switch {
	case named != nil && named.unread:
	case (named == nil || named.kind != scalarNode) && len(blocks) == 1:
		l.faults.add(n.keyAt(typeKey), join(path, typeKey), "is missing; did you mean %q?", blocks[0])
	case named == nil || named.kind != scalarNode:
		l.faults.add(n.keyAt(typeKey), join(path, typeKey), "is missing; %s", known)
	case slices.Contains(types, named.text):
		return named
	default:
		if near := nearest(named.text, types); near != "" {
			known = fmt.Sprintf("did you mean %q?", near)
		}
		l.faults.add(named.from, join(path, typeKey), "unknown %q; %s", named.raw, known)
	}
	return nil
}

// fill decodes and checks the settings.
func (l *loader) fill(s *section, t target) {
	s.shape = t.shape()
	before := len(l.faults.list)
	if s.isURL {
		l.refuse(s.parseURL(t), s.node, s.path, s.shape)
	} else {
		l.decoder().decode(s.node, s.shape, s.path, t.value)
	}
	s.given = t.value
	s.effective = withDefaults(t.value)
	if s.isURL && len(l.faults.list) > before {
		return // ParseURL has validated it
	}
	if !s.isURL {
		l.zeros(s.node, s.shape, s.path, s.given, s.effective)
	}
	if v, ok := s.effective.Interface().(interface{ Validate() error }); ok {
		l.refuse(v.Validate(), s.node, s.path, s.shape)
	}
}

func (s *section) parseURL(t target) error {
	if t.parse == nil {
		return errors.New("has no short form as a URL; give type and settings below it")
	}
	return t.parse(s.node.text)
}

// decode is what the factory gets when the section is opened. Load has checked that nothing is wrong.
func (s *section) decode(log *slog.Logger) func(any) error {
	return func(pointer any) error {
		t, err := targetOf(pointer)
		if err != nil {
			return err
		}
		if s.isURL {
			err := s.parseURL(t)
			t.setLogger(log)
			return err
		}
		d := decoder{faults: &faults{}, log: log}
		d.decode(s.node, t.shape(), s.path, t.value)
		return d.faults.err()
	}
}

// withDefaults calls the settings' own WithDefaults, if there is one.
func withDefaults(v reflect.Value) reflect.Value {
	method := v.MethodByName("WithDefaults")
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 || method.Type().Out(0) != v.Type() {
		return v
	}
	return method.Call(nil)[0]
}

// zeros reports a 0 that would silently become a default. n may be shorter than the value: then a default is meant.
func (l *loader) zeros(n *node, s *shape, path string, given, effective reflect.Value) {
	if n == nil || s.orderings != nil {
		return
	}
	switch {
	case s.kind == listShape && given.Len() == effective.Len():
		for i := range given.Len() {
			l.zeros(n.item(i), s.elem, index(path, i), given.Index(i), effective.Index(i))
		}
	case s.kind == recordShape:
		for _, f := range s.fields {
			l.zeros(n.get(f.key), f.shape, join(path, f.key), given.FieldByIndex(f.index), effective.FieldByIndex(f.index))
		}
	case s.kind == scalarShape && n.kind == scalarNode && !n.unread && s.typ.Kind() != reflect.String && strings.ContainsRune(n.text, '0') &&
		given.IsZero() && !effective.IsZero():
		l.faults.add(n.from, path, "%s would mean the default, %v; leave the key out for that, or say another value",
			n.raw, effective.Interface())
	}
}
