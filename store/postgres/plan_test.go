package postgres_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-outbox/outbox/store/postgres"
)

// explain plans a query of the store as the store's prepared statements are planned, and runs it when analyze is set.
func explain(t testing.TB, s *postgres.Store, analyze bool, query string, args ...any) string {
	t.Helper()
	tx := begin(t, s)
	option := "(COSTS OFF)"
	if analyze {
		option = "(ANALYZE, BUFFERS)"
	}
	values := make([]string, len(args))
	for i, arg := range args {
		values[i] = fmt.Sprintf("'%v'", arg)
	}
	for _, statement := range []string{"SELECT " + postgres.HotPlansSQL, "PREPARE q AS " + query} {
		if _, err := tx.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := tx.Query(t.Context(), "EXPLAIN "+option+" EXECUTE q ("+strings.Join(values, ", ")+")", pgx.QueryExecModeSimpleProtocol)
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
	if err := tx.Rollback(t.Context()); err != nil { // a statement that writes was run
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

// lanesArg are arguments for all lanes, with the same bounds.
func lanesArg(value string) string { return "{" + strings.Repeat(value+",", 63) + value + "}" }

// rowsArgs are the arguments of a fetch of all lanes that read up to front before, and may have late commits above mark.
func rowsArgs(mark, front int64) []any {
	lanes := make([]string, 64)
	for i := range lanes {
		lanes[i] = strconv.Itoa(i)
	}
	few, bound := "{}", lanesArg(strconv.FormatInt(mark, 10))
	return []any{
		"{" + strings.Join(lanes, ",") + "}", bound, bound, front, few, "{}", "{}", "{}", "{}", lanesArg("t"), 1000, 4 << 20,
	}
}

// TestPlans keeps the plans of the hot statements: on a table that is empty and was never analyzed, on a full one, and on
// one that is mostly dead rows and dead index entries.
func TestPlans(t *testing.T) {
	t.Parallel()
	for _, table := range []struct {
		name string
		make func(t *testing.T, s *postgres.Store)
	}{
		{"empty", func(*testing.T, *postgres.Store) {}},
		{"full", func(t *testing.T, s *postgres.Store) { fill(t, s, 200_000) }},
		{"bloated", func(t *testing.T, s *postgres.Store) {
			execSQL(t, s, `ALTER TABLE {outbox} SET (autovacuum_enabled = false)`)
			fill(t, s, 50_000)
			execSQL(t, s, `UPDATE {outbox} SET published_at = now() WHERE id % 1000 > 0`)
			execSQL(t, s, `ANALYZE {outbox}`)
		}},
		{"idle until a moment ago", func(t *testing.T, s *postgres.Store) { // the statistics say that nothing is pending
			execSQL(t, s, `ALTER TABLE {outbox} SET (autovacuum_enabled = false)`)
			fill(t, s, 50_000)
			execSQL(t, s, `UPDATE {outbox} SET published_at = now()`)
			execSQL(t, s, `VACUUM ANALYZE {outbox}`)
			execSQL(t, s, `INSERT INTO {outbox} (aggregate_type, aggregate_id, event_type)
				SELECT 'order', 'ord_' || g % 1000, 'order.created' FROM generate_series(1, 20000) g`)
		}},
	} {
		t.Run(table.name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			table.make(t, s)
			for _, sql := range []string{s.RowsSQL(), s.SmallRowsSQL()} {
				rows := explain(t, s, false, sql, rowsArgs(10, 1000)...)
				wantPlan(t, rows, "Index Scan using outbox_pending on outbox", "Index Scan using outbox_pending_lane on outbox",
					"One-Time Filter")
				if n := strings.Count(rows, "Sort\n"); n > 1 {
					t.Errorf("%d sorts, want one, of the late commits:\n%s", n, rows)
				}
			}
			wantPlan(t, explain(t, s, false, s.PublishedSQL(), settleArgs()...), "Index Scan using outbox_pkey on outbox o",
				"Index Cond: ((event_id)::text = (i.event_id)::text)")
			wantPlan(t, explain(t, s, false, s.HeadsSQL(), "{1,2}", "{a,b}", "{1}"), "Index Scan using outbox_pkey on outbox b",
				"Index Cond: ((event_id)::text = (h.event_id)::text)")
		})
	}
}

func settleArgs() []any {
	return []any{"m", "{1,2}", "{1,1}", "{1,2,3}", "{a,b,c}", "{0,0,0}", "{1,1,1}", "{now,now,now}"}
}

// TestPlans_Months is the same on an outbox with partitions: each is read by its own indexes, and a settle looks into the
// partition of the row only.
func TestPlans_Months(t *testing.T) {
	t.Parallel()
	s := open(t, byMonth)
	for months := 1; months <= 2; months++ {
		monthsAgo(t, s, months, 20_000)
	}
	fill(t, s, 20_000)
	rows := explain(t, s, false, s.RowsSQL(), rowsArgs(10, 1000)...)
	wantPlan(t, rows, "Merge Append", "One-Time Filter")
	if n := strings.Count(rows, "Index Scan using"); n != 3*5 {
		t.Errorf("%d index scans, want three for each of five partitions:\n%s", n, rows)
	}
	if n := strings.Count(rows, "Sort\n"); n > 1 {
		t.Errorf("%d sorts, want one, of the late commits:\n%s", n, rows)
	}
	execSQL(t, s, `UPDATE {outbox} SET published_at = now() WHERE id <> 40001`)
	m := join(t, s, "m")
	r := m.fetch()[0]
	settle := explain(t, s, true, s.PublishedSQL(), "m", fmt.Sprintf("{%d}", r.Lane), fmt.Sprintf("{%d}", m.leases[r.Lane].Epoch),
		fmt.Sprintf("{%d}", r.ID), "{"+r.EventID+"}", "{0}", fmt.Sprintf("{%d}", int64(r.Origin)),
		"{"+r.CreatedAt.Format(time.RFC3339Nano)+"}")
	wantPlan(t, settle, "Index Scan using outbox_")
	if n := strings.Count(settle, "(never executed)"); n != 4 {
		t.Errorf("%d of the 4 partitions of other months are left out:\n%s", n, settle)
	}
	wantPlan(t, explain(t, s, false, s.HeadsSQL(), "{1,2}", "{a,b}", "{1}"), "Index Scan using outbox_")
}

// seqScan finds one of the outbox or its partitions.
var seqScan = regexp.MustCompile(`Seq Scan on outbox(_[0-9]+)? `)

func wantPlan(t *testing.T, plan string, want ...string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(plan, part) {
			t.Errorf("the plan lacks %q:\n%s", part, plan)
		}
	}
	if seqScan.MatchString(plan) || strings.Contains(plan, "Bitmap") {
		t.Errorf("the plan reads more than it must:\n%s", plan)
	}
}
