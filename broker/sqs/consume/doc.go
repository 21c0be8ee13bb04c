// Package consume receives from SQS queues so that the order of FIFO queues reaches the handler: the simplest consumer
// that is right, for services, tests and examples.
//
//	err := consume.Run(ctx, client, queueURL, func(ctx context.Context, m sqs.Message) error {
//		return apply(m) // m.EventID is the same in all copies of an event
//	}, consume.Config{})
//
// # Order
//
// SQS hands out messages of a group only while no other consumer has one of it. Within what was received, the messages
// of a group are handled one after the other, each deleted before the next is begun; different groups run at the same
// time. When a handler fails, the rest of its group goes back first and the failed message last, so that nothing of the
// group can be received before it. While a handler runs, its group is kept by extending the visibility timeout.
//
// # Delivery
//
// At least once: a handler must be idempotent, for example by keeping the event ids in the database it writes to. A
// message that always fails blocks its group until the queue's redrive policy moves it to a dead-letter queue.
package consume
