// Package brokertest is the contract of [core.Broker] as a test suite. Whoever writes a broker adapter runs it:
//
//	func TestConformance(t *testing.T) {
//		t.Parallel()
//		brokertest.Run(t, brokertest.Harness{
//			Start: func(t brokertest.T) brokertest.Server {
//				fake := startFake(t) // and t.Cleanup to stop it
//				return brokertest.Server{
//					Open:  func() (core.Broker, error) { return mybroker.Open(t.Context(), fake.config()) },
//					Topic: fake.newTopic,
//					Read:  fake.read,
//					Down:  fake.stop, Up: fake.start,
//				}
//			},
//		})
//	}
//
// Each subtest is named by the sentence of the contract that it checks. Open, Topic and Read are enough to begin with;
// every fault that a [Server] can inject makes subtests run that are skipped otherwise, and a skip says what is
// missing. The complete harness of the broker in memory (broker/membroker/conformance_test.go) is a model of about 60
// lines.
//
// The suite proves itself: its own tests run it against brokers that are broken on purpose, one for each promise.
//
// The package depends on testing and the standard library only, so that an adapter gets no dependency from it.
package brokertest
