package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-outbox/outbox/internal/chaos/link"
)

// fault is a kind of trouble.
type fault struct {
	name string
	// strike makes the trouble, lets it last, and ends it, also when ctx has ended. An error is a broken promise, or
	// trouble of our own.
	strike func(ctx context.Context, random *rand.Rand) error
}

// monkey makes trouble of some kinds, one after the other, each as often as the others. Several work side by side.
type monkey struct {
	faults      []fault
	pauseAtMost time.Duration // between two of them
}

// record counts and writes down what was done.
type record struct {
	mu    sync.Mutex
	began time.Time
	log   io.Writer
	count map[string]int
}

func (r *record) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.log, "%8.3f %s %s\n", time.Since(r.began).Seconds(), time.Now().Format(time.RFC3339Nano),
		fmt.Sprintf(format, args...)) // a help for a person
}

func (r *record) done(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[name]++
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	total, kinds := 0, []string{}
	for _, name := range slices.Sorted(maps.Keys(r.count)) {
		total += r.count[name]
		kinds = append(kinds, fmt.Sprintf("%s=%d", name, r.count[name]))
	}
	return fmt.Sprintf("faults=%d (%s)", total, strings.Join(kinds, " "))
}

// work makes trouble until ctx ends.
func (m monkey) work(ctx context.Context, random *rand.Rand, r *record) error {
	for {
		for _, i := range random.Perm(len(m.faults)) {
			pause(ctx, time.Duration(random.Int64N(int64(m.pauseAtMost))))
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the time is up
			}
			if err := m.faults[i].strike(ctx, random); err != nil {
				return fmt.Errorf("%s: %w", m.faults[i].name, err)
			}
			r.done(m.faults[i].name)
		}
	}
}

// monkeys are those of a stage, one for each part of it, for a run of some length: each of them has its turn.
func (s *stage) monkeys(length time.Duration) []monkey {
	brokerFaults := []fault{{"broker_restart", s.restartQuietly}}
	if s.broker.Durable() {
		brokerFaults = []fault{
			{"broker_restart", s.restart("broker", s.broker.Restart, false)},
			{"broker_crash", s.restart("broker", s.broker.Restart, true)},
		}
	}
	return []monkey{
		{pauseAtMost: min(length/8, 2*time.Second), faults: []fault{
			{"kill", s.kill}, {"suspend", s.suspend}, {"terminate", s.terminate},
		}},
		{pauseAtMost: min(length/8, 3*time.Second), faults: linkFaults("database", s.toDatabase, s.record)},
		{pauseAtMost: min(length/8, 3*time.Second), faults: linkFaults("broker", s.toBroker, s.record)},
		{pauseAtMost: min(length/4, 10*time.Second), faults: []fault{
			{"db_restart", s.restart("database", s.database.Restart, false)},
			{"db_crash", s.restart("database", s.database.Restart, true)},
		}},
		{pauseAtMost: min(length/4, 12*time.Second), faults: brokerFaults},
	}
}

func (s *stage) kill(ctx context.Context, random *rand.Rand) error {
	d := s.dispatchers[random.IntN(len(s.dispatchers))]
	away := time.Duration(random.Int64N(int64(2 * leaseTTL)))
	s.record.note("kill %s, away for %v", d.program.Name, away)
	if err := errors.Join(d.stillRuns(), d.running.Kill()); err != nil {
		return err
	}
	pause(ctx, away)
	return d.start(ctx)
}

func (s *stage) suspend(ctx context.Context, random *rand.Rand) error {
	d := s.dispatchers[random.IntN(len(s.dispatchers))]
	length := leaseTTL + time.Duration(random.Int64N(int64(2*leaseTTL)))
	s.record.note("suspend %s for %v", d.program.Name, length)
	if err := errors.Join(d.stillRuns(), d.running.Suspend()); err != nil {
		return err
	}
	pause(ctx, length)
	return d.running.Resume()
}

func (s *stage) terminate(ctx context.Context, random *rand.Rand) error {
	d := s.dispatchers[random.IntN(len(s.dispatchers))]
	away := time.Duration(random.Int64N(int64(leaseTTL)))
	s.record.note("terminate %s, away for %v", d.program.Name, away)
	if err := d.terminate(true); err != nil {
		return err
	}
	pause(ctx, away)
	return d.start(ctx)
}

// restart is the fault of a server that ends and comes back. It does come back when ctx has ended.
func (s *stage) restart(
	name string, restart func(context.Context, bool, time.Duration) error, crash bool,
) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, random *rand.Rand) error {
		away := time.Duration(random.Int64N(int64(3 * time.Second)))
		s.record.note("restart the %s, crash %v, away for %v", name, crash, away)
		err := restart(context.WithoutCancel(ctx), crash, away)
		s.record.note("the %s is back", name)
		return err
	}
}

// restartQuietly restarts a broker that writes down a little later what it has acknowledged: nobody may reach it before.
func (s *stage) restartQuietly(ctx context.Context, random *rand.Rand) error {
	const quiet = time.Second
	for _, l := range s.toBroker {
		l.Block()
	}
	pause(context.WithoutCancel(ctx), quiet)
	err := s.restart("broker", s.broker.Restart, false)(ctx, random)
	for _, l := range s.toBroker {
		l.Unblock()
	}
	return err
}

// linkFaults are those of the dispatchers' links to one end.
func linkFaults(end string, links []*link.Link, r *record) (faults []fault) {
	for _, f := range []struct {
		name   string
		spoil  func(*link.Link)
		atMost time.Duration
	}{
		{"cut", (*link.Link).Cut, 0},
		{"refused", (*link.Link).Down, leaseTTL},
		{"black_hole", (*link.Link).Hole, 3 * leaseTTL},
		{"no_answers", (*link.Link).Mute, 3 * leaseTTL},
		{"slow", func(l *link.Link) { l.Slow(300*time.Millisecond, 50_000) }, 3 * leaseTTL},
	} {
		faults = append(faults, fault{f.name, func(ctx context.Context, random *rand.Rand) error {
			whose, some := "all dispatchers", links
			if n := random.IntN(len(links) + 1); n < len(links) {
				whose, some = fmt.Sprintf("dispatcher-%d", n), links[n:n+1]
			}
			length := f.atMost/4 + time.Duration(random.Int64N(int64(f.atMost)+1))*3/4
			r.note("%s: %s and %s, for %v", f.name, end, whose, length)
			for _, l := range some {
				f.spoil(l)
			}
			if length > 0 {
				pause(ctx, length)
				for _, l := range some {
					l.Heal()
				}
				r.note("%s: %s and %s, is over", f.name, end, whose)
			}
			return nil
		}})
	}
	return faults
}
