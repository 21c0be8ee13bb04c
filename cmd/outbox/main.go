// Outbox carries events from an outbox table to a message broker, and looks after the table.
//
//	outbox migrate up --store sqlite:shop.db
//	outbox run --store sqlite:shop.db --broker kafka://127.0.0.1:9092
package main

import (
	"os"

	"github.com/go-outbox/outbox/cmd/outbox/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
