// Package kafka publishes to Apache Kafka and what speaks its protocol.
//
//	broker, err := kafka.Open(ctx, kafka.Config{Brokers: []string{"kafka-1:9092", "kafka-2:9092"}})
//
// [ParseURL] reads the same from one line, [New] takes a client of the caller's.
//
// # Mapping
//
// Topic: the message's topic. Key: the aggregate id ([ordering.RecordKey]), which the producer hashes to a partition;
// the default hash is murmur2, the Java client's, so that keys meet those of Kafka Streams and ksqlDB. Changing the hash
// of a topic moves its keys to other partitions. With [ordering.None] there is no key. Value: the payload; nil is a null
// value (a tombstone), empty is an empty one. Headers: those of [core.Record.WireHeaders], which are texts, and
// "_watermill_message_uuid", the event id: what Watermill's Kafka subscriber reads by default. Timestamp: the time of
// publishing, not of the event.
//
// # Order and delivery
//
// Delivered means that all in-sync replicas have the record (acks=all); set min.insync.replicas to 2 and replication to
// 3 for that to mean something. Delivery is at least once: requests carry a producer id, by which the leader recognises
// the repeats of one call, but a record whose outcome stayed unknown is published again by the dispatcher.
//
// The records of a key are in one partition in the order in which they were published, without a gap
// ([core.PrefixPerKey]): a partition gets one batch at a time, a batch is appended wholly or not at all, and the next one
// goes out after the one before it was delivered. When a call is abandoned with an unknown outcome, the partition begins
// a new producer epoch: from its first batch on, the leader refuses what may still be on its way.
//
// Adding partitions to a topic moves keys, so that newer events of a key can be consumed before older ones. The number
// is part of the fingerprint: with a store that keeps fingerprints the dispatcher pauses the topic within a minute or
// so, and no key moves before a person has accepted the change. Elsewhere it is logged as a warning. Drain the topic
// first, or pin ordering.RecordKey.Partitions before.
//
// # Limits
//
// A record with its headers may take Config.MaxMessageBytes, which Prepare checks before compression. A topic with a
// lower max.message.bytes gets smaller batches once it has refused one; a record that it refuses alone is parked, its
// neighbours are delivered. A PublishBatch takes up to 16 MiB and 8 of them run at the same time; those to one partition
// take turns.
//
// # Errors
//
// Repeated within a call, up to Config.Retries times: moved or missing leaders, lost connections, too few replicas,
// timeouts of replicas, producer ids that the leader does not accept (another one is fetched). Then, and for missing
// rights, topics and credentials, the error is of the destination or the broker, so that no message is charged. Parked
// at once: records that are too large, and those that the broker refuses as invalid.
//
// # Server settings
//
// Topics must exist (Config.AllowAutoTopicCreation, [Broker.Declare]; [Broker.Verify] checks them). Rights: WRITE and
// DESCRIBE on the topics, IDEMPOTENT_WRITE on the cluster before Kafka 3.0; DESCRIBE_CONFIGS helps to name limits.
// Kafka 1.0 or newer.
//
// # Compression
//
// The default is snappy: batches of 500 JSON records of 420 bytes, one after the other, to a broker on the same machine
// of two cores went at 135,000 records per second with it, 131,000 with lz4 and 102,000 without compression. zstd makes
// the smallest batches for about twice the processor time: take it where the network or the disk is what is scarce.
package kafka
