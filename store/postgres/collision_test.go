package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/core"
)

// An event id that is there already for another event must never pass for a repeat: the business transaction fails, with
// an error that names the id, in whatever way the row comes in. What was written before stays as it was.
func TestField_155_CollidingEventID(t *testing.T) {
	t.Parallel()
	s := open(t)
	enqueue(t, s, message("a", "e1"))
	execSQL(t, s, `CREATE TABLE {outbox_business} (n int)`)
	for name, write := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"enqueue": func(ctx context.Context, tx pgx.Tx) error {
			_, err := s.In(tx).Enqueue(ctx, message("b", "e2"), message("b", "e1"))
			var conflict *core.EventConflictError
			if !errors.As(err, &conflict) || conflict.EventID != "e1" {
				t.Errorf("want an *core.EventConflictError for e1, got %v", err)
			}
			return err
		},
		"copy": func(ctx context.Context, tx pgx.Tx) error {
			_, err := s.EnqueueCopy(ctx, tx, message("b", "e2"), message("b", "e1"))
			return err
		},
	} {
		err := s.InTx(t.Context(), func(tx pgx.Tx, _ core.Enqueuer) error {
			if _, err := tx.Exec(t.Context(), s.SQL(`INSERT INTO {outbox_business} VALUES (1)`)); err != nil {
				return err
			}
			return write(t.Context(), tx)
		})
		if err == nil || !strings.Contains(err.Error(), "e1") {
			t.Errorf("%s: want an error that names e1, got %v", name, err)
		}
	}
	if n := queryOne[int](t, s, `SELECT count(*) FROM {outbox_business}`); n != 0 {
		t.Errorf("%d business rows were committed without their event", n)
	}
	equal(t, "events", eventIDs(join(t, s, "m").fetch()), []string{"e1"})
}
