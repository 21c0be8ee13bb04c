package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	// Origin is where it was written: "outbox.yaml:4:5" (line and column), the name of an environment variable or
	// flag; empty when something is missing altogether.
	Origin string
	// Path is the key, for example "broker.kafka.client_id". Empty when the file itself cannot be read.
	Path string
	// Reason says what is wrong and what would be right. It never shows the value of a secret.
	Reason string
}

func (f *Fault) Error() string {
	text := f.Reason
	if f.Path != "" {
		text = f.Path + ": " + text
	}
	if f.Origin == "" {
		return text
	}
	return f.Origin + " " + text
}

// origin is where a value comes from: a place in a file, or the name of a variable or flag.
type origin struct {
	name         string // of the file, variable or flag
	line, column int    // 0 outside of files
	rank         int    // files in their order, then everything else
}

func (o origin) String() string {
	if o.line == 0 {
		return o.name
	}
	return fmt.Sprintf("%s:%d:%d", o.name, o.line, o.column)
}

func (o origin) compare(other origin) int {
	return cmp.Or(cmp.Compare(o.rank, other.rank), cmp.Compare(o.line, other.line), cmp.Compare(o.column, other.column))
}

// faults gathers what is wrong.
type faults struct {
	list  []placed
	meant map[string]bool // the paths of keys that are there under another name
}

type placed struct {
	at    origin
	fault *Fault
}

func (f *faults) add(at origin, path, format string, args ...any) {
	f.list = append(f.list, placed{at, &Fault{Origin: at.String(), Path: path, Reason: fmt.Sprintf(format, args...)}})
}

// mean notes that an unknown key is meant to be the one of this path, if it is not empty.
func (f *faults) mean(path string) {
	if f.meant == nil {
		f.meant = map[string]bool{}
	}
	f.meant[path] = path != ""
}

// has tells whether something is wrong with a key already, or with one that it is below.
func (f *faults) has(path string) bool {
	return slices.ContainsFunc(f.list, func(p placed) bool {
		rest, below := strings.CutPrefix(path, p.fault.Path)
		return below && p.fault.Path != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// err joins the faults in the order of their places.
func (f *faults) err() error {
	slices.SortStableFunc(f.list, func(a, b placed) int { return a.at.compare(b.at) })
	errs := make([]error, len(f.list))
	for i, p := range f.list {
		errs[i] = p.fault
	}
	return errors.Join(errs...)
}
