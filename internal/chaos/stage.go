package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/go-outbox/outbox/internal/chaos/link"
	"github.com/go-outbox/outbox/internal/chaos/process"
	"github.com/go-outbox/outbox/internal/chaos/server"
)

const dispatchers = 3

// stage is everything that a run starts.
type stage struct {
	dir                  string
	database             *server.Postgres
	broker               server.Broker
	toDatabase, toBroker []*link.Link // of each dispatcher
	dispatchers          []*dispatcher
	record               *record
}

// set starts the servers, makes the tables and starts the dispatchers. clear ends what it has started, also after an
// error.
func (s *stage) set(ctx context.Context, binary, broker string) (err error) {
	var ports server.Ports
	if s.database, err = server.NewPostgres(ctx, s.dir, &ports); err != nil {
		return err
	}
	if s.broker, err = server.New(ctx, broker, s.dir, dispatchers, &ports); err != nil {
		return err
	}
	faults := make(chan error, 2)
	for _, start := range []func(context.Context) error{s.database.Start, s.broker.Start} {
		go func() { faults <- start(ctx) }()
	}
	if err := errors.Join(<-faults, <-faults); err != nil {
		return err
	}
	if err := process.Run(ctx, process.Program{
		Name: "outbox migrate", Path: binary, Env: cleanEnvironment(), Log: filepath.Join(s.dir, "migrate.log"),
		Args: []string{"migrate", "up", "--store", s.database.URL(s.database.Address())},
	}); err != nil {
		return err
	}
	for n := range dispatchers {
		if err := s.addDispatcher(ctx, n, binary); err != nil {
			return err
		}
	}
	return nil
}

// addDispatcher starts one between two links.
func (s *stage) addDispatcher(ctx context.Context, n int, binary string) error {
	toDatabase, err := link.New(fmt.Sprintf("database-%d", n), "127.0.0.1:0", s.database.Address())
	if err != nil {
		return err
	}
	s.toDatabase = append(s.toDatabase, toDatabase)
	listen, upstream := s.broker.Links(n)
	toBroker, err := link.New(fmt.Sprintf("broker-%d", n), listen, upstream)
	if err != nil {
		return err
	}
	s.toBroker = append(s.toBroker, toBroker)
	d, err := newDispatcher(s.dir, binary, n, s.database.URL(toDatabase.Address()), s.broker.Config(toBroker.Address()))
	if err != nil {
		return err
	}
	s.dispatchers = append(s.dispatchers, d)
	return d.start(ctx)
}

// terminateAll ends all dispatchers in order.
func (s *stage) terminateAll() (broken []string) {
	for _, d := range s.dispatchers {
		if err := d.terminate(false); err != nil {
			broken = append(broken, err.Error())
		}
	}
	return broken
}

// clear ends everything, in whatever state it is.
func (s *stage) clear() {
	for _, d := range s.dispatchers {
		d.stop()
	}
	for _, l := range append(s.toDatabase, s.toBroker...) {
		l.Close()
	}
	if s.broker != nil {
		s.broker.Stop()
	}
	if s.database != nil {
		s.database.Stop()
	}
}
