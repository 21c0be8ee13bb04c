package config

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// decoder puts nodes into Go values.
type decoder struct {
	faults *faults
	root   *shape // of the whole file, to find keys at the wrong level; nil when there is none
	log    *slog.Logger
}

func (d *decoder) decode(n *node, s *shape, path string, into reflect.Value) {
	switch {
	case n == nil: // an item of a list that only a later variable skips
		d.faults.add(origin{}, path, "is missing: a variable sets a later item only")
	case n.unread:
	case s.orderings != nil:
		if d.isMap(n, path, s) {
			d.ordering(n, s, path, into)
		}
	case s.kind == recordShape:
		d.record(n, s, path, into)
	case s.kind == dictShape:
		if d.isMap(n, path, s) {
			d.dict(n, s, path, into)
		}
	case s.kind == listShape:
		if n.kind != listNode {
			d.faults.add(n.from, path, "must be a list, such as [%s]", exampleOf(s.elem))
			return
		}
		list := reflect.MakeSlice(s.typ, len(n.items), len(n.items))
		for i, item := range n.items {
			d.decode(item, s.elem, index(path, i), list.Index(i))
		}
		into.Set(list)
	case n.kind == null:
		d.faults.add(n.from, path, "has no value; leave the key out to get its default")
	case n.kind != scalarNode:
		d.faults.add(n.from, path, "must be a single value, such as %s", exampleOf(s))
	default:
		if err := setScalar(into, n); err != nil {
			d.faults.add(n.from, path, "%v", err)
		}
	}
}

// isMap accepts a key without a value as an empty map.
func (d *decoder) isMap(n *node, path string, s *shape) bool {
	if n.kind == mapNode || n.kind == null {
		return true
	}
	which := ""
	if s.kind == recordShape {
		which = ": " + strings.Join(s.keys(), ", ")
	}
	d.faults.add(n.from, path, "must have keys below it%s", which)
	return false
}

func (d *decoder) record(n *node, s *shape, path string, into reflect.Value) {
	if s.logger != nil && d.log != nil {
		into.FieldByIndex(s.logger).Set(reflect.ValueOf(d.log))
	}
	if !d.isMap(n, path, s) {
		return
	}
	for _, e := range n.entries {
		if f, ok := s.field(e.key); ok {
			d.decode(e.value, f.shape, join(path, e.key), into.FieldByIndex(f.index))
		} else {
			d.unknown(e, s, path)
		}
	}
}

func (d *decoder) dict(n *node, s *shape, path string, into reflect.Value) {
	dict := reflect.MakeMapWithSize(s.typ, len(n.entries))
	for _, e := range n.entries {
		value := reflect.New(s.typ.Elem()).Elem()
		d.decode(e.value, s.elem, join(path, e.key), value)
		dict.SetMapIndex(reflect.ValueOf(e.key).Convert(s.typ.Key()), value)
	}
	into.Set(dict)
}

// unknown reports a key that the shape does not have, and notes which one is meant, so that this one is not missing too.
func (d *decoder) unknown(e entry, s *shape, path string) {
	below := join(path, e.key)
	hint, meant := whyNot(below), ""
	if hint == "" {
		hint, meant = suggest(e.key, path, s, d.root)
	}
	d.faults.mean(meant)
	d.faults.add(e.at, "", "unknown key %q; %s", below, hint)
}

var itemNumber = regexp.MustCompile(`\[\d+\]`)

// whyNot gives the reason where one may well expect a key.
func whyNot(path string) string {
	switch itemNumber.ReplaceAllString(path, "[]") {
	case "store.sqlite.lanes":
		return "SQLite has one writer, and so one lane, in which one dispatcher works; use postgres to share the work"
	case "dispatchers", "replicas", "dispatcher.dispatchers", "dispatcher.replicas", "store.sqlite.dispatchers":
		return "one process runs one dispatcher: start more of them to share the lanes of the store " +
			"(SQLite has one lane: one dispatcher works, the others stand by)"
	case "dispatcher.topic_retry[].retry":
		return `what is below it stands right beside "match": {match: "orders.*", max_attempts: 3, exhausted: block}`
	default:
		return ""
	}
}

func exampleOf(s *shape) string {
	switch {
	case s.kind == recordShape && len(s.fields) > 0:
		return fmt.Sprintf("{%s: %s, ...}", s.fields[0].key, exampleOf(s.fields[0].shape))
	case s.kind != scalarShape:
		return "..."
	case s.typ == durationType:
		return "5s"
	case s.typ.Kind() == reflect.Bool:
		return "true"
	case s.typ.Kind() == reflect.String:
		return "text"
	default:
		return "10"
	}
}

var noUnit = regexp.MustCompile(`^[+-]?\d+(\.\d+)?$`)

// setScalar reads a scalar as what the field is. Its error shows the text as it was written.
func setScalar(into reflect.Value, n *node) error {
	switch {
	case into.Type() == durationType:
		d, err := time.ParseDuration(n.text)
		switch {
		case err == nil:
			into.SetInt(int64(d))
		case noUnit.MatchString(n.text):
			return fmt.Errorf("%q has no unit; write %sms, %ss or %sm", n.raw, n.raw, n.raw, n.raw)
		default:
			return fmt.Errorf("%q is not a duration such as 250ms, 5s or 1m30s", n.raw)
		}
	case into.Kind() == reflect.String:
		into.SetString(n.text)
	case into.Kind() == reflect.Bool:
		switch n.text {
		case "true", "false":
			into.SetBool(n.text == "true")
		default:
			return fmt.Errorf("%q is not true or false", n.raw)
		}
	case into.Kind() == reflect.Float64:
		x, err := strconv.ParseFloat(n.text, 64)
		if err != nil {
			return fmt.Errorf("%q is not a number", n.raw)
		}
		into.SetFloat(x)
	default:
		i, err := strconv.ParseInt(n.text, 10, into.Type().Bits())
		if errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%q is too large a number", n.raw)
		}
		if err != nil {
			return fmt.Errorf("%q is not a whole number", n.raw)
		}
		into.SetInt(i)
	}
	return nil
}
