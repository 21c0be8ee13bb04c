// Package notify tells people when events need them: a [Webhook] is a [core.Observer] that posts to a URL of your own, to
// Slack or to PagerDuty.
//
//	hook, err := notify.New(notify.Config{URL: "https://hooks.slack.com/services/...", Format: notify.Slack})
//	go hook.Run(ctx) // one goroutine, which ends with ctx
//	dispatcher, err := core.NewDispatcher(store, broker, core.Config{Observer: hook})
//
// # What is told
//
//	parked   an event was taken out of the order, with its reason
//	blocked  an event waits for a person at the head of its aggregate
//	halted   nothing more is published to a destination until somebody acts
//	paused   a destination or the broker has been in trouble for longer than Config.PausedFor
//	resumed  what was halted or paused works again
//
// An alert is a kind and a topic (or destination). The first event of an alert is told at once; those that follow within
// Config.MinInterval are counted and told together, with the last of them as the example. So a thousand parked events of a
// topic are two messages. Each process tells what it sees itself: replicas tell an outage once each. PagerDuty makes one
// incident of them, because they share the dedup key.
//
// A message names the event, its aggregate and the reason, never its payload or headers. What cannot be delivered is
// tried again, later and later; what happens meanwhile is counted. The last messages go out when Run ends, so end it
// after the dispatcher.
//
// # Generic
//
// The body is JSON, signed as Standard Webhooks (standardwebhooks.com) have it, for which there are libraries in most
// languages; in Go [Verify] checks it. Answer with any 2xx status.
//
//	{"type": "outbox.parked", "timestamp": "2026-11-30T20:15:00Z", "data": {"outbox": "shop", "topic": "orders",
//	 "event_id": "...", "aggregate_type": "order", "aggregate_id": "ord_1", "attempts": 10, "reason": "...",
//	 "left_out": 36, "summary": "..."}}
package notify
