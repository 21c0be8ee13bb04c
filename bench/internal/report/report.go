package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Figure is one measured number, with what it cost the process that did the work.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// CPU is in microseconds a message, or with CPUUnit something else; 0 means not measured.
	CPU     float64 `json:"cpu,omitempty"`
	CPUUnit string  `json:"cpu_unit,omitempty"`
	// RSS is the largest resident memory in MiB; 0 means not measured.
	RSS float64 `json:"rss_mib,omitempty"`
	// Note says what was measured, or what it is compared with.
	Note string `json:"note,omitempty"`
}

// Report gathers figures in the order in which they come. Not safe for concurrent use.
type Report struct {
	names   []string
	figures []Figure
}

// New returns a report whose last line has these names, in this order, measured or not.
func New(names ...string) *Report { return &Report{names: names} }

// Add takes a figure. One with a name of the last line stands there too.
func (r *Report) Add(f Figure) { r.figures = append(r.figures, f) }

// Value returns a figure, and whether it was measured.
func (r *Report) Value(name string) (float64, bool) {
	i := slices.IndexFunc(r.figures, func(f Figure) bool { return f.Name == name })
	if i < 0 {
		return 0, false
	}
	return r.figures[i].Value, true
}

// Ratio adds the quotient of two figures, if both were measured.
func (r *Report) Ratio(name, of, to, note string) {
	a, ok1 := r.Value(of)
	b, ok2 := r.Value(to)
	if ok1 && ok2 && b > 0 {
		r.Add(Figure{Name: name, Value: a / b, Unit: "x", Note: note})
	}
}

// Figures returns all figures.
func (r *Report) Figures() []Figure { return r.figures }

// Table prints every figure for people.
func (r *Report) Table(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range r.rows() {
		if _, err := fmt.Fprintln(table, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}

// Markdown prints every figure as a table for the documentation.
func (r *Report) Markdown(w io.Writer) error {
	lines := []string{"| " + strings.Join(header, " | ") + " |", "|---|---:|---:|---:|---|"}
	for _, row := range r.rows()[1:] {
		for i, cell := range row {
			row[i] = strings.ReplaceAll(cell, "|", `\|`)
		}
		lines = append(lines, "| "+strings.Join(row, " | ")+" |")
	}
	_, err := fmt.Fprintln(w, strings.Join(lines, "\n"))
	return err
}

// Line prints the named figures in one line; what was not measured is "missing".
func (r *Report) Line(w io.Writer) error {
	parts := []string{"bench:"}
	for _, name := range r.names {
		text := "missing"
		if v, ok := r.Value(name); ok {
			text = number(v)
		}
		parts = append(parts, name+"="+text)
	}
	_, err := fmt.Fprintln(w, strings.Join(parts, " "))
	return err
}

var header = []string{"what", "figure", "CPU", "RSS", "how"}

func (r *Report) rows() [][]string {
	rows := [][]string{header}
	for _, f := range r.figures {
		row := []string{f.Name, strings.TrimSpace(number(f.Value) + " " + f.Unit), "", "", f.Note}
		if f.CPU > 0 {
			unit := f.CPUUnit
			if unit == "" {
				unit = "us/msg"
			}
			row[2] = number(f.CPU) + " " + unit
		}
		if f.RSS > 0 {
			row[3] = number(f.RSS) + " MiB"
		}
		rows = append(rows, row)
	}
	return rows
}

// number prints three digits that count.
func number(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
