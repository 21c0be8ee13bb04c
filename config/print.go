package config

import (
	"cmp"
	"encoding"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/go-outbox/outbox/core"
	"github.com/go-outbox/outbox/notify"
	"github.com/go-outbox/outbox/ordering"
)

const (
	redacted  = "***"
	byDefault = "default"
	retryPath = "dispatcher.retry" // what topic_retry leaves open
)

// Print writes the effective configuration as YAML: every key with its value, and where that comes from as a comment
// (file, line and column; variable; flag; or "default"). Secrets are ***.
func (c *Config) Print(w io.Writer) error {
	_, err := io.WriteString(w, c.String())
	return err
}

// String is what Print writes.
func (c *Config) String() string {
	p := &printer{}
	if c.store != nil {
		p.section(storeKey, c.store)
	}
	if one, ok := c.brokers[""]; ok {
		p.section(brokerKey, one)
	} else if len(c.brokers) > 0 {
		p.line(brokersKey+":", "")
		p.depth++
		for _, name := range slices.Sorted(maps.Keys(c.brokers)) {
			p.section(name, c.brokers[name])
		}
		p.depth--
	}
	if c.root.get(routesKey) != nil {
		p.settings(c.root, routesKey, reflect.ValueOf(c.routes), "")
	}
	p.settings(c.root, topicsKey, reflect.ValueOf(c.topics), byDefault)
	p.settings(c.root, dispatcherKey, reflect.ValueOf(c.dispatcher.WithDefaults()), byDefault)
	if c.notify != nil {
		p.settings(c.root, notifyKey, reflect.ValueOf(c.notify.WithDefaults()), byDefault)
		return p.text.String()
	}
	return p.text.String() + c.notifyDefaults()
}

// notifyDefaults is the section that is not there, as a comment: with it somebody would be told.
func (c *Config) notifyDefaults() string {
	p := &printer{}
	defaults := notify.Config{Name: c.dispatcher.WithDefaults().Name}.WithDefaults()
	p.settings(&node{}, notifyKey, reflect.ValueOf(defaults), "")
	text := strings.TrimSuffix(p.text.String(), "\n")
	return "# nobody is told what needs a person; with a url somebody would be:\n# " + strings.ReplaceAll(text, "\n", "\n# ") + "\n"
}

