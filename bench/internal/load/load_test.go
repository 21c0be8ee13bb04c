package load_test

import (
	"encoding/json"
	"testing"

	"github.com/go-outbox/outbox/bench/internal/load"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	body := func(n int, key string) []byte { return load.Body(n, key) }
	for _, c := range []struct {
		name             string
		bodies           [][]byte
		missing, repeats int
		void             bool
	}{
		{"all in order", [][]byte{body(1, "a"), body(3, "b"), body(2, "a")}, 0, 0, false},
		{"a repeat, even a late one", [][]byte{body(1, "a"), body(2, "a"), body(1, "a")}, 1, 1, false},
		{"one is missing", [][]byte{body(1, "a"), body(3, "a")}, 1, 0, false},
		{"out of order", [][]byte{body(2, "a"), body(1, "a")}, 1, 0, true},
		{"never enqueued", [][]byte{body(4, "a")}, 3, 0, true},
		{"not ours", [][]byte{[]byte("x")}, 3, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			check := load.NewCheck(3)
			var err error
			for _, b := range c.bodies {
				if err = check.Add(b); err != nil {
					break
				}
			}
			if (err != nil) != c.void {
				t.Fatalf("error: %v", err)
			}
			if !c.void && (check.Missing() != c.missing || check.Repeats() != c.repeats) {
				t.Errorf("missing %d, repeats %d", check.Missing(), check.Repeats())
			}
		})
	}
}

func TestBody(t *testing.T) {
	t.Parallel()
	body := load.Body(123_456, load.Key(123_456))
	if !json.Valid(body) {
		t.Fatalf("not JSON: %s", body)
	}
	if n := len(body); n < load.PayloadBytes-20 || n > load.PayloadBytes+20 {
		t.Errorf("%d bytes", n)
	}
}
