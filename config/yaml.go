package config

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader turns YAML files into nodes.
type reader struct {
	faults *faults
	expand expander
	file   string
	rank   int
}

// read returns a file as a map, or nil when it is not even YAML.
func (r *reader) read(data []byte) *node {
	empty := &node{kind: mapNode, from: origin{name: r.file, line: 1, column: 1, rank: r.rank}}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, another yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return empty
	case err != nil:
		r.syntax(err)
		return nil
	}
	switch err := decoder.Decode(&another); {
	case err == nil:
		r.faults.add(r.at(&another), "", "a second document begins here; a file has one")
	case !errors.Is(err, io.EOF):
		r.syntax(err)
	}
	root := r.convert(document.Content[0], "")
	switch root.kind {
	case mapNode:
		return root
	case null:
		return empty
	default:
		r.faults.add(root.from, "", "the file must be keys with values, such as \"broker: ...\"")
		return nil
	}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// syntax reports an error of the parser, which tells the line in its text.
func (r *reader) syntax(err error) {
	at := origin{name: r.file, rank: r.rank}
	text := err.Error()
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		text = strings.TrimPrefix(text, found[0])
		if line, err := strconv.Atoi(found[1]); err == nil {
			at.line, at.column = line, 1
		}
	}
	r.faults.add(at, "", "is not YAML: %s", text)
}

func (r *reader) at(n *yaml.Node) origin {
	return origin{name: r.file, line: n.Line, column: n.Column, rank: r.rank}
}

func (r *reader) convert(n *yaml.Node, path string) *node {
	out := &node{from: r.at(n)}
	if n.Style&yaml.TaggedStyle != 0 {
		r.faults.add(out.from, path, "the tag %s has no meaning here", n.Tag)
	}
	switch n.Kind {
	case yaml.MappingNode:
		out.kind = mapNode
		r.convertMap(n, out, path)
	case yaml.SequenceNode:
		out.kind = listNode
		for i, item := range n.Content {
			out.items = append(out.items, r.convert(item, index(path, i)))
		}
	case yaml.ScalarNode:
		if n.ShortTag() != "!!null" {
			out.kind, out.raw = scalarNode, n.Value
			r.expandScalar(out, path)
		}
	default: // aliases: nothing here is long enough to be worth them
		r.faults.add(out.from, path, "anchors and aliases have no meaning here; write the value out")
	}
	return out
}

func (r *reader) convertMap(n *yaml.Node, out *node, path string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, at := n.Content[i].Value, r.at(n.Content[i])
		below := join(path, key)
		if n.Content[i].Kind != yaml.ScalarNode || n.Content[i].ShortTag() == "!!merge" {
			r.faults.add(at, path, "a key must be a plain name")
			continue
		}
		value := r.convert(n.Content[i+1], below)
		if out.index(key) >= 0 {
			r.faults.add(at, below, "is a repeated key; the first one is at %s", out.keyAt(key))
			continue
		}
		out.put(key, at, value)
	}
}

func (r *reader) expandScalar(n *node, path string) {
	var err error
	n.text, n.fromFile, err = r.expand.expand(n.raw)
	n.unread = err != nil
	for _, one := range flatten(err) {
		r.faults.add(n.from, path, "%v", one)
	}
}

// join and index are the paths below a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