// Format prints as String does, whatever the verb.
func (c *Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue is what String returns.
func (c *Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// printer writes lines of YAML.
type printer struct {
	text  strings.Builder
	depth int
	// inherits is the part of the document that has what is missing here, instead of the defaults.
	inherits string
}

var topicRetryType = reflect.TypeFor[core.TopicRetry]()

// missing is the origin of what a map does not have.
func (p *printer) missing() string { return cmp.Or(p.inherits, byDefault) }

const commentColumn = 48

func (p *printer) line(text, from string) {
	text = strings.Repeat("  ", p.depth) + text
	if from != "" {
		text = fmt.Sprintf("%-*s # %s", commentColumn, text, from)
	}
	p.text.WriteString(strings.TrimRight(text, " ") + "\n")
}

func (p *printer) section(key string, s *section) {
	p.line(quote(key)+":", "")
	p.depth++
	defer func() { p.depth-- }()
	p.line(typeKey+": "+s.typ, s.from.String())
	if s.isURL {
		p.fromURL(s)
		return
	}
	p.value(s.typ+":", s.node, s.shape, s.effective, byDefault)
}

// fromURL prints settings that have no keys of their own: what differs from the defaults comes from the URL.
func (p *printer) fromURL(s *section) {
	p.value(s.typ+":", urlNodes(s.shape, s.given, s.node.from), s.shape, s.effective, byDefault)
}

// urlNodes makes nodes that say where each value that is not zero comes from.
func urlNodes(s *shape, given reflect.Value, from origin) *node {
	n := &node{kind: scalarNode, from: from}
	if s.kind == recordShape && s.orderings == nil {
		n.kind = mapNode
		for _, f := range s.fields {
			if v := given.FieldByIndex(f.index); !v.IsZero() {
				n.put(f.key, from, urlNodes(f.shape, v, from))
			}
		}
	}
	return n
}

// settings prints a part of the document, with the origin of what it does not have.
func (p *printer) settings(root *node, key string, v reflect.Value, missing string) {
	p.value(key+":", root.get(key), shapeOf(v.Type(), nil), v, missing)
}

// value prints a key ("name:" or "-") with its value. inherited is the origin of what has no node of its own.
func (p *printer) value(key string, n *node, s *shape, v reflect.Value, inherited string) {
	from := inherited
	if n != nil && n.kind != mapNode && n.kind != null {
		from = n.from.String()
	}
	below := func(key string, n *node, s *shape, v reflect.Value) {
		p.depth++
		p.value(key, n, s, v, from)
		p.depth--
	}
	switch {
	case s.orderings != nil:
		p.ordering(key, n, v, from)
	case s.kind == scalarShape:
		p.line(key+" "+scalarText(n, v), from)
	case s.kind == recordShape:
		p.line(key, "")
		if s.typ == topicRetryType {
			p.inherits = retryPath
			defer func() { p.inherits = "" }()
		}
		if n != nil && n.kind == mapNode {
			from = p.missing()
		}
		for _, f := range s.fields {
			below(f.key+":", n.get(f.key), f.shape, v.FieldByIndex(f.index))
		}
	case v.Len() == 0 && s.kind == dictShape:
		p.line(key+" {}", from)
	case v.Len() == 0:
		p.line(key+" []", from)
	case s.kind == dictShape:
		p.line(key, "")
		for _, name := range slices.SortedFunc(slices.Values(v.MapKeys()), compareText) {
			below(quote(name.String())+":", n.get(name.String()), s.elem, v.MapIndex(name))
		}
	default:
		p.line(key, "")
		for i := range v.Len() {
			below("-", n.item(i), s.elem, v.Index(i))
		}
	}
}

func compareText(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }

// ordering prints a strategy as it is configured, or as the broker has it by default.
func (p *printer) ordering(key string, n *node, v reflect.Value, from string) {
	strategy, _ := v.Interface().(ordering.Strategy)
	name := orderingOf(strategy)
	if name == "" {
		return // a strategy of the adapter's own
	}
	p.line(key, "")
	p.depth++
	named := from
	if at := n.get(strategyKey); at != nil {
		named = at.from.String()
	}
	p.line(strategyKey+": "+string(name), named)
	if key, is := strategy.(ordering.RecordKey); is {
		key.Hash = cmp.Or(key.Hash, ordering.Murmur2)
		strategy = key
	}
	settings := withDefaults(reflect.ValueOf(strategy))
	for _, f := range shapeOf(settings.Type(), nil).fields {
		p.value(f.key+":", n.get(f.key), f.shape, settings.FieldByIndex(f.index), from)
	}
	p.depth--
}

// scalarText is a value in YAML, without secrets: settings that hide themselves, passwords in URLs and connection
// strings, and whatever came out of a file.
func scalarText(n *node, v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		return fmt.Sprint(v.Interface())
	case v.Kind() != reflect.String:
		return fmt.Sprint(v.Interface())
	case v.Len() == 0:
		return `""`
	case n != nil && n.fromFile:
		return quote(n.raw)
	}
	if hides, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, err := hides.MarshalText()
		if err != nil {
			return quote(redacted)
		}
		return quote(string(text))
	}
	return quote(redact(v.String()))
}

var keywordSecret = regexp.MustCompile(`(?i)\b(\w*(?:password|secret|token))(\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)`)

// redact hides passwords in URLs and keyword/value strings.
func redact(text string) string {
	text = keywordSecret.ReplaceAllString(text, "$1$2"+redacted)
	if !strings.Contains(text, "://") || !strings.Contains(text, "@") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil {
		return redacted // a password with characters that no URL may have
	}
	if u.User == nil { // the "@" may belong to a password with a slash in it
		return redacted
	}
	if _, has := u.User.Password(); !has {
		return text
	}
	before, after, _ := strings.Cut(text, "://")
	end := strings.IndexAny(after+"/", "/?#")
	return before + "://" + u.User.Username() + ":" + redacted + after[strings.LastIndex(after[:end], "@"):]
}

// quote writes a text as YAML would, on one line.
func quote(text string) string {
	n := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsAny(text, "\n\r") {
		n.Style = yaml.DoubleQuotedStyle
	}
	out, err := yaml.Marshal(&n)
	if line := strings.TrimSuffix(string(out), "\n"); err == nil && !strings.Contains(line, "\n") {
		return line
	}
	return strconv.Quote(text)
}
