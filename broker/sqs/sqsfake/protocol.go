package sqsfake

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const maxRequestBytes = 16 << 20 // far above any limit of SQS: base64 and JSON need room

// call is one request at work.
type call struct {
	*Server
	ctx   context.Context
	fault Fault
	body  []byte
}

// actions are what the server can do. Each runs without mu held.
var actions = map[string]func(*call) (any, error){
	"CreateQueue":             (*call).createQueue,
	"GetQueueUrl":             (*call).getQueueURL,
	"GetQueueAttributes":      (*call).getQueueAttributes,
	"SetQueueAttributes":      (*call).setQueueAttributes,
	"ListQueues":              (*call).listQueues,
	"PurgeQueue":              (*call).purgeQueue,
	"DeleteQueue":             (*call).deleteQueue,
	"SendMessage":             (*call).sendMessage,
	"SendMessageBatch":        (*call).sendMessageBatch,
	"ReceiveMessage":          (*call).receiveMessage,
	"DeleteMessage":           (*call).deleteMessage,
	"DeleteMessageBatch":      (*call).deleteMessageBatch,
	"ChangeMessageVisibility": (*call).changeMessageVisibility,
}

// serve answers one request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequestBytes))
	if err != nil {
		return // the connection is gone
	}
	name := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	action, known := actions[name]
	if !known {
		writeError(w, refuse("UnsupportedOperation", "sqsfake cannot do "+strconv.Quote(name)))
		return
	}
	c := &call{Server: s, ctx: r.Context(), fault: s.fault(name, body), body: body}
	if !c.wait() {
		return
	}
	reply, err := c.carryOut(action)
	switch {
	case c.fault.LoseReply:
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to cut a connection
	case err != nil:
		writeError(w, err)
	default:
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_ = json.NewEncoder(w).Encode(reply) // a client that is gone needs no answer
	}
}

// carryOut does what the request asks for, or what the fault has in store for it.
func (c *call) carryOut(action func(*call) (any, error)) (reply any, err error) {
	if c.fault.Then != nil {
		defer c.fault.Then()
	}
	if c.fault.Error != nil {
		return nil, c.fault.Error
	}
	return action(c)
}

// describe tells a script about a request. What cannot be read is refused later.
func describe(action string, body []byte) Request {
	var seen struct {
		QueueURL  string `json:"QueueUrl"`
		QueueName string
		Entries   []Entry
	}
	_ = json.Unmarshal(body, &seen)
	request := Request{Action: action, Queue: seen.QueueName, Entries: seen.Entries}
	if request.Queue == "" {
		request.Queue = nameOf(seen.QueueURL)
	}
	if action == "SendMessage" {
		var one Entry
		_ = json.Unmarshal(body, &one)
		request.Entries = []Entry{one}
	}
	return request
}

// wait waits as the fault says. It reports false when the client has gone meanwhile.
func (c *call) wait() bool {
	if c.fault.Delay > 0 {
		timer := time.NewTimer(c.fault.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.ctx.Done():
		}
	}
	if c.fault.Until != nil {
		select {
		case <-c.fault.Until:
		case <-c.ctx.Done():
		}
	}
	return c.ctx.Err() == nil
}

// read decodes the request.
func (c *call) read(into any) error {
	if err := json.Unmarshal(c.body, into); err != nil {
		return refuse("SerializationException", err.Error())
	}
	return nil
}

// queryCodes are the names by which the older query protocol calls some errors. SQS sends them along.
var queryCodes = map[string]string{
	"QueueDoesNotExist":            "AWS.SimpleQueueService.NonExistentQueue",
	"QueueNameExists":              "QueueAlreadyExists",
	"BatchRequestTooLong":          "AWS.SimpleQueueService.BatchRequestTooLong",
	"BatchEntryIdsNotDistinct":     "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
	"EmptyBatchRequest":            "AWS.SimpleQueueService.EmptyBatchRequest",
	"TooManyEntriesInBatchRequest": "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
	"UnsupportedOperation":         "AWS.SimpleQueueService.UnsupportedOperation",
}

func writeError(w http.ResponseWriter, err error) {
	var known *Error
	if !errors.As(err, &known) {
		known = &Error{Code: "InternalError", Message: err.Error()}
	}
	code, fault := known.Code, "Receiver"
	if query, ok := queryCodes[code]; ok {
		code = query
	}
	if known.SenderFault {
		fault = "Sender"
	}
	w.Header().Set("X-Amzn-Query-Error", code+";"+fault)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(known.status())
	_ = json.NewEncoder(w).Encode(map[string]string{ // a client that is gone needs no answer
		"__type": "com.amazonaws.sqs#" + known.Code, "message": known.Message,
	})
}

// nameOf is the name of a queue in its URL.
func nameOf(url string) string { return url[strings.LastIndex(url, "/")+1:] }
