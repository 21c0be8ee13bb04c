// Chaos runs dispatchers against a real database and a real broker, lets everything fail that can, and checks at the end
// that each event that was committed has arrived, no other one has, and those of each key in the order of their commits.
//
//	go run ./internal/chaos [-duration 3m] [-broker kafka|rabbitmq|sqs|all] [-seed N] [-keep]
//
// For each broker it starts a PostgreSQL and a broker of its own and three `outbox run` processes, each with links of its
// own to both. Writers commit transactions at a steady rate and keep a ledger; a consumer that shares no code with the
// dispatchers keeps a journal. Meanwhile dispatchers are killed, suspended beyond their lease and stopped in order,
// servers are restarted and killed, links are cut, refused, slow, deaf or silent. Then all is healed, and after a bounded
// time to catch up ledger, journal and table are compared.
//
// The seed decides what happens, in which order and for how long. It does not decide when a process gets to run, so that
// a seed repeats the kind of a run and not its every step.
//
// The last line for each broker says what came of it. The exit code is 1 when a promise was broken; then the logs of all
// processes, the faults with their times, and what is missing or out of place are kept in a folder that is named.
package main
