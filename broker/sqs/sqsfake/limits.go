package sqsfake

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxEntries    = 10
	maxAttributes = 10
	maxName       = 80 // characters of a queue name
)

var (
	namePattern      = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	tokenPattern     = regexp.MustCompile(`^[!-~]{1,128}$`)
	entryIDPattern   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
	attributePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,256}$`)
	typePattern      = regexp.MustCompile(`^(String|Number|Binary)(\..{1,249})?$`)
)

// checkBatch checks what makes SQS refuse a request as a whole.
func (q *queue) checkBatch(entries []Entry) *Error {
	if len(entries) == 0 {
		return refuse("EmptyBatchRequest", "There should be at least one SendMessageBatchRequestEntry in the request.")
	}
	if len(entries) > maxEntries {
		return refuse("TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10.")
	}
	seen, size := map[string]bool{}, 0
	for i := range entries {
		id := entries[i].ID
		switch {
		case !entryIDPattern.MatchString(id):
			return refuse("InvalidBatchEntryId", "A batch entry id can only contain alphanumeric characters, hyphens and "+
				"underscores. It can be at most 80 letters long.")
		case seen[id]:
			return refuse("BatchEntryIdsNotDistinct", "Id "+id+" repeated.")
		}
		seen[id] = true
		size += entries[i].size()
	}
	if size > q.number("MaximumMessageSize") {
		return refuse("BatchRequestTooLong", "Batch requests cannot be longer than "+
			q.attributes["MaximumMessageSize"]+" bytes.")
	}
	return nil
}

// check checks one message.
func (q *queue) check(e *Entry) *Error {
	switch {
	case e.Body == "":
		return refuse("MissingParameter", "The request must contain the parameter MessageBody.")
	case !isText(e.Body):
		return refuse("InvalidMessageContents", "Invalid characters found. Valid unicode characters are "+
			"#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
	case e.size() > q.number("MaximumMessageSize"):
		return Invalid("One or more parameters are invalid. Reason: Message must be shorter than %s bytes.",
			q.attributes["MaximumMessageSize"])
	case e.DelaySeconds < 0 || e.DelaySeconds > 900:
		return Invalid("Value %d for parameter DelaySeconds is invalid.", e.DelaySeconds)
	}
	if err := checkMessageAttributes(e.Attributes); err != nil {
		return err
	}
	if q.fifo {
		return q.checkFIFO(e)
	}
	if e.GroupID != "" || e.DeduplicationID != "" {
		return Invalid("The request includes a parameter that is not valid for this queue type: " +
			"MessageGroupId or MessageDeduplicationId.")
	}
	return nil
}

func (q *queue) checkFIFO(e *Entry) *Error {
	switch {
	case e.GroupID == "":
		return refuse("MissingParameter", "The request must contain the parameter MessageGroupId.")
	case !tokenPattern.MatchString(e.GroupID):
		return Invalid("Value for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include " +
			"alphanumeric and punctuation characters. 1 to 128 in length.")
	case e.DeduplicationID == "" && q.attributes["ContentBasedDeduplication"] != "true":
		return Invalid("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId " +
			"provided explicitly")
	case e.DeduplicationID != "" && !tokenPattern.MatchString(e.DeduplicationID):
		return Invalid("Value for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId can only " +
			"include alphanumeric and punctuation characters. 1 to 128 in length.")
	case e.DelaySeconds != 0:
		return Invalid("Value %d for parameter DelaySeconds is invalid. Reason: The request include parameter that is "+
			"not valid for this queue type.", e.DelaySeconds)
	}
	return nil
}

func checkMessageAttributes(attributes map[string]Attribute) *Error {
	if len(attributes) > maxAttributes {
		return Invalid("Number of message attributes [%d] exceeds the allowed maximum [%d].", len(attributes), maxAttributes)
	}
	for name, a := range attributes {
		lower := strings.ToLower(name)
		switch {
		case !attributePattern.MatchString(name), strings.HasPrefix(lower, "aws."), strings.HasPrefix(lower, "amazon."),
			strings.HasPrefix(name, "."), strings.HasSuffix(name, "."), strings.Contains(name, ".."):
			return Invalid("The message attribute name %q is invalid.", name)
		case !typePattern.MatchString(a.DataType):
			return Invalid("The message attribute %q has an invalid type.", name)
		case a.value() == "":
			return Invalid("The message attribute %q must contain a non-empty value.", name)
		case !a.binary() && !isText(a.StringValue):
			return Invalid("The message attribute %q contains invalid characters.", name)
		}
	}
	return nil
}

// isText says whether SQS takes it as a text.
func isText(s string) bool {
	for _, r := range s {
		switch {
		case r == '\t', r == '\n', r == '\r', 0x20 <= r && r <= 0xD7FF, 0xE000 <= r && r <= 0xFFFD, r >= 0x10000:
		default:
			return false
		}
	}
	return utf8.ValidString(s)
}
