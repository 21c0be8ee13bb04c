package postgres_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sqlMutants breaks one rule of the SQL each; the named test has to notice, on a real server. The rules of the cursor
// have theirs in internal/cursor.
var sqlMutants = []struct{ name, file, from, to, test string }{
	{
		"an id is drawn before the xid", "migrations/0001_outbox.up.sql",
		"DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval({'outbox_id_seq'}::regclass) END",
		"DEFAULT nextval({'outbox_id_seq'}::regclass)", "TestXidComesBeforeTheID",
	},
	{
		"the last id is read without a lock", "queries_fetch.go", "coalesce(pg_sequence_last_value({'outbox_id_seq'}::regclass), 0)",
		"(SELECT last_value - (NOT is_called)::int FROM {outbox_id_seq})", "TestLastID_IsNeverTooHigh",
	},
	{
		"a sample of a settle has the snapshot's xmax", "queries_fetch.go",
		"SELECT l.lane, pg_current_xact_id()::text::bigint",
		"SELECT l.lane, pg_snapshot_xmax(pg_current_snapshot())::text::bigint", "TestSampleIsAboveAllWriters",
	},
	{
		"a row is settled whatever its event", "queries_settle.go",
		"o.event_id = i.event_id{same_month} AND o.id = i.id AND o", "o.id = i.id{same_month} AND o",
		"TestConformance/default/Settle",
	},
	{
		"a large row is taken for a small one", "fetch.go", "p.tooLarge = size > share", "_ = size",
		"TestConformance/default/Fetch",
	},
	{
		"a row is settled whatever its replay", "queries_settle.go", " AND o.replay = i.replay AND", " AND",
		"TestConformance/default/Settle",
	},
	{
		"what was read from another server is settled", "queries_settle.go", " AND i.origin = (SELECT ` + originSQL + `)`", "`",
		"TestServerReplaced",
	},
	{
		"another server is not noticed", "queries_fetch.go", "extract(epoch FROM pg_postmaster_start_time())), 1, 16)", "'x'), 1, 16)",
		"TestServerReplaced",
	},
	{
		"a settle locks nothing", "queries_fetch.go", "ORDER BY l.lane FOR SHARE OF l`", "ORDER BY l.lane`",
		"TestSettle_LocksItsLanes",
	},
	{
		"lanes are taken from an owner that is just renewing", "queries.go",
		"WHERE expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED\n), free", "WHERE expires_at <= clock_timestamp()\n), free",
		"TestLease_RenewalUnderWayKeepsTheLanes",
	},
}

func TestSQL_MutantsAreCaught(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles the package once for each mutant")
	}
	serverURL(t)
	for _, mutant := range sqlMutants {
		t.Run(mutant.name, func(t *testing.T) {
			source, err := os.ReadFile(mutant.file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), mutant.from); n != 1 {
				t.Fatalf("%s contains the text to change %d times, want once:\n%s", mutant.file, n, mutant.from)
			}
			dir := t.TempDir()
			changed, list := filepath.Join(dir, filepath.Base(mutant.file)), filepath.Join(dir, "overlay.json")
			text := strings.Replace(string(source), mutant.from, mutant.to, 1)
			original, err := filepath.Abs(mutant.file)
			if err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
			if err != nil {
				t.Fatal(err)
			}
			for name, content := range map[string]string{changed: text, list: string(overlay)} {
				if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", list, "-run", "^"+mutant.test, ".").CombinedOutput()
			if err == nil {
				t.Fatalf("%s did not notice:\n%s", mutant.test, out)
			}
			if !strings.Contains(string(out), "--- FAIL: "+strings.Split(mutant.test, "/")[0]) {
				t.Fatalf("failed for another reason:\n%s", out)
			}
		})
	}
}
