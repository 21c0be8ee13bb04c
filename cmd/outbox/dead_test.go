package main_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// deadShop has parked events (p1 to p3 of one order, q1 of another), a blocked one (b1) before another (b2), and one
// that waits for its next attempt (w1).
func deadShop(t *testing.T) (shop, string) {
	t.Helper()
	s := newShop(t)
	if got := outbox(t, "migrate", "up", "--store", s.url()); got.code != 0 {
		t.Fatalf("migrate: %+v", got)
	}
	s.exec(t, `INSERT INTO outbox (event_id, topic, aggregate_type, aggregate_id, event_type, payload, headers, created_at,
			attempt_count, first_failed_at, last_error, dlq, next_attempt_at) VALUES
		('p1', 'orders', 'order', 'ord_1', 'order.created', '{"total":12345678901234567890.10}', '{"tenant":"acme"}', 1767225600000, 10, 1767225600000, 'too large', 1, NULL),
		('p2', 'orders', 'order', 'ord_1', 'order.paid', '{}', NULL, 1767225601000, 10, 1767225600000, 'too large', 1, NULL),
		('p3', 'orders', 'order', 'ord_1', 'order.paid', CAST('not json' AS BLOB), NULL, 1767225602000, 10, 1767225600000, 'invalid', 1, NULL),
		('q1', NULL, 'invoice', 'inv_1', 'invoice.sent', '{}', NULL, 1767225603000, 10, 1767225600000, 'too large', 1, NULL),
		('b1', NULL, 'order', 'ord_2', 'order.paid', '{}', NULL, 1767225604000, 10, 1767225600000, 'rejected', 0, 9223372036854775807),
		('b2', NULL, 'order', 'ord_2', 'order.paid', '{}', NULL, 1767225605000, 0, NULL, NULL, 0, NULL),
		('w1', 'orders', 'order', 'ord_3', 'order.paid', '{}', NULL, 1767225606000, 3, 1767225600000, 'broker said no', 0, 99999999999999)`)
	return s, s.url()
}

// exec runs SQL as an operator would.
func (s shop) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := s.db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatal(err)
	}
}

// state reads what an event has become: its state, attempts, replays and reason.
func (s shop) state(t *testing.T, eventID string) string {
	t.Helper()
	var state string
	if err := s.db.QueryRowContext(t.Context(), `SELECT CASE WHEN discarded_at IS NOT NULL THEN 'discarded'
			WHEN dlq = 1 THEN 'parked' WHEN published_at IS NOT NULL THEN 'published'
			WHEN next_attempt_at = 9223372036854775807 THEN 'blocked' ELSE 'pending' END
		|| ' ' || attempt_count || ' ' || replay || ' ' || ifnull(last_error, '') FROM outbox WHERE event_id = ?`,
		eventID).Scan(&state); err != nil {
		t.Fatalf("%s: %v", eventID, err)
	}
	return strings.TrimSpace(state)
}

func TestDeadListAndCountSelect(t *testing.T) {
	t.Parallel()
	_, url := deadShop(t)
	for _, test := range []struct {
		args string
		want string
	}{
		{"", "p1 p2 p3 q1"},
		{"--state blocked", "b1"},
		{"--state discarded", ""},
		{"--topic orders", "p1 p2 p3"},
		{"--aggregate-type invoice", "q1"},
		{"--aggregate-id ord_1 --event-type order.paid", "p2 p3"},
		{"--reason LARGE", "p1 p2 q1"},
		{"--id p3 --id q1 --id none", "p3 q1"},
		{"--created-after 2026-01-01T00:00:01Z --created-before 2026-01-01T01:00:02+01:00", "p2"},
		{"--created-before 1h", "p1 p2 p3 q1"},
	} {
		filter := append(strings.Fields(test.args), "--store", url)
		got := outbox(t, append([]string{"dead", "list", "--json"}, filter...)...)
		var ids []string
		for line := range strings.Lines(got.out) {
			var dead struct {
				EventID string `json:"event_id"`
			}
			if err := json.Unmarshal([]byte(line), &dead); err != nil {
				t.Fatalf("%s: line %q: %v", test.args, line, err)
			}
			ids = append(ids, dead.EventID)
		}
		if got.code != 0 || strings.Join(ids, " ") != test.want {
			t.Errorf("list %s: %+v; want %s", test.args, got, test.want)
		}
		count := outbox(t, append([]string{"dead", "count"}, filter...)...)
		if want := fmt.Sprintln(len(ids)); count.code != 0 || count.out != want {
			t.Errorf("count %s: %+v; want %s", test.args, count, want)
		}
	}
	if got := outbox(t, "dead", "count", "--json", "--store", url); got.out != "{\"count\":4}\n" {
		t.Errorf("count --json: %+v", got)
	}
}

