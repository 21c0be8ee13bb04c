package ordering_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-outbox/outbox/ordering"
)

// The hash is kept in tables and must never change: these values come from md5sum.
func TestHash_NeverChanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		aggregateType, aggregateID string
		hash                       uint64
	}{
		{"order", "ord_1", 0x7870d6788db6190},
		{"", "", 0x6666cd76f969564},
		{"заказ", "№1", 0xf07e12ba41a8c9e},
	} {
		if got := ordering.Hash(c.aggregateType, c.aggregateID); got != c.hash {
			t.Errorf("%q/%q: %#x, want %#x", c.aggregateType, c.aggregateID, got, c.hash)
		}
	}
}

func TestLane_SpreadsEvenly(t *testing.T) {
	t.Parallel()
	const lanes, n = 64, 64_000
	count := make([]int, lanes)
	for i := range n {
		count[ordering.Lane("order", fmt.Sprint("ord_", i), lanes)]++
	}
	if least, most := slices.Min(count), slices.Max(count); least < 800 || most > 1200 {
		t.Errorf("lanes get between %d and %d of %d aggregates", least, most, n)
	}
}

func TestAssign_IsEvenAndStable(t *testing.T) {
	t.Parallel()
	for _, lanes := range []int{1, 2, 12, 64, 256} {
		var before []string
		for n := 1; n <= 70; n++ {
			members := make([]string, n)
			for i := range members {
				members[i] = fmt.Sprintf("outbox-%d", i*7919)
			}
			owners := ordering.Assign(lanes, members)
			load := map[string]int{}
			for _, owner := range owners {
				load[owner]++
			}
			for _, m := range members {
				if load[m] < lanes/n || load[m] > (lanes+n-1)/n {
					t.Fatalf("%d lanes, %d members: %s has %d", lanes, n, m, load[m])
				}
			}
			slices.Reverse(members)
			if again := ordering.Assign(lanes, append(members, members[0])); !slices.Equal(owners, again) {
				t.Fatalf("%d lanes, %d members: depends on the order of the members", lanes, n)
			}
			if lanes == 256 && n > 1 && n <= 10 {
				moved := 0
				for i := range owners {
					if owners[i] != before[i] {
						moved++
					}
				}
				if moved > 3*lanes/n {
					t.Errorf("member %d moved %d of %d lanes", n, moved, lanes)
				}
			}
			before = owners
		}
	}
	if owners := ordering.Assign(3, nil); !slices.Equal(owners, []string{"", "", ""}) {
		t.Errorf("without members: %q", owners)
	}
}

