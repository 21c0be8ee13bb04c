package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// verify reads the topic with a consumer of its own and fails unless it holds the numbers 1 to rows, the first
// occurrences of each key in growing order. It returns how many were repeats.
func (e *environment) verify(ctx context.Context, topic string, rows int) (repeats int, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(e.seeds()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	seen := make([]bool, rows+1)
	last := map[string]int{}
	for found := 0; found < rows; {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return 0, fmt.Errorf("void: %d of %d events arrived: %w", found, rows, err)
		}
		var bad error
		fetches.EachRecord(func(r *kgo.Record) {
			var body struct{ N int }
			if err := json.Unmarshal(r.Value, &body); err != nil || body.N < 1 || body.N > rows {
				bad = fmt.Errorf("void: a message that was never enqueued: %.60s", r.Value)
				return
			}
			if seen[body.N] {
				repeats++
				return
			}
			seen[body.N] = true
			found++
			if key := string(r.Key); last[key] > body.N {
				bad = fmt.Errorf("void: %s: %d came after %d", key, body.N, last[key])
			} else {
				last[key] = body.N
			}
		})
		if bad != nil {
			return 0, bad
		}
	}
	return repeats, nil
}