func TestDeadListShows(t *testing.T) {
	t.Parallel()
	_, url := deadShop(t)
	list := func(args ...string) result {
		return outbox(t, append([]string{"dead", "list", "--store", url}, args...)...)
	}
	table := list("--limit", "2")
	want := []string{"ID", "p1", "p2"}
	for i, line := range strings.Split(strings.TrimSpace(table.out), "\n") {
		if i >= len(want) || !strings.Contains(line, want[i]) {
			t.Errorf("line %d is %q", i, line)
		}
	}
	if !strings.Contains(table.out, "order/ord_1") || !strings.Contains(table.out, "too large") || strings.Contains(table.out, "total") {
		t.Errorf("the table is\n%s", table.out)
	}
	if !strings.Contains(table.errOut, "--after 2") {
		t.Errorf("no word of the other two: %q", table.errOut)
	}
	if rest := list("--after", "2"); strings.Contains(rest.out, "p2") || !strings.Contains(rest.out, "q1") || rest.errOut != "" {
		t.Errorf("after 2: %+v", rest)
	}
	if got := list("--json"); strings.Contains(got.out, "payload") || !strings.Contains(got.out, `"headers":{"tenant":"acme"}`) {
		t.Errorf("without --payload: %s", got.out)
	}
	got := list("--json", "--payload").out
	if !strings.Contains(got, `"payload":{"total":12345678901234567890.10}`) || !strings.Contains(got, `"payload_base64":"bm90IGpzb24="`) {
		t.Errorf("with --payload: %s", got)
	}
}

// What a stranger wrote into an event must not move the cursor of the terminal, nor break the lines.
func TestField_171_TableIsPlainText(t *testing.T) {
	t.Parallel()
	s, url := deadShop(t)
	s.exec(t, `UPDATE outbox SET aggregate_id = ?, last_error = ?, topic = ? WHERE event_id = 'p1'`,
		"<b>\x1b[31m", "line\nbreak\ttab \x1b]0;title\x07 \u202eright \u009b "+strings.Repeat("x", 5000), "a\r\x00b")
	got := outbox(t, "dead", "list", "--id", "p1", "--store", url)
	if got.code != 0 || strings.Count(got.out, "\n") != 2 || len(got.out) > 1000 {
		t.Errorf("got %d lines, %d bytes: %q", strings.Count(got.out, "\n"), len(got.out), got.out)
	}
	if i := strings.IndexFunc(got.out, func(r rune) bool { return r < ' ' && r != '\n' || r > '~' }); i >= 0 {
		t.Errorf("%q has the character %q", got.out, got.out[i:min(len(got.out), i+4)])
	}
	for _, part := range []string{`<b>\x1b[31m`, `line\nbreak\ttab`, `\u202e`, `a\r\x00b`} {
		if !strings.Contains(got.out, part) {
			t.Errorf("%q lacks %q", got.out, part)
		}
	}
}

