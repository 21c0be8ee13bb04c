// Package sqsfake is Amazon SQS in one process, for tests, examples and first steps: an HTTP server on 127.0.0.1 that
// speaks the JSON protocol of SQS, so that any SDK works with it unchanged.
//
//	server, err := sqsfake.Start(sqsfake.Config{})
//	...
//	defer server.Close()
//	server.CreateQueue("orders.fifo", nil)
//	broker, err := sqs.Open(ctx, sqs.Config{Endpoint: server.URL(), Region: "us-east-1", ...})
//
// # What it is true to
//
// Limits: 10 entries a request, the queue's MaximumMessageSize for messages and for the sum of a request, attributes
// counted in; the characters of bodies and attributes; 10 attributes, their names, none empty; group and
// de-duplication ids of 1 to 128 visible ASCII characters; ".fifo". What one entry breaks is refused for that entry
// alone, with the others stored, as SQS does. FIFO queues: order by arrival, the de-duplication window of 5 minutes
// with both scopes and by content, groups that are locked while one of their messages is in flight, sequence numbers.
// The checksums of bodies and attributes.
//
// # What it leaves out
//
// Signatures and rights are not checked; there are no dead-letter queues, tags, quotas or moves, and nothing is kept
// on disk. A group id is refused for a standard queue, as most local servers do and SQS did before fair queues.
//
// # Faults
//
// [Server.Refuse], [Server.RefuseEntry], [Server.LoseReplies], [Server.Hang], [Server.Cut], [Server.Stop] and
// [Server.SetLatency] switch the usual ones on and off. [Server.SetScript] decides about every request.
//
// The package depends on the standard library only.
package sqsfake
