// Package worker runs what is measured in a process of its own, so that its CPU and memory are its own and its clock
// is not disturbed by whoever writes and reads the events.
//
// The parent writes a Job, as one line of JSON, to the worker's standard input, gets a Sample when the worker is ready,
// and writes a line for each further Sample that it wants; the first such line starts the work. A job that ends by
// itself (Until is not 0) answers that line when it is done. The end of the input ends the worker.
package worker

import "time"

// Kind is what a worker does.
type Kind string

// The kinds.
const (
	Outbox    Kind = "outbox"    // our dispatcher, default settings
	Forwarder Kind = "forwarder" // Watermill's forwarder, default settings
	Pooled    Kind = "pooled"    // the same with a pool of channels to RabbitMQ
	Queue     Kind = "queue"     // Watermill's forwarder over its queue schema
	Textbook  Kind = "textbook"  // SELECT .. LIMIT 100 FOR UPDATE SKIP LOCKED, then for each row a publish and an UPDATE
	Single    Kind = "single"    // reads the table and sends one message after the other to SQS
	Publish   Kind = "publish"   // sends ready messages, and nothing else
	Drain     Kind = "drain"     // reads the table and marks it, and nothing else
)

// Job is what a worker is asked to do. Addresses are URLs.
type Job struct {
	Kind   Kind
	Store  string
	Schema string
	Broker string
	Topic  string
	// Rows is how many messages a job is about that ends by itself; 0 means that it goes on until it is stopped.
	Rows int
	// After is what becomes of published rows: see postgres.AfterPublish. Empty means mark.
	After string
	// FetchSize and PublishSize are those of core.Config; 0 means the default.
	FetchSize, PublishSize int
	// Count makes the worker count its round trips to PostgreSQL.
	Count bool
	// Poison is an event type whose messages the broker refuses for as long as the job runs.
	Poison string
}

// Sample is what a worker did so far.
type Sample struct {
	// Error is why the worker failed; empty when it did not.
	Error string `json:",omitempty"`
	// Took is how long a job took that ended by itself, until everything was acknowledged (and settled).
	Took time.Duration
	// CPU is user and system time since the start of the work.
	CPU time.Duration
	// RSS is the most resident memory, in bytes.
	RSS int64
	// Mallocs is how many heap objects were allocated since the start of the work.
	Mallocs uint64
	// Published is how many messages were acknowledged.
	Published int
	// RoundTrips is how often the database was asked, if Job.Count.
	RoundTrips int
	// FetchMillis are the times that fetches took since the last sample.
	FetchMillis []float64 `json:",omitempty"`
}

// MiB is the most resident memory.
func (s Sample) MiB() float64 { return float64(s.RSS) / (1 << 20) }

// PerMessage is the CPU time of one message, in microseconds.
func (s Sample) PerMessage(rows int) float64 { return float64(s.CPU.Microseconds()) / float64(rows) }