func TestDeadRequeueAndDiscard(t *testing.T) {
	t.Parallel()
	s, url := deadShop(t)
	dead := func(args ...string) result { return outbox(t, append([]string{"dead", "--store", url}, args...)...) }
	if got := dead("requeue", "--reason", "LARGE", "--topic", "orders", "--dry-run"); got.code != 0 ||
		!strings.HasPrefix(got.out, "selected: 2; nothing was changed\n") || !strings.Contains(got.out, "p2") {
		t.Errorf("dry run: %+v", got)
	}
	if got := s.state(t, "p1"); got != "parked 10 0 too large" {
		t.Errorf("after a dry run p1 is %q", got)
	}
	for _, step := range []struct {
		args []string
		out  string
		want map[string]string
	}{
		{[]string{"requeue", "--id", "p1"}, "requeued: 1\n", map[string]string{"p1": "pending 0 1", "p2": "parked 10 0 too large"}},
		{[]string{"discard", "--id", "p2", "--why", "a test"}, "discarded: 1\n", map[string]string{
			"p2": "discarded 10 0 discarded: a test; too large", "p3": "parked 10 0 invalid",
		}},
		{[]string{"requeue", "--state", "discarded", "--all"}, "requeued: 1\n", map[string]string{"p2": "pending 0 1"}},
		{[]string{"discard", "--all", "--why", "shop closed"}, "discarded: 2\n", map[string]string{
			"p3": "discarded 10 0 discarded: shop closed; invalid", "q1": "discarded 10 0 discarded: shop closed; too large",
			"b1": "blocked 10 0 rejected",
		}},
		{[]string{"requeue", "--state", "blocked", "--aggregate-id", "ord_2"}, "requeued: 1\n", map[string]string{"b1": "pending 0 1"}},
		{[]string{"requeue", "--all"}, "requeued: 0\n", map[string]string{"w1": "pending 3 0 broker said no"}},
	} {
		if got := dead(step.args...); got.code != 0 || got.out != step.out || got.errOut != "" {
			t.Errorf("%v: %+v; want %q", step.args, got, step.out)
		}
		for id, want := range step.want {
			if got := s.state(t, id); got != want {
				t.Errorf("after %v %s is %q, want %q", step.args, id, got, want)
			}
		}
	}
}

