package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// The last id drawn must never be read higher than it is. A server that seems to go back voids everything in flight, and
// a sample would promise that nobody draws ids that are drawn a moment later. One session draws without pause, another
// one reads without pause.
func TestLastID_IsNeverTooHigh(t *testing.T) {
	t.Parallel()
	s := open(t)
	execSQL(t, s, `CREATE FUNCTION {outbox_backwards}(reads int) RETURNS int LANGUAGE plpgsql AS $$
		DECLARE
			last bigint := 0;
			now_last bigint;
			backwards int := 0;
		BEGIN
			FOR i IN 1..reads LOOP
				now_last := `+s.LastIDSQL()+`;
				IF now_last < last THEN backwards := backwards + 1; END IF;
				last := now_last;
			END LOOP;
			RETURN backwards;
		END $$`)
	drawing, stop := context.WithCancel(t.Context())
	defer stop()
	conn, err := s.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		defer conn.Release()
		for drawing.Err() == nil {
			_, _ = conn.Exec(drawing, s.SQL(`SELECT nextval({'outbox_id_seq'}) FROM generate_series(1, 100000)`), pgx.QueryExecModeExec)
		}
	}()
	if n := queryOne[int](t, s, `SELECT {outbox_backwards}(600000)`); n > 0 {
		t.Errorf("the last id went back %d times in 600,000 reads", n)
	}
	stop()
	<-stopped
}
