package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/go-outbox/outbox/core"
)

// changes is what happens to an order, one after the other; an order may stop anywhere.
var changes = []string{"created", "paid", "shipped", "delivered"}

// errDeclined makes a transaction roll back, as a declined payment would.
var errDeclined = errors.New("declined")

// service is an order service like any other.
type service struct {
	db         *database
	topic      string
	rolledBack atomic.Int64
}

// change is what the service does all day: it changes an order and says so, both or neither.
func (s *service) change(ctx context.Context, order, status string) error {
	body, err := json.Marshal(map[string]string{"order": order, "status": status})
	if err != nil {
		return err
	}
	return s.db.inTx(ctx, func(tx *sql.Tx, box core.Enqueuer) error {
		event := core.Message{
			EventID:       core.NewEventID(), // may be left out; here it goes into the books too
			Topic:         s.topic,
			AggregateType: "order",
			AggregateID:   order, // events of one order stay in order
			EventType:     "order." + status,
			Payload:       body,
		}
		if err := s.db.writeOrder(ctx, tx, order, status, event.EventID); err != nil {
			return err
		}
		if _, err := box.Enqueue(ctx, event); err != nil {
			return err
		}
		if dice(10) == 0 {
			return errDeclined // rolls back: neither the order nor the event has ever been there
		}
		return nil
	})
}

// workers is how many customers are served at the same time.
const workers = 8

// takeOrders works through the plan and returns when all orders are where they should be.
func (s *service) takeOrders(ctx context.Context, plan plan) error {
	var serving sync.WaitGroup
	faults := make([]error, workers)
	for w := range workers {
		serving.Go(func() { faults[w] = s.serve(ctx, plan.share(w)) })
	}
	serving.Wait()
	return errors.Join(faults...)
}

// serve takes some orders through their changes, now one of them, now another.
func (s *service) serve(ctx context.Context, orders plan) error {
	const atOnce = 6
	for len(orders) > 0 {
		i := dice(min(len(orders), atOnce))
		next := orders[i].changes[0]
		switch err := s.change(ctx, orders[i].id, next); {
		case errors.Is(err, errDeclined):
			s.rolledBack.Add(1)
			continue // the customer tries again later
		case err != nil:
			return fmt.Errorf("order %s could not become %s: %w", orders[i].id, next, err)
		}
		if orders[i].changes = orders[i].changes[1:]; len(orders[i].changes) == 0 {
			orders[i] = orders[0]
			orders = orders[1:]
		}
	}
	return nil
}

// dice returns a number from 0 to sides-1.
func dice(sides int) int { return rand.N(sides) } //nolint:gosec // no secret

// plan is the orders that will come, each with the changes it will go through.
type plan []plannedOrder

type plannedOrder struct {
	id      string
	changes []string
}

func planOrders(n int) plan {
	orders := make(plan, n)
	for i := range orders {
		orders[i] = plannedOrder{id: fmt.Sprintf("ord_%d", i+1), changes: changes[:1+dice(len(changes))]}
	}
	return orders
}

// events is how many events the plan leads to.
func (p plan) events() int {
	n := 0
	for _, order := range p {
		n += len(order.changes)
	}
	return n
}

// share is the orders of one worker.
func (p plan) share(worker int) plan {
	var mine plan
	for i := worker; i < len(p); i += workers {
		mine = append(mine, p[i])
	}
	return mine
}
