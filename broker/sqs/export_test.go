package sqs

import (
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/go-outbox/outbox/core"
)

// EntryOf is what a prepared message is sent as.
func EntryOf(p core.Prepared) types.SendMessageBatchRequestEntry { return entryOf(&p).message }

// WholeReplies is what the clients that Open makes have for a transport.
func WholeReplies(transport http.RoundTripper) http.RoundTripper { return wholeReplies{transport} }
