// Package sqs publishes to Amazon SQS and what speaks its protocol.
//
//	broker, err := sqs.Open(ctx, sqs.Config{Region: "eu-west-1"})
//
// [ParseURL] reads the same from one line, [New] takes a client of the caller's. The package sqsfake is SQS in one
// process, the package consume receives.
//
// # Mapping
//
// Queue: "<topic>.fifo" (Config.QueueName, Config.QueueURLs). Message group: the aggregate id, or its hash where SQS
// does not take it ([ordering.MessageGroup]). De-duplication id: the event id, with ".r<n>" for the nth replay, or the
// hash of that where SQS does not take it; the queue's content-based de-duplication plays no part. It does not depend
// on the key, as one outbox takes an event id only once; two outboxes that share a queue must not use the same event
// ids. Body: the payload where it is text that SQS takes, and otherwise base64, which the attribute "outbox_encoding"
// says; nil and empty payloads are told apart by it. Attributes: the headers of [core.Record.WireHeaders], seven at
// most, so that three are left for tracing agents; those that are too many, empty, or of other characters than SQS
// allows are in the attribute "outbox_headers" as a JSON object. [Decode] reads all of it back.
//
// Standard queues need [ordering.None]: they get neither group nor de-duplication id.
//
// # Order and delivery
//
// Delivered means that SQS has named the message as stored, with the checksum of its body. Delivery is at least once: a
// message whose outcome stayed unknown is sent again under the same de-duplication id, which a FIFO queue drops within
// 5 minutes; after that there are two.
//
// The messages of a group are stored in the order in which they were published, without a gap ([core.PrefixPerKey]): a
// request has one message of a group, and the next one is sent after SQS has confirmed the one before it. Requests with
// messages of other groups run at the same time. The SDK's own repeats are switched off, as a repeat could overlap with
// what comes next.
//
// Config.GroupRuns puts several messages of a group into a request. SQS stores the entries of a request one by one and
// can refuse one, for example when it is throttled, while it takes those behind it: then that group is out of order.
// Without it a group carries one message per round trip.
//
// # Limits
//
// A message with its attributes, and all messages of a request, may take the queue's MaximumMessageSize, which is read
// once (the right sqs:GetQueueAttributes; without it 1 MiB is assumed for a message and 256 KiB for a request). What is
// larger is parked, its neighbours are delivered. A PublishBatch takes up to 100 messages of 4 MiB together, 16 of them
// run at the same time, and Config.Concurrency bounds their requests. Against a server with round trips of 5 ms, in
// requests of 10 messages of 400 bytes, 8 requests in flight made 9,300 messages per second, 16 made 13,000, 32 made
// 18,900 and 64 made 20,800, with both processor cores in use; one message after the other made 175.
//
// # Errors
//
// Refused entries count as their own: what is invalid is parked, throttled groups wait without a charge, and trouble of
// the service is charged. When SQS refuses a request as a whole for what is in it, it is sent again in halves until the
// message at fault stands alone. Throttling, outages, missing queues, rights and credentials are of the queue or of
// SQS, so that no message is charged. When a queue has gone, its URL is looked up again with each attempt, and the ids
// of the events sent to it in the last 60 s are logged as an error: SQS may have confirmed them without storing them.
//
// # Server settings
//
// Queues must exist ([Broker.Declare]; [Broker.Verify] checks them). Rights: sqs:SendMessage and sqs:GetQueueUrl on the
// queues, sqs:GetQueueAttributes helps. FIFO queues take 300 requests per second unless NewQueue.HighThroughput. A
// dead-letter queue of a FIFO queue breaks the order of a group when it takes a message: leave maxReceiveCount high.
package sqs
