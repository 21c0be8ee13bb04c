package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// figure is one measured number.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Note says what was measured, or what it is compared with.
	Note string `json:"note,omitempty"`
}

// report gathers figures. Those with a stable name stand in the last line.
type report struct {
	figures []figure
	named   []figure
}

// add puts a figure into the table.
func (r *report) add(name string, value float64, unit, note string) {
	r.figures = append(r.figures, figure{name, value, unit, note})
}

// name puts a figure into the table and into the last line.
func (r *report) name(name string, value float64, unit, note string) {
	r.add(name, value, unit, note)
	r.named = append(r.named, figure{Name: name, Value: value})
}

// value returns a figure of the table, and whether it was measured.
func (r *report) value(name string) (float64, bool) {
	for _, f := range r.figures {
		if f.Name == name {
			return f.Value, true
		}
	}
	return 0, false
}

// ratio names the quotient of two figures, as far as both were measured.
func (r *report) ratio(name, of, to, note string) {
	a, ok1 := r.value(of)
	b, ok2 := r.value(to)
	if ok1 && ok2 && b > 0 {
		r.name(name, a/b, "x", note)
	}
}

func (r *report) print(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range r.figures {
		fmt.Fprintf(table, "%s\t%s %s\t%s\n", f.Name, number(f.Value), f.Unit, f.Note)
	}
	_ = table.Flush()
	line := make([]string, 0, len(r.named))
	for _, f := range r.named {
		line = append(line, f.Name+"="+number(f.Value))
	}
	fmt.Fprintln(w, "bench:", strings.Join(line, " "))
}

func number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