func TestRecordKey_Validate(t *testing.T) {
	t.Parallel()
	for _, good := range []ordering.RecordKey{{}, {Hash: ordering.Murmur2}, {Hash: ordering.FNV1a, Partitions: 3}, {Hash: ordering.CRC32}} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []ordering.RecordKey{{Hash: "md5"}, {Partitions: -1}} {
		if err := bad.Validate(); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

func TestQueue_TakesWithinItsLimitsAndServesOutletsInTurn(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	queue := ordering.NewQueue[int]()
	gate := ordering.NewGate(queue)
	gate.BeginFetch(now)
	var records []*ordering.Entry[int]
	for i := range 12 {
		records = append(records, &ordering.Entry[int]{
			ID: int64(i + 1), Key: ordering.Key{AggregateID: fmt.Sprint(i % 3)}, Bytes: 10,
			Outlet: ordering.Outlet{Destination: fmt.Sprint("topic", i%3%2)},
		})
	}
	gate.EndFetch(now, ordering.Reply[int]{UpTo: 1 << 60, Records: records})
	ids := func(batch []*ordering.Entry[int]) (ids []int64) {
		for _, e := range batch {
			ids = append(ids, e.ID)
		}
		return ids
	}
	all := func(ordering.Outlet) bool { return true }
	first, _ := queue.Next(all)
	second, _ := queue.Next(all)
	if first == second {
		t.Errorf("%v twice in a row", first)
	}
	if _, ok := queue.Next(func(ordering.Outlet) bool { return false }); ok {
		t.Error("an outlet that may not be used")
	}
	zero, one := ordering.Outlet{Destination: "topic0"}, ordering.Outlet{Destination: "topic1"}
	if got := ids(queue.Take(one, ordering.Limit{Records: 3, Runs: true})); !slices.Equal(got, []int64{2, 5, 8}) {
		t.Errorf("a run of three: %v", got)
	}
	if got := ids(queue.Take(zero, ordering.Limit{Records: 9, Bytes: 15})); !slices.Equal(got, []int64{1}) {
		t.Errorf("15 bytes: %v", got)
	}
	batch := queue.Take(zero, ordering.Limit{Records: 9})
	if got := ids(batch); !slices.Equal(got, []int64{3}) {
		t.Errorf("one of each key, and none of a key that is out: %v", got)
	}
	for _, e := range batch {
		gate.Delivered(now, e)
	}
	if got := ids(queue.Take(zero, ordering.Limit{Records: 9})); !slices.Equal(got, []int64{6}) {
		t.Errorf("the next of the answered key: %v", got)
	}
	if records, bytes := queue.Held(); records != 12 || bytes != 120 {
		t.Errorf("held %d records, %d bytes", records, bytes)
	}
	gate.Drop()
	if _, ok := queue.Next(all); ok {
		t.Error("records of a dropped gate are ready")
	}
	if records, bytes := queue.Held(); records != 0 || bytes != 0 {
		t.Errorf("held after Drop: %d records, %d bytes", records, bytes)
	}
}

func ExampleHash() {
	fmt.Println(ordering.Hash("order", "ord_1") % 64)
	fmt.Println(ordering.Lane("order", "ord_1", 64))
	// Output:
	// 16
	// 16
}

func ExampleRecordKey() {
	s := ordering.RecordKey{Hash: ordering.Murmur2, Partitions: 12}
	route, err := s.Route(ordering.Input{Topic: "orders", AggregateType: "order", AggregateID: "ord_1"})
	fmt.Println(route.Destination, route.Token, err)
	fmt.Println(s.Fingerprint())
	// Output:
	// orders ord_1 <nil>
	// record-key/v1:murmur2:p12
}

func ExampleNone() {
	route, err := ordering.None{}.Route(ordering.Input{Topic: "clicks", AggregateID: "c1"})
	fmt.Printf("%s %q %v\n", route.Destination, route.Token, err)
	// Output: clicks "" <nil>
}

func ExampleAssign() {
	fmt.Println(ordering.Assign(4, []string{"replica-a", "replica-b"}))
	// Output: [replica-a replica-a replica-b replica-b]
}

// A gate holds a key to one record at a time, and its followers back while the first one has failed.
func ExampleGate() {
	now := time.Unix(0, 0)
	queue := ordering.NewQueue[string]()
	gate := ordering.NewGate(queue)
	key := ordering.Key{AggregateType: "order", AggregateID: "ord_1"}
	fetch := func(entries ...*ordering.Entry[string]) {
		gate.BeginFetch(now)
		gate.EndFetch(now, ordering.Reply[string]{UpTo: 1 << 60, Records: entries})
	}
	fetch(&ordering.Entry[string]{ID: 1, Key: key, Value: "created"}, &ordering.Entry[string]{ID: 2, Key: key, Value: "paid"})

	batch := queue.Take(ordering.Outlet{}, ordering.Limit{Records: 10})
	fmt.Println(len(batch), batch[0].Value)

	gate.Fail(now, batch[0])
	batch[0].Due = now.Add(time.Second)
	gate.Settled(now, batch[0], ordering.WasCharged, false)
	fmt.Println(len(queue.Take(ordering.Outlet{}, ordering.Limit{Records: 10})), "ready,", gate.ClosedKeys(), "key closed")

	plan := gate.BeginFetch(now.Add(time.Second))
	fmt.Println("read again:", plan.Heads[0].ID)
	// Output:
	// 1 created
	// 0 ready, 1 key closed
	// read again: 1
}

func TestShards_SpreadAndName(t *testing.T) {
	t.Parallel()
	s := ordering.Shards{Count: 16, Generation: 3}
	count := map[string]int{}
	for i := range 16_000 {
		route, err := s.Route(ordering.Input{Topic: "orders", AggregateType: "order", AggregateID: fmt.Sprint(i)})
		if err != nil || route.Destination != "orders" {
			t.Fatal(route, err)
		}
		count[route.Token]++
	}
	for shard := range 16 {
		if n := count[s.Token(shard)]; n < 800 || n > 1200 {
			t.Errorf("shard %d got %d of 16000", shard, n)
		}
	}
	for _, bad := range []ordering.Shards{{Count: -1}, {Count: ordering.MaxShards + 1}, {Generation: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
	if err := (ordering.Shards{}).Validate(); err != nil {
		t.Error(err)
	}
}

// Aggregate ids that break the rules of SQS get a legal group of their own.
func TestField_142_EveryAggregateHasALegalGroupOfItsOwn(t *testing.T) {
	t.Parallel()
	long := func(last string) string { return strings.Repeat("x", 999) + last }
	ids := []string{
		"", "ord_1", "ord_1\n", strings.Repeat("x", 128), strings.Repeat("x", 129), long("a"), long("b"), "заказ 1", "a/b?c", "a b",
		"h.1", "\x7f",
	}
	seen := map[string]string{}
	for _, id := range ids {
		route, err := ordering.MessageGroup{}.Route(ordering.Input{Topic: "orders", AggregateID: id})
		if err != nil {
			t.Fatal(err)
		}
		group := route.Token
		if other, taken := seen[group]; taken {
			t.Errorf("%q and %q share the group %q", id, other, group)
		}
		seen[group] = id
		if group == "" || len(group) > 128 || strings.ContainsFunc(group, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("%q: illegal group %q", id, group)
		}
	}
	if seen["a/b?c"] != "a/b?c" {
		t.Error("a legal id is not used as it is")
	}
}

func ExampleShards() {
	s := ordering.Shards{Count: 64}
	route, err := s.Route(ordering.Input{Topic: "orders", AggregateType: "order", AggregateID: "ord_1"})
	fmt.Println(route.Destination, route.Token, err)
	fmt.Println(s.Fingerprint())
	// Output:
	// orders 1.16 <nil>
	// shards/v1:64:g1
}

func ExampleMessageGroup() {
	for _, id := range []string{"ord_1", "заказ 1"} {
		route, err := ordering.MessageGroup{}.Route(ordering.Input{Topic: "orders.fifo", AggregateID: id})
		fmt.Println(route.Token, err)
	}
	// Output:
	// ord_1 <nil>
	// h.ca0537a7c33181fe88741db4927421b6850c0ce162e53995eb0643d7b5b76da4 <nil>
}
