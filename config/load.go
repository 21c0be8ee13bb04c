package config

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-outbox/outbox/broker/mux"
	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/notify"
)

// Input is all that [Load] looks at.
type Input struct {
	// Files are the names of YAML files. A later one is laid over the earlier ones, key by key; lists and single values
	// replace those before. None is fine: everything may come from Environ and Settings.
	Files []string
	// Environ are variables as [os.Environ] returns them. Those that begin with OUTBOX_ override the files. Not looked
	// at are OUTBOX_TEST_*, OUTBOX_REQUIRE, OUTBOX_SERVICES_* and OUTBOX_STOP_SERVICES, which are for this project's
	// tests; what Kubernetes sets for services whose name begins with "outbox", such as OUTBOX_PORT and
	// OUTBOX_SERVICE_HOST; those that a file names as ${OUTBOX_...}; and empty ones.
	Environ []string
	// Settings override both: the flags of a program.
	Settings []Setting
	// ReadFile reads Files and what ${file:...} names. Nil means [os.ReadFile].
	ReadFile func(name string) ([]byte, error)
	// Partial allows that there is no store or no broker, for a program that opens only the other.
	Partial bool
}

// Setting is one key with its value.
type Setting struct {
	// Path is the key, for example "dispatcher.fetch_size", or "store" or "broker" for a URL.
	Path string
	// Value is the value as it would stand in a file, without expansion.
	Value string
	// Origin is what faults call it, for example "--fetch-size".
	Origin string
}

// Load reads a configuration and reports everything that is wrong with it: a *[Fault] each, joined. It opens nothing and
// reads nothing but Input. The factories of the registry are called to learn their settings only; the context is for them.
func Load(ctx context.Context, registry Registry, in Input) (*Config, error) {
	document, err := registry.shape(ctx)
	if err != nil {
		return nil, err
	}
	l := &loader{registry: registry, shape: document, in: in, environ: map[string]string{}}
	for _, variable := range in.Environ {
		name, value, _ := strings.Cut(variable, "=")
		l.environ[name] = value
	}
	if l.in.ReadFile == nil {
		l.in.ReadFile = os.ReadFile
	}
	root, ok := l.readFiles()
	if !ok { // what a file that cannot be read lacks is no fault of the others
		return nil, l.faults.err()
	}
	l.override(root)
	config := l.config(ctx, root)
	if err := l.faults.err(); err != nil {
		return nil, err
	}
	return config, nil
}

// loader is one call of Load.
type loader struct {
	registry Registry
	shape    *shape // of the document
	in       Input
	environ  map[string]string
	expanded map[string]bool // the variables that files name
	faults   faults
}

// readFiles lays the files over each other. It tells whether all could be read.
func (l *loader) readFiles() (root *node, ok bool) {
	root, ok = &node{kind: mapNode}, true
	l.expanded = map[string]bool{}
	for i, name := range l.in.Files {
		data, err := l.in.ReadFile(name)
		if err != nil {
			l.faults.add(origin{name: name, rank: i}, "", "cannot be read: %v", err)
			ok = false
			continue
		}
		r := reader{faults: &l.faults, file: name, rank: i, expand: expander{
			environ: l.environ, readFile: l.in.ReadFile, used: l.expanded,
		}}
		file := r.read(data)
		if file == nil {
			ok = false
			continue
		}
		root = merge(root, file)
	}
	return root, ok
}

// The keys of a document.
const (
	storeKey      = "store"
	brokerKey     = "broker"
	brokersKey    = "brokers"
	routesKey     = "routes"
	topicsKey     = "topics"
	dispatcherKey = "dispatcher"
	notifyKey     = "notify"
	typeKey       = "type"
)

// shape is the shape of a document.
func (r Registry) shape(ctx context.Context) (*shape, error) {
	store, err := sectionShape(ctx, r.Stores)
	if err != nil {
		return nil, err
	}
	broker, err := sectionShape(ctx, r.Brokers)
	if err != nil {
		return nil, err
	}
	return record(
		field{key: storeKey, shape: store},
		field{key: brokerKey, shape: broker},
		field{key: brokersKey, shape: &shape{kind: dictShape, elem: broker}},
		field{key: routesKey, shape: shapeOf(reflect.TypeFor[[]mux.Route](), nil)},
		field{key: topicsKey, shape: shapeOf(reflect.TypeFor[map[string]string](), nil)},
		field{key: dispatcherKey, shape: shapeOf(reflect.TypeFor[core.Config](), nil)},
		field{key: notifyKey, shape: shapeOf(reflect.TypeFor[notify.Config](), nil)},
	), nil
}

