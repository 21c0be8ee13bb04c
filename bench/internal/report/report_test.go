package report_test

import (
	"os"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/bench/internal/report"
)

func Example() {
	r := report.New("drain_vs_limit", "idle")
	r.Add(report.Figure{Name: "drain", Value: 50_000, Unit: "msg/s", CPU: 7.25, RSS: 60, Note: "uniform"})
	r.Add(report.Figure{Name: "limit", Value: 80_000, Unit: "msg/s"})
	r.Ratio("drain_vs_limit", "drain", "limit", "bar 0.6")
	r.Ratio("drain_vs_peer", "drain", "peer", "")
	_ = r.Markdown(os.Stdout)
	_ = r.Line(os.Stdout)
	// Output:
	// | what | figure | CPU | RSS | how |
	// |---|---:|---:|---:|---|
	// | drain | 50000 msg/s | 7.25 us/msg | 60 MiB | uniform |
	// | limit | 80000 msg/s |  |  |  |
	// | drain_vs_limit | 0.625 x |  |  | bar 0.6 |
	// bench: drain_vs_limit=0.625 idle=missing
}

func TestTable(t *testing.T) {
	t.Parallel()
	r := report.New()
	r.Add(report.Figure{Name: "latency", Value: 1.5, Unit: "ms", CPU: 0.1, CPUUnit: "cores"})
	var out strings.Builder
	if err := r.Table(&out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"latency", "1.5 ms", "0.1 cores"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in:\n%s", part, out.String())
		}
	}
}
