package config

import (
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// shapeKind is what a value may look like in a file.
type shapeKind uint8

const (
	scalarShape shapeKind = iota
	listShape
	dictShape   // keys of the user's own
	recordShape // keys of ours
)

// shape is what a file may say at one place: the Go type in terms of keys.
type shape struct {
	kind   shapeKind
	typ    reflect.Type // nil for what is not a Go type: sections, ordering
	fields []field      // of a record
	elem   *shape       // of a list or dict
	// line says that a record may also be given as one line, a URL.
	line bool
	// orderings are the strategies that a broker can keep, in the shape of its ordering block.
	orderings []Ordering
	// logger is the index of a record's field for a logger.
	logger []int
}

// field is a key of a record.
type field struct {
	key   string
	name  string // of the Go field
	index []int  // of the Go field
	shape *shape
}

const (
	strategyField = "Strategy" // of every broker's Config
	orderingKey   = "ordering"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	loggerType   = reflect.TypeFor[*slog.Logger]()
	strategyType = reflect.TypeFor[ordering.Strategy]()
)

// shapeOf returns the shape of a type, or nil when a file cannot give it: functions, interfaces, options of an SDK.
func shapeOf(typ reflect.Type, orderings []Ordering) *shape {
	switch typ.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return &shape{kind: scalarShape, typ: typ}
	case reflect.Slice, reflect.Map:
		kind := listShape
		if typ.Kind() == reflect.Map {
			kind = dictShape
		}
		elem := shapeOf(typ.Elem(), orderings)
		if elem == nil || kind == dictShape && typ.Key().Kind() != reflect.String {
			return nil
		}
		return &shape{kind: kind, typ: typ, elem: elem}
	case reflect.Struct:
		s := &shape{kind: recordShape, typ: typ}
		s.addFields(typ, nil, orderings)
		return s
	case reflect.Interface:
		if typ == strategyType && len(orderings) > 0 {
			return orderingShape(orderings)
		}
	}
	return nil
}

func (s *shape) addFields(typ reflect.Type, above []int, orderings []Ordering) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		at := append(slices.Clone(above), i)
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			s.addFields(f.Type, at, orderings)
		case !f.IsExported():
		case f.Type == loggerType:
			s.logger = at
		default:
			if below := shapeOf(f.Type, orderings); below != nil {
				s.fields = append(s.fields, field{key: keyOf(f.Name), name: f.Name, index: at, shape: below})
			}
		}
	}
}

// record makes the shape of keys that are no Go struct.
func record(fields ...field) *shape { return &shape{kind: recordShape, fields: fields} }

func stringShape() *shape { return &shape{kind: scalarShape, typ: reflect.TypeFor[string]()} }

func (s *shape) field(key string) (field, bool) {
	i := slices.IndexFunc(s.fields, func(f field) bool { return f.key == key })
	if i < 0 {
		return field{}, false
	}
	return s.fields[i], true
}

func (s *shape) keys() []string {
	keys := make([]string, len(s.fields))
	for i, f := range s.fields {
		keys[i] = f.key
	}
	return keys
}

// goNames collects the names of all Go fields below.
func (s *shape) goNames(into map[string]bool) map[string]bool {
	for _, f := range s.fields {
		into[f.name] = true
		f.shape.goNames(into)
	}
	if s.elem != nil {
		s.elem.goNames(into)
	}
	return into
}

// leaves calls visit for the path of every scalar below. "*" stands for a key of the user's, "0" for a list item.
func (s *shape) leaves(path []string, visit func(path []string)) {
	if s.kind == scalarShape || s.line {
		visit(path)
	}
	below := func(key string, s *shape) { s.leaves(append(slices.Clone(path), key), visit) }
	switch s.kind {
	case recordShape:
		for _, f := range s.fields {
			below(f.key, f.shape)
		}
	case dictShape:
		below("*", s.elem)
	case listShape:
		below("0", s.elem)
	}
}
