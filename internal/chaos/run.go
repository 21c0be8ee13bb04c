package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/go-outbox/outbox/internal/chaos/ledger"
	"github.com/go-outbox/outbox/internal/chaos/server"
)

// Bounds of what comes after the faults.
const (
	drainPatience = 90 * time.Second        // until no row is pending
	readPatience  = 30 * time.Second        // without an arrival, until what is missing counts as lost
	quiet         = 1500 * time.Millisecond // without an arrival, after everything has arrived
)

// options are those of one run.
type options struct {
	broker   string
	duration time.Duration
	seed     uint64
	binary   string // the program under test
	dir      string // for files and logs
}

// report is what a run found.
type report struct {
	options
	ledger.Verdict
	took   time.Duration
	faults *record
	broken []string // promises that were broken beside those of the verdict
}

func (r report) kept() bool { return r.Faultless() && len(r.broken) == 0 }

func (r report) String() string {
	return fmt.Sprintf("chaos: broker=%s seconds=%.0f events=%d %v repeats=%d lost=%d phantom=%d out_of_order=%d",
		r.broker, r.took.Seconds(), r.Committed, r.faults, r.Repeats, len(r.Lost), len(r.Phantom), len(r.OutOfOrder))
}

// details are the lines for a person who looks into it.
func (r report) details() string {
	lines := append([]string{fmt.Sprintf("broker %s, seed %d, %d events rolled back", r.broker, r.seed, r.RolledBack)}, r.broken...)
	for _, list := range []struct {
		name  string
		lines []string
	}{{"lost", r.Lost}, {"phantom", r.Phantom}, {"out of order", r.OutOfOrder}} {
		for _, line := range list.lines {
			lines = append(lines, list.name+": "+line)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// run is one run. The error says that there was none to speak of: a service that cannot be started, an interruption.
func run(ctx context.Context, o options) (r report, err error) {
	logs, err := openLogs(o.dir)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, logs.close()) }()
	began := time.Now()
	s := &stage{dir: o.dir, record: &record{began: began, log: logs.faults, count: map[string]int{}}}
	defer s.clear()
	r = report{options: o, faults: s.record}
	if err := s.set(ctx, o.binary, o.broker); err != nil {
		return r, err
	}
	pool, err := pgxpool.New(ctx, s.database.URL(s.database.Address())+fmt.Sprintf("&pool_max_conns=%d", writers+2))
	if err != nil {
		return r, err
	}
	defer pool.Close()
	app := &service{pool: pool, seed: o.seed, rate: s.broker.Rate()}
	var journal ledger.Journal
	stopReading := s.read(ctx, &journal, logs.arrivals)
	defer stopReading()

	r.broken = s.trouble(ctx, o, app)
	awaitDrained(ctx, pool)
	awaitArrivals(ctx, &app.ledger, &journal)
	r.broken = append(r.broken, s.terminateAll()...)
	stopReading()
	if ctx.Err() != nil {
		return r, ctx.Err()
	}
	r.took = time.Since(began)
	r.Verdict = ledger.Compare(&app.ledger, &journal)
	found, err := inspect(ctx, pool)
	r.broken = append(r.broken, found.faults(r.Committed)...)
	return r, err
}

// logs are for a person who looks into a run.
type logs struct{ faults, arrivals *os.File }

func openLogs(dir string) (l logs, err error) {
	//nolint:gosec // a folder of our own
	if l.faults, err = os.Create(filepath.Join(dir, "faults.log")); err != nil {
		return l, err
	}
	//nolint:gosec // the same
	if l.arrivals, err = os.Create(filepath.Join(dir, "arrivals.log")); err != nil {
		return l, errors.Join(err, l.faults.Close())
	}
	return l, nil
}

func (l logs) close() error { return errors.Join(l.faults.Close(), l.arrivals.Close()) }

// read keeps the journal until the function that it returns is called, and writes it down for a person.
func (s *stage) read(ctx context.Context, journal *ledger.Journal, log io.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		s.broker.Read(ctx, func(m server.Message) {
			var body struct{ Key, Event string }
			if err := json.Unmarshal(m.Payload, &body); err != nil {
				body.Event = fmt.Sprintf("payload %.100q: %v", m.Payload, err) // a phantom
			}
			journal.Note(body.Key, body.Event, m.Rank)
			_, _ = fmt.Fprintf(log, "%s %s %s %s\n", time.Now().Format(time.RFC3339Nano), body.Key, body.Event, m.Place)
		})
	})
	return func() {
		cancel()
		reading.Wait()
	}
}

// trouble lets the writers write and the monkeys work until the time is up, and returns when all is healed.
func (s *stage) trouble(ctx context.Context, o options, app *service) (broken []string) {
	striking, calm := context.WithTimeout(ctx, o.duration)
	defer calm()
	over := make(chan struct{})
	written := make(chan error, 1)
	go func() { written <- app.write(ctx, over) }()
	var busy sync.WaitGroup
	monkeys := s.monkeys(o.duration)
	faults := make([]error, len(monkeys))
	for n, m := range monkeys {
		busy.Go(func() {
			random := rand.New(rand.NewPCG(o.seed, uint64(1000+n))) //nolint:gosec // a run can be repeated
			if faults[n] = m.work(striking, random, s.record); faults[n] != nil {
				calm() // there is enough to look into
			}
		})
	}
	<-striking.Done()
	busy.Wait()
	close(over)
	faults = append(faults, <-written)
	s.record.note("all is healed")
	for _, fault := range faults {
		if fault != nil {
			broken = append(broken, fault.Error())
		}
	}
	return broken
}

// awaitArrivals waits until everything that was committed has arrived and nothing more comes, or nothing has come for
// long.
func awaitArrivals(ctx context.Context, l *ledger.Ledger, j *ledger.Journal) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	count, last := j.Len(), time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := j.Len(); now != count {
			count, last = now, time.Now()
			continue
		}
		if idle := time.Since(last); idle > readPatience || idle > quiet && count >= l.Committed() {
			return
		}
	}
}
