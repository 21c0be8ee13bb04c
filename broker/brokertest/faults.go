package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/go-outbox/outbox/core"
)

func faultCases() []Case {
	return []Case{
		{"Publish/ErrorIsNilExactlyWhenDelivered", faultErrors},
		{"Publish/RefusedIsNotDelivered", faultRefused},
		{"Publish/RefusedMessageDoesNotHurtOthers", faultRefusedMessage},
		{"Publish/LostReplyIsNotClaimedRejected", faultLostReply},
		{"Publish/MissingTopicIsMisconfiguredAndNamesIt", faultMissingTopic},
		{"Publish/OutageSpendsNoAttempts", faultOutage},
		{"Publish/RecoversAfterAnOutage", faultRecovery},
		{"Publish/RecoversAfterACut", faultCut},
		{"Check/FailsWhileDown", checkWhileDown},
		{"Errors/ClassAndScopeAreReachableByErrorsAs", errorsAreTyped},
	}
}

// troubles publishes under every fault that is available and gives the results to look.
func (f *fixture) troubles(look func(what string, results []core.Result)) {
	f.Helper()
	records := func() []*core.Record { return f.spread(f.fit(3)) }
	ended, cancel := context.WithCancel(f.Context())
	cancel()
	look("an ended context", f.publish(ended, records()...))
	if f.server.RefuseMessage != nil {
		f.server.RefuseMessage(0)
		look("a refused message", f.publish(f.brief(), records()...))
	}
	if f.server.Refuse != nil {
		f.server.Refuse(math.MaxInt)
		look("refused requests", f.publish(f.brief(), records()...))
		f.server.Refuse(0)
	}
	if f.server.LoseReply != nil {
		f.server.LoseReply(math.MaxInt)
		look("lost replies", f.publish(f.brief(), records()...))
		f.server.LoseReply(0)
	}
	if f.server.MissingTopic != nil {
		look("a missing topic", f.publish(f.brief(), f.recordOn(f.server.MissingTopic(), "missing")))
	}
	if f.server.Down != nil {
		f.server.Down()
		look("an unreachable server", f.publish(f.brief(), records()...))
		f.server.Up()
	}
	if err := f.broker.Close(f.patient()); err != nil {
		f.Fatalf("Close: %v", err)
	}
	batch := f.prepareIfOpen(records()...)
	if batch != nil {
		ctx := f.patient()
		look("a closed broker", f.await(ctx, f.begin(ctx, batch), len(batch), f.harness.Patience))
	}
}

// prepareIfOpen prepares records, or returns nil when a closed broker prepares nothing any more.
func (f *fixture) prepareIfOpen(records ...*core.Record) []core.Prepared {
	batch := make([]core.Prepared, len(records))
	for i, r := range records {
		p, err := f.broker.Prepare(r)
		if err != nil {
			return nil
		}
		batch[i] = p
	}
	return batch
}

// Err is nil when the outcome is delivered, and only then.
func faultErrors(t T, h Harness) {
	f := start(t, h)
	check := func(what string, results []core.Result) {
		for i, r := range results {
			if (r.Err == nil) != (r.Outcome == core.OutcomeDelivered) {
				f.Errorf("%s: the outcome of message %d is %v and its error is %v", what, i, r.Outcome, r.Err)
			}
		}
	}
	check("no trouble", f.publish(f.patient(), f.spread(f.fit(5))...))
	f.troubles(check)
}

// Every error tells the dispatcher what it is and what it is about, in words that can be logged.
func errorsAreTyped(t T, h Harness) {
	f := start(t, h)
	f.troubles(func(what string, results []core.Result) {
		for i, r := range results {
			if r.Err == nil {
				continue
			}
			var e *core.PublishError
			switch {
			case !errors.As(r.Err, &e) || e == nil:
				f.Errorf("%s: errors.As finds no *core.PublishError for message %d in: %v", what, i, r.Err)
			case e.Class > core.ClassPermanent || e.Scope > core.ScopeBroker:
				f.Errorf("%s: class %d and scope %d do not exist", what, e.Class, e.Scope)
			case e.Code == "" || len(e.Code) > 64 || strings.ContainsAny(e.Code, " \t\n"):
				f.Errorf("%s: the code %q is no short name", what, e.Code)
			case strings.Contains(r.Err.Error(), note):
				f.Errorf("%s: the error contains the payload", what)
			}
		}
	})
}

// While every request is refused nothing is delivered, the trouble passes for a passing one, and then all goes on.
func faultRefused(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.Refuse != nil, "Refuse")
	records := f.spread(f.fit(4))
	f.server.Refuse(math.MaxInt)
	results := f.publish(f.brief(), records...)
	f.server.Refuse(0)
	f.wantAgreement(f.read(f.topic), records, results)
	for i, r := range results {
		if r.Outcome == core.OutcomeDelivered {
			f.Errorf("message %d is reported as delivered while everything is refused", i)
		}
		var e *core.PublishError
		if errors.As(r.Err, &e) && (e.Class == core.ClassPermanent || e.Class == core.ClassMisconfigured) {
			f.Errorf("message %d: a refusal that passes is reported as %v: %v", i, e.Class, r.Err)
		}
	}
	f.eventuallyDelivered("publishing after a refusal", records...)
}

