package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-outbox/outbox/internal/chaos/ledger"
)

func newRecord() *record {
	return &record{began: time.Now(), log: io.Discard, count: map[string]int{}}
}

// Each kind of fault has its turn before one of them has a second one, in the order that the seed says, until the time
// is up.
func TestMonkey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		names := []string{"a", "b", "c", "d"}
		work := func(seed uint64) (order []string, r *record) {
			m := monkey{pauseAtMost: 2 * time.Second}
			for _, name := range names {
				m.faults = append(m.faults, fault{name, func(ctx context.Context, _ *rand.Rand) error {
					order = append(order, name)
					pause(ctx, time.Second)
					return nil
				}})
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r = newRecord()
			if err := m.work(ctx, rand.New(rand.NewPCG(seed, 0)), r); err != nil {
				t.Error(err)
			}
			return order, r
		}
		order, r := work(1)
		if len(order) < 15 || len(order) > 60 {
			t.Fatalf("%d faults in a minute", len(order))
		}
		for i := 0; i+4 <= len(order); i += 4 {
			if round := slices.Sorted(slices.Values(order[i : i+4])); !slices.Equal(round, names) {
				t.Errorf("round %d has %v", i/4, round)
			}
		}
		total := 0
		for _, n := range r.count {
			total += n
		}
		if total != len(order) {
			t.Errorf("counted %v, but there were %d faults", r.count, len(order))
		}
		if again, _ := work(1); !slices.Equal(again, order) {
			t.Error("the same seed does something else")
		}
		if other, _ := work(2); slices.Equal(other, order) {
			t.Error("another seed does the same")
		}
	})
}

func TestMonkeyStopsAtABrokenPromise(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	m := monkey{pauseAtMost: time.Nanosecond, faults: []fault{
		{"kill", func(context.Context, *rand.Rand) error { return broken }},
	}}
	r := newRecord()
	if err := m.work(t.Context(), rand.New(rand.NewPCG(1, 1)), r); !errors.Is(err, broken) || !strings.Contains(err.Error(), "kill") {
		t.Errorf("got %v", err)
	}
	if r.count["kill"] != 0 {
		t.Error("a fault that did not happen was counted")
	}
}

func TestRecord(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := newRecord()
	r.log = &log
	r.note("kill %s", "dispatcher-1")
	for _, name := range []string{"kill", "cut", "kill"} {
		r.done(name)
	}
	if got, want := r.String(), "faults=3 (cut=1 kill=2)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !strings.HasSuffix(log.String(), " kill dispatcher-1\n") {
		t.Errorf("the log has %q", log.String())
	}
}

// Transactions are of every kind: of one key and several, with one event and several, rolled back, held open.
func TestPlan(t *testing.T) {
	t.Parallel()
	var s service
	random := rand.New(rand.NewPCG(1, 1))
	const n = 2000
	ids := map[string]bool{}
	events, several, rolledBack, held := 0, 0, 0, 0
	for range n {
		p := s.plan(random)
		if len(p.events) == 0 || !slices.IsSorted(p.keys) || len(slices.Compact(slices.Clone(p.keys))) != len(p.keys) {
			t.Fatalf("%+v", p)
		}
		for _, e := range p.events {
			if !slices.Contains(p.keys, e.key) || ids[e.id] {
				t.Fatalf("event %+v of %+v", e, p)
			}
			ids[e.id] = true
		}
		events += len(p.events)
		if len(p.keys) > 1 {
			several++
		}
		if p.rollBack {
			rolledBack++
		}
		if p.hold > 0 {
			held++
		}
	}
	if events < 2*n || several < n/3 || rolledBack < n/20 || rolledBack > n/10 || held == 0 || held > n/20 {
		t.Errorf("%d transactions: %d events, %d of several keys, %d rolled back, %d held open", n, events, several, rolledBack, held)
	}
}

func TestUnlessAway(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		away bool
	}{
		{errors.New("connection refused"), true},
		{&pgconn.PgError{Code: "57P01"}, true},
		{&pgconn.PgError{Code: "57P03"}, true},
		{&pgconn.PgError{Code: "42P01"}, false},
		{&pgconn.PgError{Code: "23505"}, false},
	} {
		if err := unlessAway(tt.err); (err == nil) != tt.away {
			t.Errorf("unlessAway(%v) = %v", tt.err, err)
		}
	}
}

func TestTableFaults(t *testing.T) {
	t.Parallel()
	if got := (table{rows: 5}).faults(5); len(got) != 0 {
		t.Errorf("a table without a fault has %q", got)
	}
	if got := (table{}).faults(0); len(got) != 1 || !strings.Contains(got[0], "nothing was committed") {
		t.Errorf("an empty run has %q", got)
	}
	for _, tt := range []struct {
		table table
		want  string
	}{
		{table{rows: 4}, "4 rows, but 5 events"},
		{table{rows: 5, pending: 2}, "2 rows are still pending"},
		{table{rows: 5, dead: 1}, "1 rows are parked"},
		{table{rows: 5, attempts: 3}, "3 attempts"},
	} {
		if got := tt.table.faults(5); len(got) != 1 || !strings.Contains(got[0], tt.want) {
			t.Errorf("%+v has the faults %q, want %q", tt.table, got, tt.want)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	faults := newRecord()
	faults.done("kill")
	r := report{
		options: options{broker: "kafka", seed: 7}, took: 61 * time.Second, faults: faults,
		Verdict: ledger.Verdict{Committed: 100, RolledBack: 9, Repeats: 3},
	}
	want := "chaos: broker=kafka seconds=61 events=100 faults=1 (kill=1) repeats=3 lost=0 phantom=0 out_of_order=0"
	if r.String() != want || !r.kept() {
		t.Errorf("got %q, kept %v; want %q", r, r.kept(), want)
	}
	lost, broken := r, r
	lost.Lost = []string{"key acc_1: event e1"}
	broken.broken = []string{"3 attempts were spent on outages"}
	if lost.kept() || !strings.HasSuffix(lost.String(), "lost=1 phantom=0 out_of_order=0") ||
		!strings.Contains(lost.details(), "lost: key acc_1: event e1\n") {
		t.Errorf("a lost event: %v, %q", lost, lost.details())
	}
	if broken.kept() || !strings.Contains(broken.details(), "seed 7, 9 events rolled back\n3 attempts were spent") {
		t.Errorf("a broken promise: %v, %q", broken, broken.details())
	}
}

func TestFirstLines(t *testing.T) {
	t.Parallel()
	if got := firstLines("a\nb\nc\n", 2); got != "a\nb\n...\n" {
		t.Errorf("got %q", got)
	}
	if got := firstLines("a\nb\n", 2); got != "a\nb\n" {
		t.Errorf("got %q", got)
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-broker", "nats"}, {"-duration", "0s"}, {"-speed", "9"}, {"kafka"}} {
		var errOut bytes.Buffer
		if code := chaos(t.Context(), args, io.Discard, &errOut); code != 2 || !strings.Contains(errOut.String(), "-broker") {
			t.Errorf("%v: code %d, %q; want code 2 and the usage", args, code, errOut.String())
		}
	}
}
