package config

import (
	"regexp"
	"strings"
	"unicode"
)

// odd are the names that the rule of snake would take apart in the wrong place.
var odd = strings.NewReplacer("URLs", "Urls", "VHost", "Vhost")

// snake is the key of a Go field: MaxMessageBytes is max_message_bytes, CAFile is ca_file.
func snake(field string) string {
	runes := []rune(odd.Replace(field))
	var b strings.Builder
	for i, r := range runes {
		startsWord := i > 0 && unicode.IsUpper(r) &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if startsWord {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// shout is a key as a part of an environment variable's name.
func shout(key string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, key)
}

var (
	fieldStep = regexp.MustCompile(`([A-Za-z0-9_]+)|\[(\d+)\]|\["([^"]*)"\]`)
	fieldName = regexp.MustCompile(`\b[A-Z]\w*(?:\.[A-Z]\w*)*`)
)

// locate follows the path of a [core.FieldError], such as `Groups["orders"][0].Name`, to the node that it is about, as
// far as it exists. It returns the path in keys too, and whether there is a node.
func locate(root *node, path, fieldPath string) (at origin, below string, given bool) {
	here := root
	at = root.from
	for _, step := range fieldStep.FindAllStringSubmatch(fieldPath, -1) {
		var next *node
		switch {
		case step[1] != "":
			key := keyOf(step[1])
			path = join(path, key)
			if next = here.get(key); next != nil {
				at = here.keyAt(key)
			}
		case step[2] != "":
			n := 0
			for _, digit := range step[2] {
				n = n*10 + int(digit-'0')
			}
			path = index(path, n)
			if next = here.item(n); next != nil {
				at = next.from
			}
		default:
			path = join(path, step[3])
			if next = here.get(step[3]); next != nil {
				at = here.keyAt(step[3])
			}
		}
		here = next
	}
	return at, path, here != nil
}

// keyOf is the key of a field.
func keyOf(field string) string {
	if field == strategyField {
		return orderingKey
	}
	return snake(field)
}

// retell puts keys in the place of Go fields in a reason. Words in capitals stay, as they may be no fields: TLS, SQL.
func retell(reason string, fields map[string]bool) string {
	reason = strings.ReplaceAll(reason, "ordering.None", `"ordering: {strategy: none}"`)
	return fieldName.ReplaceAllStringFunc(reason, func(name string) string {
		parts := strings.Split(name, ".")
		if len(parts) == 1 && strings.ToUpper(name) == name {
			return name
		}
		for i, part := range parts {
			if !fields[part] {
				return name
			}
			parts[i] = keyOf(part)
		}
		return strings.Join(parts, ".")
	})
}
