// Package rabbitmq publishes to RabbitMQ (AMQP 0-9-1), and consumes from it in order.
//
//	broker, err := rabbitmq.Open(ctx, rabbitmq.Config{
//		Addresses: []string{"rabbit-1", "rabbit-2"}, Username: "outbox", Password: secret,
//	})
//
// [ParseURL] reads the same from one line, [New] takes a connection of the caller's.
//
// # Mapping
//
// Exchange: the message's topic; a durable direct exchange. Routing key: "<generation>.<shard>", the virtual shard of
// the aggregate ([ordering.Shards]); empty with [ordering.None]. Body: the payload; nil and empty are the same.
// Headers: those of [core.Record.WireHeaders], which are texts, and "_watermill_message_uuid", the event id: what
// Watermill's AMQP marshaler reads by default. Message id: the event id. Type: the event type. Timestamp: when the
// event was written. Content type: the header "content-type", if the event has one. Delivery mode: persistent, unless
// Config.Transient.
//
// # Queues
//
// [Broker.Declare] makes the exchange of a topic and, for each consumer group of Config.Groups, quorum queues
// "<topic>.<group>.<generation>.<n>" with a single active consumer, over which the virtual shards are spread: shard
// modulo Group.Queues. Dead letters go to an exchange and a queue "<topic>.<group>.dead", with the routing key
// "<generation>.<n>/<queues>/<shards>" of the queue that they come from, and stay where they are until they have
// arrived. Nothing is ever declared by publishing; [Broker.Verify] checks what is there.
//
// # Order and delivery
//
// Delivered means that the server has confirmed the message, and had not returned it as unroutable before. A quorum
// queue confirms what a majority of its replicas has on disk. Delivery is at least once: a message whose outcome stayed
// unknown is published again by the dispatcher.
//
// A queue may refuse one message and take the next, so that a call has at most one message of a key ([core.OnePerKey]);
// it has many of different keys, Config.Window of them ahead of their confirms. A call that was given up ends its
// channel, and the next call begins when the server is done with that. When a connection is lost, the next one waits
// until the server is done with the one before it, by a lock: an exclusive queue "outbox.publisher.<id>"
// (Config.DisableLock). If the server does not notice the loss, that takes about two heartbeats.
//
// A message of a topic that no queue of one group is bound for counts as delivered if another group gets it: check the
// groups with Verify.
//
// [Consume] handles the messages of a group in order. Other consumers keep the order too if they take one message at a
// time (prefetch 1), or never refuse one to have it put back.
//
// # Another number of shards or queues
//
// Both are fixed within one generation of ordering.Shards. [Resharding] moves a topic to the next generation while
// dispatchers and consumers are running: publishing rests for a while, the old queues lose their bindings and get a
// fence each, and publishing goes on to the new ones. All dispatchers are led by the fingerprint that their store keeps
// for the topic, and go over by [Broker.Adopt]. Consumers of the new generation first handle the rest of the old one, up
// to the fences.
//
// # Limits
//
// A payload may have Config.MaxMessageBytes. All headers and properties have to fit into one frame (frame_max, 128 KiB
// by default). Names of topics and headers have at most 255 bytes. Prepare checks all of this, as RabbitMQ closes the
// channel or the connection over it. A PublishBatch takes up to 16 MiB, and Config.Channels of them run at the same
// time.
//
// # Errors
//
// Of the broker, so that no message is charged: lost connections, blocked publishers (memory or disk alarms; nothing is
// sent meanwhile), missing rights and credentials. Of the topic: a missing exchange, no queue bound, no confirm in
// time. Of the key: a negative confirm, most often of a full queue that refuses (overflow reject-publish): it waits
// without being charged. Parked at once: what Prepare refuses, and a message that the server closes the channel over
// when it is alone; its neighbours are delivered.
//
// # Server settings
//
// Rights: write on the exchanges, configure on "outbox.publisher.*"; for Declare, Verify, Fence and Consume what they
// make, bind and read, and write on the default exchange (amq.default) for who sends fences or meets them. RabbitMQ 3.10 or newer (dead
// letters are kept with x-dead-letter-strategy at-least-once). A max_message_size below Config.MaxMessageBytes and
// queue length limits without overflow reject-publish, which drop the oldest messages, are to be avoided.
package rabbitmq
