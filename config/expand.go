package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// expander replaces ${...} in values.
type expander struct {
	environ  map[string]string
	readFile func(string) ([]byte, error)
	used     map[string]bool // the variables that were asked for
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces each ${...}, and $$ by $. Any other dollar sign stands for itself. What is replaced is not looked at
// again. The error names all that is missing.
func (e *expander) expand(raw string) (text string, fromFile bool, err error) {
	var out strings.Builder
	var faults []error
	for rest := raw; rest != ""; {
		before, after, found := strings.Cut(rest, "$")
		out.WriteString(before)
		switch {
		case !found:
			rest = ""
		case strings.HasPrefix(after, "$"):
			out.WriteByte('$')
			rest = after[1:]
		case strings.HasPrefix(after, "{"):
			name, beyond, closed := strings.Cut(after[1:], "}")
			if !closed {
				return raw, false, errors.Join(append(faults, errors.New(`"${" is not closed; write $${ to mean it`))...)
			}
			value, err := e.lookUp(name)
			if err != nil {
				faults = append(faults, err)
			}
			out.WriteString(value)
			fromFile = fromFile || strings.HasPrefix(name, filePrefix)
			rest = beyond
		default:
			out.WriteByte('$')
			rest = after
		}
	}
	if len(faults) > 0 {
		return raw, fromFile, errors.Join(faults...)
	}
	return out.String(), fromFile, nil
}

const filePrefix = "file:"

// lookUp returns what stands for VAR, VAR:-default or file:PATH.
func (e *expander) lookUp(name string) (string, error) {
	if path, isFile := strings.CutPrefix(name, filePrefix); isFile {
		data, err := e.readFile(path)
		if err != nil {
			return "", fmt.Errorf("${%s}: %w", name, err)
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
	}
	name, byDefault, hasDefault := strings.Cut(name, ":-")
	if !variableName.MatchString(name) {
		return "", errors.New("${...} must be ${VARIABLE}, ${VARIABLE:-default} or ${file:/path}")
	}
	e.used[name] = true
	value, set := e.environ[name]
	switch {
	case hasDefault && value == "":
		return byDefault, nil
	case !set:
		return "", fmt.Errorf("the environment variable %s is not set; set it, or write ${%s:-default}", name, name)
	}
	return value, nil
}
