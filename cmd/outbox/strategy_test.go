package main_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-outbox/outbox/ordering"
	"github.com/go-outbox/outbox/store/sqlite"
)

func TestStrategyAccept(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	url := "sqlite://" + filepath.ToSlash(path)
	if got := outbox(t, "migrate", "up", "--store", url); got.code != 0 {
		t.Fatalf("migrate: %+v", got)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	before := ordering.Shards{}.Fingerprint()
	if _, err := store.Fingerprint(t.Context(), "", "orders", before); err != nil {
		t.Fatal(err)
	}
	accept := func(more ...string) result {
		args := append([]string{"strategy", "accept", "--store", url, "--broker", "sqs://127.0.0.1:1"}, more...)
		return outbox(t, args...)
	}
	if got := accept(); got.code != 2 || !strings.Contains(got.errOut, "--destination") {
		t.Errorf("without a destination: %+v", got)
	}
	got := accept("--destination", "orders")
	now, err := store.Fingerprint(t.Context(), "", "orders", "")
	if err != nil {
		t.Fatal(err)
	}
	if got.code != 0 || now == before || got.out != "orders: "+now+", was "+before+"\n" {
		t.Errorf("accept: %+v; the store has %q", got, now)
	}
	if got := accept("--destination", "orders"); got.code != 0 || got.out != "orders: "+now+" already\n" {
		t.Errorf("again: %+v", got)
	}
	if err := store.AcceptFingerprint(t.Context(), "", "orders", "switching: "+before+" -> "+now); err != nil {
		t.Fatal(err)
	}
	if got := accept("--destination", "orders"); got.code != 1 || !strings.Contains(got.errOut, "being resharded") {
		t.Errorf("in the middle of a resharding: %+v", got)
	}
}
