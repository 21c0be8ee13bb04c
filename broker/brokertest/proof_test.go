package brokertest_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/go-outbox/outbox/broker/brokertest"
	"github.com/go-outbox/outbox/broker/membroker"
	"github.com/go-outbox/outbox/core"
)

// A kit that never fails proves nothing, and one that fails good brokers is of no use.

func TestSoundBrokersPass(t *testing.T) {
	t.Parallel()
	for _, guarantee := range []core.KeyGuarantee{core.PrefixPerKey, core.OnePerKey} {
		sound := mutant{config: func(c *membroker.Config) { c.KeyGuarantee = guarantee }}
		for _, c := range brokertest.Cases() {
			t.Run(fmt.Sprintf("%d/%s", guarantee, c.Name), func(t *testing.T) {
				t.Parallel()
				failures, skip := verdict(t, c, harness(sound))
				for _, failure := range failures {
					t.Error(failure)
				}
				if skip != "" && guarantee == core.PrefixPerKey {
					t.Errorf("skipped: %s", skip)
				}
			})
		}
	}
}

// The three functions that are required are enough: what is missing is skipped and never fails.
func TestSoundBrokersPassWithoutFaults(t *testing.T) {
	t.Parallel()
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			failures, _ := verdict(t, c, harness(mutant{bare: true}))
			for _, failure := range failures {
				t.Error(failure)
			}
		})
	}
}

func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(brokertest.Cases(), func(c brokertest.Case) bool { return c.Name == m.caughtBy })
			if i < 0 {
				t.Fatalf("there is no case %q", m.caughtBy)
			}
			failures, skip := verdict(t, brokertest.Cases()[i], harness(m))
			if len(failures) == 0 {
				t.Fatalf("%s does not notice it %s", m.caughtBy, skip)
			}
			t.Logf("%s: %s", m.caughtBy, failures[0])
		})
	}
}

func TestEveryCaseCatchesAMutant(t *testing.T) {
	t.Parallel()
	for _, c := range brokertest.Cases() {
		if !slices.ContainsFunc(mutants(), func(m mutant) bool { return m.caughtBy == c.Name }) {
			t.Errorf("no mutant shows that %s can fail", c.Name)
		}
	}
}

// world is what a mutant is made of: a sound broker and what is around it.
type world struct {
	core.Broker
	t      brokertest.T
	server *membroker.Server
	cuts   *atomic.Int64
}

// harness tests the mutant of the broker in memory.
func harness(m mutant) brokertest.Harness {
	return brokertest.Harness{
		TellsNilFromEmpty: true,
		Oversize:          8 << 10,
		Token:             func(r *core.Record) string { return r.AggregateID },
		Start: func(t brokertest.T) brokertest.Server {
			server, faults := membroker.NewServer("topic-0"), &membroker.Faults{}
			config := membroker.Config{
				Server: server, Script: faults.Script, KeyGuarantee: core.PrefixPerKey, MaxInFlight: 4,
				MaxMessageBytes: 8 << 10, MaxBatchBytes: 64 << 10,
			}
			if m.config != nil {
				m.config(&config)
			}
			var topics, cuts atomic.Int64
			s := brokertest.Server{
				Open: func() (core.Broker, error) {
					b := membroker.New(config)
					if m.wrap == nil {
						t.Cleanup(func() {
							if err := b.Misuse(); err != nil {
								t.Errorf("the kit breaks the contract itself: %v", err)
							}
						})
						return b, nil
					}
					return m.wrap(world{Broker: b, t: t, server: server, cuts: &cuts}), nil
				},
				Topic: func() string {
					topic := fmt.Sprint("topic-", topics.Add(1))
					server.Create(topic)
					return topic
				},
				Read: func(topic string) []brokertest.Message {
					var out []brokertest.Message
					for _, stored := range server.Messages(topic) {
						out = append(out, brokertest.Message{
							Token: stored.Token, Payload: stored.Payload, Headers: stored.Headers,
						})
					}
					return out
				},
				MissingTopic:  func() string { return "missing" },
				CreateTopic:   func(topic string) { server.Create(topic) },
				Refuse:        faults.Refuse,
				RefuseMessage: faults.RefuseMessage,
				LoseReply:     faults.LoseReply,
				Cut:           func() { cuts.Add(1) },
				Hang:          faults.Hang,
				Down:          server.Stop,
				Up:            server.Start,
			}
			if m.bare {
				s = brokertest.Server{Open: s.Open, Topic: s.Topic, Read: s.Read}
			}
			return s
		},
	}
}
