package rabbitmq

import "github.com/go-outbox/outbox/core"

// TokenOf is the routing key that Prepare has chosen.
func TokenOf(p core.Prepared) string { return publicationOf(&p).token }
