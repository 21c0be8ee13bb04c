package sqsfake_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

func TestEntryLimits(t *testing.T) {
	t.Parallel()
	c := start(t)
	fifo := c.create("q.fifo", nil)
	standard := c.create("q", nil)
	attribute := func(name, kind, value string) object {
		return object{"MessageAttributes": object{name: object{"DataType": kind, "StringValue": value}}}
	}
	eleven := object{}
	for i := range 11 {
		eleven[fmt.Sprint("n", i)] = object{"DataType": "String", "StringValue": "v"}
	}
	for what, fault := range map[string]struct {
		code   string
		change object // of an entry in order
	}{
		"no id":           {"InvalidParameterValue", object{"MessageDeduplicationId": nil}},
		"no group":        {"MissingParameter", object{"MessageGroupId": nil}},
		"no body":         {"MissingParameter", object{"MessageBody": nil}},
		"a bell":          {"InvalidMessageContents", object{"MessageBody": "\x07"}},
		"U+FFFE":          {"InvalidMessageContents", object{"MessageBody": "\uFFFE"}},
		"a space":         {"InvalidParameterValue", object{"MessageGroupId": "a b"}},
		"a long group":    {"InvalidParameterValue", object{"MessageGroupId": strings.Repeat("g", 129)}},
		"a foreign id":    {"InvalidParameterValue", object{"MessageDeduplicationId": "é"}},
		"a delay":         {"InvalidParameterValue", object{"DelaySeconds": 1}},
		"11 attributes":   {"InvalidParameterValue", object{"MessageAttributes": eleven}},
		"an empty value":  {"InvalidParameterValue", attribute("n", "String", "")},
		"a reserved name": {"InvalidParameterValue", attribute("AWS.x", "String", "v")},
		"two dots":        {"InvalidParameterValue", attribute("a..b", "String", "v")},
		"a foreign type":  {"InvalidParameterValue", attribute("a", "Text", "v")},
		"a bell in it":    {"InvalidParameterValue", attribute("a", "String", "\x07")},
	} {
		id := strings.ReplaceAll(what, " ", "-")
		bad := object{"Id": "bad", "MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "bad-" + id}
		good := object{"Id": "good", "MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": id}
		maps.Copy(bad, fault.change)
		c.wantRefused(what, fifo, fault.code, bad, good)
	}
	c.wantRefused("a group in a standard queue", standard, "InvalidParameterValue",
		object{"Id": "bad", "MessageBody": "b", "MessageGroupId": "g"}, object{"Id": "good", "MessageBody": "b"})
}

func (c *client) wantRefused(what, url, code string, entries ...object) {
	c.Helper()
	out, refused := c.call("SendMessageBatch", object{"QueueUrl": url, "Entries": entries})
	failed, _ := out["Failed"].([]any)
	successful, _ := out["Successful"].([]any)
	if refused != "" || len(failed) != 1 || len(successful) != 1 {
		c.Errorf("%s: %v", what, out)
		return
	}
	if got, _ := failed[0].(object); got["Id"] != "bad" || got["Code"] != code || got["SenderFault"] != true {
		c.Errorf("%s: refused as %v, want %s", what, got, code)
	}
}

func TestRequestLimits(t *testing.T) {
	t.Parallel()
	c := start(t)
	url := c.create("q", map[string]string{"MaximumMessageSize": "1024"})
	entries := func(body string, ids ...string) []object {
		all := make([]object, len(ids))
		for i, id := range ids {
			all[i] = object{"Id": id, "MessageBody": body}
		}
		return all
	}
	for want, in := range map[string][]object{
		"EmptyBatchRequest":            {},
		"TooManyEntriesInBatchRequest": entries("b", strings.Split("abcdefghijk", "")...),
		"BatchEntryIdsNotDistinct":     entries("b", "x", "x"),
		"InvalidBatchEntryId":          entries("b", "a b"),
		"BatchRequestTooLong":          entries(strings.Repeat("b", 513), "x", "y"),
	} {
		if _, code := c.call("SendMessageBatch", object{"QueueUrl": url, "Entries": in}); code != want {
			t.Errorf("refused as %q, want %s", code, want)
		}
	}
	large := object{"QueueUrl": url, "MessageBody": strings.Repeat("b", 1025)}
	if _, code := c.call("SendMessage", large); code != "InvalidParameterValue" {
		t.Errorf("a message that is too large: %q", code)
	}
	if n := len(c.Messages("q")); n != 0 {
		t.Errorf("%d messages of refused requests are stored", n)
	}
	for action, want := range map[string]string{"SendMessage": "QueueDoesNotExist", "TagQueue": "UnsupportedOperation"} {
		if _, code := c.call(action, object{"QueueUrl": url + "x", "MessageBody": "b"}); code != want {
			t.Errorf("%s: %q, want %s", action, code, want)
		}
	}
}

func TestQueues(t *testing.T) {
	t.Parallel()
	c := start(t)
	for name, attributes := range map[string]map[string]string{
		"a.b": nil, "": nil, strings.Repeat("x", 81): nil,
		"q": {"DeduplicationScope": "queue"}, "r.fifo": {"FifoThroughputLimit": "perMessageGroupId"},
		"s": {"MaximumMessageSize": "5"},
	} {
		if _, err := c.CreateQueue(name, attributes); err == nil {
			t.Errorf("the queue %q with %v was made", name, attributes)
		}
	}
	url := c.create("t.fifo", nil)
	if _, code := c.call("CreateQueue", object{"QueueName": "t.fifo"}); code != "InvalidParameterValue" {
		t.Errorf("a FIFO queue without the attribute: %q", code)
	}
	c.send(url, "1", "g", "1")
	c.receive(url, 1)
	c.send(url, "2", "h", "2")
	out, _ := c.call("GetQueueAttributes", object{"QueueUrl": url, "AttributeNames": []string{"All"}})
	attributes, _ := out["Attributes"].(object)
	if attributes["ApproximateNumberOfMessages"] != "1" || attributes["ApproximateNumberOfMessagesNotVisible"] != "1" {
		t.Errorf("attributes %v, want one visible and one in flight", attributes)
	}
	if _, code := c.call("PurgeQueue", object{"QueueUrl": url}); code != "" {
		t.Error(code)
	}
	c.wantReceive(url, 10, "")
	out, _ = c.call("ListQueues", object{"QueueNamePrefix": "t"})
	if urls, _ := out["QueueUrls"].([]any); len(urls) != 1 {
		t.Errorf("queues %v", out)
	}
	c.call("DeleteQueue", object{"QueueUrl": url})
	if _, code := c.call("GetQueueUrl", object{"QueueName": "t.fifo"}); code != "QueueDoesNotExist" {
		t.Errorf("a deleted queue: %q", code)
	}
}