// An id that selects nothing is most likely misspelt: that is said, and seen by a script.
func TestDeadTellsOfIDsThatSelectNothing(t *testing.T) {
	t.Parallel()
	s, url := deadShop(t)
	for _, test := range []struct {
		args, out, errOut string
	}{
		{"requeue --id p9", "requeued: 0\n", "outbox: no parked event with id \"p9\"; `outbox dead list --state parked` shows them\n"},
		{"requeue --id p9 --dry-run", "selected: 0; nothing was changed\n", "outbox: no parked event with id \"p9\"; `outbox dead list --state parked` shows them\n"},
		{"discard --id b1 --why x", "discarded: 0\n", "outbox: no parked event with id \"b1\"; it is blocked: `outbox dead list --state blocked`\n"},
		{
			"requeue --id q1 --topic orders", "requeued: 0\n",
			"outbox: the event with id \"q1\" is parked, but the other flags do not select it\n",
		},
		{
			"requeue --id p1 --id p9 --id w1 --id p9", "requeued: 1\n", "outbox: no parked event with id \"p9\"; `outbox dead list --state parked` shows them\n" +
				"outbox: no parked event with id \"w1\"; `outbox dead list --state parked` shows them\n",
		},
		{"requeue --state discarded --id p2", "requeued: 0\n", "outbox: no discarded event with id \"p2\"; it is parked: `outbox dead list --state parked`\n"},
	} {
		got := outbox(t, append([]string{"dead", "--store", url}, strings.Fields(test.args)...)...)
		if got != (result{code: 3, out: test.out, errOut: test.errOut}) {
			t.Errorf("%s: %+v; want code 3, %q and %q", test.args, got, test.out, test.errOut)
		}
	}
	if got := s.state(t, "p1"); got != "pending 0 1" {
		t.Errorf("p1 is %q, although its id is right", got)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s, url := deadShop(t)
	keys := func(command, key string, more ...string) result {
		args := []string{"keys", command, "--store", url, "--aggregate-type", "order", "--aggregate-id", key}
		return outbox(t, append(args, more...)...)
	}
	for _, step := range []struct {
		command, key string
		more         []string
		code         int
		out          string
		event, want  string
	}{
		{"unblock", "ord_3", []string{"--topic", "orders"}, 3, "unblocked: 0\n", "w1", "pending 3 0 broker said no"},
		{"unblock", "ord_2", []string{"--topic", "orders"}, 3, "unblocked: 0\n", "b1", "blocked 10 0 rejected"},
		{"unblock", "ord_2", nil, 0, "unblocked: 1\n", "b1", "pending 0 0"},
		{"skip", "ord_2", []string{"--why", "x"}, 3, "parked: 0\n", "b1", "pending 0 0"},
		{"skip", "ord_3", []string{"--topic", "orders", "--why", "OPS-8"}, 0, "parked: 1\n", "w1", "parked 3 0 skipped: OPS-8; broker said no"},
	} {
		got := keys(step.command, step.key, step.more...)
		if got.code != step.code || got.out != step.out || (step.code == 3) != strings.HasPrefix(got.errOut, "outbox: ") {
			t.Errorf("%s %s %v: %+v; want %q, code %d", step.command, step.key, step.more, got, step.out, step.code)
		}
		if state := s.state(t, step.event); state != step.want {
			t.Errorf("after %s %s %v %s is %q, want %q", step.command, step.key, step.more, step.event, state, step.want)
		}
	}
}

func TestDeadUsage(t *testing.T) {
	t.Parallel()
	s, url := deadShop(t)
	for _, test := range []struct{ args, want string }{
		{"dead requeue", "--all"},
		{"dead requeue --state blocked", "blocked"},
		{"dead requeue --all --topic orders", "--all"},
		{"dead requeue --aggregate-id= --topic orders", "--aggregate-id: is empty"},
		{"dead requeue --id=", "--id: is empty"},
		{"dead discard --id p1 --id= --why x", "--id: is empty"},
		{"dead list --id=", "--id: is empty"},
		{"dead discard --all", "--why"},
		{"dead discard --id b1 --state blocked --why x", "outbox keys skip"},
		{"dead list --state broken", "--state"},
		{"dead list --limit 0", "--limit"},
		{"dead list --payload", "--json"},
		{"dead list --created-after yesterday", "--created-after"},
		{"dead list p1", "takes no arguments"},
		{"keys unblock --aggregate-type order", "--aggregate-id"},
		{"keys skip --aggregate-type order --aggregate-id ord_2", "--why"},
	} {
		got := outbox(t, append(strings.Fields(test.args), "--store", url)...)
		if got.code != 2 || !strings.Contains(got.errOut, test.want) || got.out != "" {
			t.Errorf("%s: %+v; want code 2 and %q", test.args, got, test.want)
		}
	}
	for _, id := range []string{"p1", "b1"} {
		if state := s.state(t, id); slices.Contains([]string{"pending", "discarded"}, strings.Fields(state)[0]) {
			t.Errorf("%s was changed: %s", id, state)
		}
	}
}

// An event at the limit of attempts is not retried and not forgotten: it is found, requeued and delivered.
func TestField_028_ParkedEventIsListedAndDelivered(t *testing.T) {
	t.Parallel()
	s, url := deadShop(t)
	_, kafka := startKafka(t, kfake.SeedTopics(1, "invoice", "orders"))
	if got := outbox(t, "dead", "list", "--id", "q1", "--store", url); got.code != 0 || !strings.Contains(got.out, "q1") {
		t.Fatalf("list: %+v", got)
	}
	if got := outbox(t, "dead", "requeue", "--id", "q1", "--store", url); got.code != 0 {
		t.Fatalf("requeue: %+v", got)
	}
	got := outbox(t, "run", "--once", "--store", url, "--broker", kafka)
	if got.code != 0 {
		t.Fatalf("run: %+v", got)
	}
	for _, want := range []string{`"keys":1,"look":"outbox dead list --state blocked"`, `"events":3,"look":"outbox dead list --state parked"`} {
		if strings.Count(got.errOut, want) != 1 { // they are older than this run
			t.Errorf("the run does not say %s in\n%s", want, got.errOut)
		}
	}
	if got := s.state(t, "q1"); got != "published 0 1" {
		t.Errorf("q1 is %q", got)
	}
	if got := s.state(t, "b2"); got != "pending 0 0" {
		t.Errorf("b2 is %q although b1 is blocked before it", got)
	}
}
