package core_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-outbox/outbox/core"
)

func TestDeadLetterFilter_Validate(t *testing.T) {
	t.Parallel()
	for state, want := range map[core.DeadLetterState]struct{ valid, discards bool }{
		"":                  {true, true},
		core.StateParked:    {true, true},
		core.StateBlocked:   {true, false},
		core.StateDiscarded: {true, false},
		"dead":              {false, false},
		"Parked":            {false, false},
	} {
		filter := core.DeadLetterFilter{State: state}
		for what, test := range map[string]struct {
			err error
			ok  bool
		}{
			"validate":         {filter.Validate(), want.valid},
			"validate discard": {filter.ValidateDiscard(), want.discards},
		} {
			var fault *core.FieldError
			if (test.err == nil) != test.ok || test.err != nil && (!errors.As(test.err, &fault) || fault.Path != "State") {
				t.Errorf("%s of state %q: %v; want ok: %t, or else a fault of State", what, state, test.err, test.ok)
			}
		}
	}
}

func TestDeadLetterFilter_Matches(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
	dead := core.DeadLetter{
		State: core.StateParked, Reason: "kafka: Too LARGE",
		Record: &core.Record{CreatedAt: created, Message: core.Message{
			EventID: "e1", Topic: "orders", AggregateType: "order", AggregateID: "ord_1", EventType: "order.created",
		}},
	}
	for _, test := range []struct {
		filter core.DeadLetterFilter
		want   bool
	}{
		{core.DeadLetterFilter{}, true},
		{core.DeadLetterFilter{State: core.StateParked}, true},
		{core.DeadLetterFilter{State: core.StateBlocked}, false},
		{core.DeadLetterFilter{EventIDs: []string{"e0", "e1"}}, true},
		{core.DeadLetterFilter{EventIDs: []string{"e0"}}, false},
		{core.DeadLetterFilter{Topic: "orders"}, true},
		{core.DeadLetterFilter{Topic: "order"}, false},
		{core.DeadLetterFilter{AggregateType: "order"}, true},
		{core.DeadLetterFilter{AggregateType: "Order"}, false},
		{core.DeadLetterFilter{AggregateID: "ord_1"}, true},
		{core.DeadLetterFilter{AggregateID: "ord_2"}, false},
		{core.DeadLetterFilter{EventType: "order.created"}, true},
		{core.DeadLetterFilter{EventType: "order.paid"}, false},
		{core.DeadLetterFilter{Reason: "too large"}, true},
		{core.DeadLetterFilter{Reason: "too small"}, false},
		{core.DeadLetterFilter{CreatedAfter: created}, true},
		{core.DeadLetterFilter{CreatedAfter: created.Add(1)}, false},
		{core.DeadLetterFilter{CreatedBefore: created}, false},
		{core.DeadLetterFilter{CreatedBefore: created.Add(1)}, true},
		{core.DeadLetterFilter{Topic: "orders", AggregateID: "ord_2"}, false},
	} {
		if got := test.filter.Matches(dead); got != test.want {
			t.Errorf("%+v selects it: %t, want %t", test.filter, got, test.want)
		}
	}
}

func TestReasonsOfDecisions(t *testing.T) {
	t.Parallel()
	for decision, reasonOf := range map[string]func(string) (string, error){
		"discarded: ": core.DiscardReason, "skipped: ": core.SkipReason,
	} {
		for why, want := range map[string]string{
			"a test order, see OPS-7": "a test order, see OPS-7",
			"  spaced\n":              "spaced",
			"a\x00b\xffc":             "a�b�c",
			strings.Repeat("x", 500):  strings.Repeat("x", 500),
		} {
			if got, err := reasonOf(why); got != decision+want || err != nil {
				t.Errorf("%q becomes %q, %v; want %q", why, got, err, decision+want)
			}
		}
		for _, why := range []string{"", " \n"} {
			var fault *core.FieldError
			if got, err := reasonOf(why); got != "" || !errors.As(err, &fault) {
				t.Errorf("%q becomes %q, %v; want a fault", why, got, err)
			}
		}
		long, err := reasonOf("a" + strings.Repeat("🦊", 500))
		if err != nil || !utf8.ValidString(long) || len(long) > len(decision)+500 || len(long) < len(decision)+490 {
			t.Errorf("2001 bytes become %d, valid: %t, %v; want nearly 500", len(long), utf8.ValidString(long), err)
		}
	}
}

// A store in memory selects dead letters as a database does, and keeps why a person decided.
func ExampleDeadLetterFilter_Matches() {
	filter := core.DeadLetterFilter{Topic: "orders", Reason: "too large"}
	for _, dead := range []core.DeadLetter{
		{State: core.StateParked, Reason: "kafka: too large", Record: &core.Record{Message: core.Message{EventID: "e1", Topic: "orders"}}},
		{State: core.StateParked, Reason: "kafka: not valid", Record: &core.Record{Message: core.Message{EventID: "e2", Topic: "orders"}}},
	} {
		if filter.ValidateDiscard() == nil && filter.Matches(dead) {
			why, err := core.DiscardReason("a test order, see OPS-7")
			fmt.Println(dead.Record.EventID, "-", why+"; "+dead.Reason, err)
		}
	}
	// Output:
	// e1 - discarded: a test order, see OPS-7; kafka: too large <nil>
}