// sectionShape has the type and a block for each type that there is.
func sectionShape[F ~opener[T], T any](ctx context.Context, factories map[string]F) (*shape, error) {
	s := record(field{key: typeKey, shape: stringShape()})
	s.line = true
	for _, name := range slices.Sorted(maps.Keys(factories)) {
		t, err := probe(ctx, opener[T](factories[name]))
		if err != nil {
			return nil, fmt.Errorf("%w (type %q)", err, name)
		}
		s.fields = append(s.fields, field{key: name, shape: t.shape()})
	}
	return s, nil
}

// config checks the whole tree.
func (l *loader) config(ctx context.Context, root *node) *Config {
	c := &Config{registry: l.registry, root: root, brokers: map[string]*section{}}
	d := l.decoder()
	for _, e := range root.entries {
		if _, known := l.shape.field(e.key); !known {
			d.unknown(e, l.shape, "")
		}
	}
	c.store = loadSection(ctx, l, root.get(storeKey), storeKey, l.registry.Stores)
	l.brokers(ctx, c)
	l.read(root, topicsKey, &c.topics)
	l.dispatcher(c)
	l.notify(c)
	if !l.in.Partial {
		l.required(root)
	}
	return c
}

func (l *loader) decoder() *decoder { return &decoder{faults: &l.faults, root: l.shape} }

// read decodes a part of the document, and tells whether it is there.
func (l *loader) read(root *node, key string, into any) bool {
	n := root.get(key)
	if n != nil {
		f, _ := l.shape.field(key)
		l.decoder().decode(n, f.shape, key, reflect.ValueOf(into).Elem())
	}
	return n != nil
}

func (l *loader) required(root *node) {
	for _, need := range []struct {
		key, orElse string
		types       []string
	}{
		{storeKey, "", slices.Sorted(maps.Keys(l.registry.Stores))},
		{brokerKey, brokersKey, slices.Sorted(maps.Keys(l.registry.Brokers))},
	} {
		if l.faults.meant[need.key] || l.faults.meant[need.orElse] {
			continue
		}
		if root.get(need.key) == nil && (need.orElse == "" || root.get(need.orElse) == nil) {
			l.faults.add(origin{}, need.key, "is missing; give a URL in %s%s, or type and settings in a file (types: %s)",
				envPrefix, shout(need.key), strings.Join(need.types, ", "))
		}
	}
}

// brokers reads the only broker, or several with their routes.
func (l *loader) brokers(ctx context.Context, c *Config) {
	one, several, routes := c.root.get(brokerKey), c.root.get(brokersKey), c.root.get(routesKey)
	if one != nil {
		c.brokers[""] = loadSection(ctx, l, one, brokerKey, l.registry.Brokers)
	}
	switch {
	case one != nil && several != nil:
		l.faults.add(c.root.keyAt(brokersKey), brokersKey, "cannot stand beside %s (%s); give one broker, or several with routes",
			brokerKey, c.root.keyAt(brokerKey))
		return
	case several == nil && routes != nil:
		l.faults.add(c.root.keyAt(routesKey), routesKey, "need %s to lead to: {name: {type: ...}}", brokersKey)
		return
	case several == nil || !l.decoder().isMap(several, brokersKey, &shape{kind: dictShape}):
		return
	}
	stand := map[string]core.Broker{}
	for _, e := range several.entries {
		stand[e.key] = struct{ core.Broker }{} // only its name matters to the routes
		c.brokers[e.key] = loadSection(ctx, l, e.value, join(brokersKey, e.key), l.registry.Brokers)
	}
	before := len(l.faults.list)
	l.read(c.root, routesKey, &c.routes)
	if len(l.faults.list) == before {
		l.refuse((mux.Config{Brokers: stand, Routes: c.routes}).Validate(), c.root, "", l.shape)
	}
}

// dispatcher reads the configuration of the dispatcher.
func (l *loader) dispatcher(c *Config) {
	if l.read(c.root, dispatcherKey, &c.dispatcher) {
		l.check(c.root, dispatcherKey, reflect.ValueOf(c.dispatcher))
	}
}

// notify reads the configuration of the webhook, which there is when the section is.
func (l *loader) notify(c *Config) {
	var webhook notify.Config
	if !l.read(c.root, notifyKey, &webhook) {
		return
	}
	l.check(c.root, notifyKey, reflect.ValueOf(webhook))
	webhook.Name = cmp.Or(webhook.Name, c.dispatcher.WithDefaults().Name)
	c.notify = &webhook
}

// check reports what is wrong with a part of the document that was read.
func (l *loader) check(root *node, key string, given reflect.Value) {
	n := root.get(key)
	f, _ := l.shape.field(key)
	effective := withDefaults(given)
	l.zeros(n, f.shape, key, given, effective)
	if v, ok := effective.Interface().(interface{ Validate() error }); ok {
		l.refuse(v.Validate(), n, key, f.shape)
	}
}
