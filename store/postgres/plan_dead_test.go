package postgres_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/store/postgres"
)

// deadArgs are arguments of the statements about dead letters, as literals.
func deadArgs(name string) []string {
	switch what, _, _ := strings.Cut(name, " "); what {
	case "count":
		return []string{"'{}'", "'orders'", "''", "''", "''", "'too large'", "NULL", "now()"}
	case "list", "requeue":
		return append(deadArgs("count"), "0", "1000")
	case "discard":
		return append(deadArgs("list"), "'discarded: why'")
	case "unblock":
		return []string{"''", "'order'", "'ord_1'"}
	case "skip":
		return append(deadArgs("unblock"), "'skipped: why'")
	default: // purge
		return []string{"1", "'1 hour'", "'0'", "1000"}
	}
}

// TestPlans_DeadLetters: whoever looks at dead letters does not read the table, however large it is and whatever the
// statistics say.
func TestPlans_DeadLetters(t *testing.T) {
	t.Parallel()
	someDead := `UPDATE {outbox} SET dlq = id % 3 > 0, discarded_at = CASE WHEN id % 3 = 2 THEN now() END,
		next_attempt_at = CASE WHEN id % 3 = 0 THEN 'infinity'::timestamptz END, last_error = 'too large' WHERE id % 10000 < 3`
	for name, make := range map[string]func(t *testing.T, s *postgres.Store){
		"empty": func(*testing.T, *postgres.Store) {},
		"full": func(t *testing.T, s *postgres.Store) {
			fill(t, s, 50_000)
			execSQL(t, s, someDead)
			execSQL(t, s, `ANALYZE {outbox}`)
		},
		"never analyzed": func(t *testing.T, s *postgres.Store) {
			execSQL(t, s, `ALTER TABLE {outbox} SET (autovacuum_enabled = false)`)
			execSQL(t, s, `INSERT INTO {outbox} (aggregate_type, aggregate_id, event_type)
				SELECT 'order', 'ord_' || g % 1000, 'order.created' FROM generate_series(1, 50000) g`)
			execSQL(t, s, someDead)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			make(t, s)
			for statement, query := range s.DeadSQL() {
				for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
					wantDeadPlan(t, statement+", "+mode, explainDead(t, s, mode, query, deadArgs(statement)))
				}
			}
		})
	}
}

func explainDead(t *testing.T, s *postgres.Store, mode, query string, args []string) string {
	t.Helper()
	tx := begin(t, s)
	for _, statement := range []string{"SET LOCAL plan_cache_mode = " + mode, postgres.IndexedSQL, "PREPARE q AS " + query} {
		if _, err := tx.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := tx.Query(t.Context(), fmt.Sprintf("EXPLAIN (COSTS OFF) EXECUTE q (%s)", strings.Join(args, ", ")),
		pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "DEALLOCATE q", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

var (
	// usedIndex finds the indexes of a plan; the first of the outbox is that by which dead letters are found.
	usedIndex = regexp.MustCompile(`(?:Scan using|Bitmap Index Scan on) (outbox_\S+)`)
	// wholeTable finds what reads all rows.
	wholeTable = regexp.MustCompile(`Seq Scan on outbox( [bo])?\n|outbox_pkey on outbox( [bo])?\n\s*[^I\s]`)
)

func wantDeadPlan(t *testing.T, what, plan string) {
	t.Helper()
	allowed := []string{"outbox_dead", "outbox_pkey", "outbox_lanes_pkey"}
	if strings.HasPrefix(what, "skip head") {
		allowed[0] = "outbox_pending_lane"
	}
	found := false
	for _, index := range usedIndex.FindAllStringSubmatch(plan, -1) {
		found = found || index[1] == allowed[0]
		if !slices.Contains(allowed, index[1]) {
			t.Errorf("%s uses %s:\n%s", what, index[1], plan)
		}
	}
	if !found || wholeTable.MatchString(plan+"\n") {
		t.Errorf("%s reads more than %s:\n%s", what, allowed[0], plan)
	}
}