// One refused message is the trouble of its key alone.
func faultRefusedMessage(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.RefuseMessage != nil, "RefuseMessage")
	records := f.spread(f.fit(5))
	f.server.RefuseMessage(1)
	results := f.publish(f.patient(), records...)
	f.wantAgreement(f.read(f.topic), records, results)
	for i, r := range results {
		if i != 1 && r.Outcome != core.OutcomeDelivered {
			f.Errorf("message %d of another key is %v: %v", i, r.Outcome, r.Err)
		}
	}
}

// What is stored may not be reported as rejected because the answer is missing.
func faultLostReply(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.LoseReply != nil, "LoseReply")
	for _, n := range []int{1, math.MaxInt} {
		records := f.records(fmt.Sprintf("lost-%d", n), f.room(4))
		f.server.LoseReply(n)
		results := f.publish(f.brief(), records...)
		f.server.LoseReply(0)
		f.wantAgreement(f.read(f.topic), records, results)
		f.eventuallyDelivered("publishing after a lost reply", records...)
		f.wantOrder(f.read(f.topic), records)
	}
}

// A missing topic is a matter for a person, who has to be told which one; other topics go on, and it works as soon as
// the topic is there.
func faultMissingTopic(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.MissingTopic != nil, "MissingTopic")
	f.deliver(f.record("other"))
	missing := f.server.MissingTopic()
	r := f.recordOn(missing, "missing")
	f.eventually("the right error for a missing topic", func() error {
		result := f.publish(f.patient(), r)[0]
		var e *core.PublishError
		switch {
		case result.Outcome == core.OutcomeDelivered:
			f.Fatalf("a message to the missing topic %q is reported as delivered", missing)
		case !errors.As(result.Err, &e):
			f.Fatalf("no *core.PublishError: %v", result.Err)
		case e.Class == core.ClassPermanent || e.Scope == core.ScopeMessage || e.Scope == core.ScopeBroker:
			f.Fatalf("the error is %v of the %v, want misconfigured of the destination: %v", e.Class, e.Scope, result.Err)
		case e.Class != core.ClassMisconfigured || e.Scope != core.ScopeDestination:
			return fmt.Errorf("%v of the %v, want misconfigured of the destination: %w", e.Class, e.Scope, result.Err)
		case !strings.Contains(result.Err.Error(), missing):
			f.Fatalf("the error does not name the topic %q: %v", missing, result.Err)
		}
		return nil
	})
	f.deliver(f.record("other"))
	if f.server.CreateTopic != nil {
		f.server.CreateTopic(missing)
		f.eventuallyDelivered("publishing to a topic that was missing", r)
	}
}

// An outage is nobody's fault: no message loses an attempt, none is parked.
func faultOutage(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.Down != nil, "Down")
	f.deliver(f.record("before"))
	f.server.Down()
	f.Cleanup(f.server.Up)
	for range 3 {
		for i, r := range f.publish(f.brief(), f.spread(f.fit(3))...) {
			var e *core.PublishError
			switch {
			case r.Outcome == core.OutcomeDelivered:
				f.Errorf("message %d is reported as delivered while the server is down", i)
			case !errors.As(r.Err, &e):
				f.Errorf("message %d: no *core.PublishError: %v", i, r.Err)
			case e.Scope != core.ScopeDestination && e.Scope != core.ScopeBroker:
				f.Errorf("message %d: the outage is trouble of the %v, want of the destination or broker: %v", i, e.Scope, r.Err)
			case e.Class == core.ClassPermanent || e.Class == core.ClassMisconfigured:
				f.Errorf("message %d: the outage is reported as %v: %v", i, e.Class, r.Err)
			}
		}
	}
}

// After an outage the same broker goes on by itself, and what was published before is still there.
func faultRecovery(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.Down != nil, "Down")
	records := f.records("recovery", 3)
	f.deliver(records[0])
	f.server.Down()
	f.publish(f.brief(), records[1])
	f.server.Up()
	f.eventuallyDelivered("publishing after an outage", records[1])
	f.deliver(records[2])
	f.wantOrder(f.read(f.topic), records)
}

// A cut connection is replaced.
func faultCut(t T, h Harness) {
	f := start(t, h)
	f.needs(f.server.Cut != nil, "Cut")
	records := f.records("cut", 10)
	for _, r := range records {
		f.server.Cut()
		f.eventuallyDelivered("publishing after a cut", r)
	}
	f.wantOrder(f.read(f.topic), records)
}

// Check tells the truth about the server.
func checkWhileDown(t T, h Harness) {
	f := start(t, h)
	if err := f.broker.Check(f.patient()); err != nil {
		f.Fatalf("Check while the server is up: %v", err)
	}
	f.needs(f.server.Down != nil, "Down")
	f.server.Down()
	if err := f.broker.Check(f.brief()); err == nil {
		f.Errorf("Check finds nothing wrong while the server is down")
	}
	f.server.Up()
	f.eventually("Check after an outage", func() error { return f.broker.Check(f.patient()) })
}
