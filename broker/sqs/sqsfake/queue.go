package sqsfake

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// queue is one queue. Server.mu guards it.
type queue struct {
	name       string
	fifo       bool
	created    time.Time
	attributes map[string]string

	waiting  []*stored          // not deleted, in the order of arrival
	byHandle map[string]*stored // the current receipt handle of each message that was received
	deleted  int                // how many of waiting are deleted
	log      []Message          // all that was ever stored
	seen     map[string]sent    // de-duplication ids of the window
	window   []windowed         // the same by age
	sequence int
}

// defaults are the attributes of a queue that nobody has set.
func (s *Server) defaults(fifo bool) map[string]string {
	attributes := map[string]string{
		"MaximumMessageSize":            strconv.Itoa(s.config.MaxMessageBytes),
		"VisibilityTimeout":             "30",
		"MessageRetentionPeriod":        "345600",
		"DelaySeconds":                  "0",
		"ReceiveMessageWaitTimeSeconds": "0",
	}
	if fifo {
		attributes["FifoQueue"] = "true"
		attributes["ContentBasedDeduplication"] = "false"
		attributes["DeduplicationScope"] = "queue"
		attributes["FifoThroughputLimit"] = "perQueue"
	}
	return attributes
}

// CreateQueue makes a queue with these attributes, as the action of that name does, and returns its URL. The name
// decides whether it is a FIFO queue.
func (s *Server) CreateQueue(name string, attributes map[string]string) (url string, err error) {
	if strings.HasSuffix(name, ".fifo") {
		attributes = maps.Clone(attributes)
		if attributes == nil {
			attributes = map[string]string{}
		}
		attributes["FifoQueue"] = "true"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.create(name, attributes)
}

// DeleteQueue deletes a queue with its messages; one that does not exist is no error.
func (s *Server) DeleteQueue(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queues, name)
}

// Messages returns all that was ever stored in a queue since it was made, received and deleted ones too, in the order
// of arrival. The messages are the caller's.
func (s *Server) Messages(name string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[name]
	if q == nil {
		return nil
	}
	return slices.Clone(q.log)
}

func (s *Server) url(name string) string { return s.URL() + "/000000000000/" + name }

// create is CreateQueue with mu held.
func (s *Server) create(name string, attributes map[string]string) (string, error) {
	base, fifo := strings.CutSuffix(name, ".fifo")
	if len(name) > maxName || !namePattern.MatchString(base) {
		return "", Invalid("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	if fifo != (attributes["FifoQueue"] == "true") {
		return "", Invalid("The queue name must end with .fifo exactly when the attribute FifoQueue is true")
	}
	if err := checkAttributes(attributes, fifo); err != nil {
		return "", err
	}
	if q := s.queues[name]; q != nil {
		for key, value := range attributes {
			if q.attributes[key] != value {
				return "", refuse("QueueNameExists",
					"A queue already exists with the same name and a different value for attribute "+key)
			}
		}
		return s.url(name), nil
	}
	q := &queue{
		name: name, fifo: fifo, created: s.config.Now(), attributes: s.defaults(fifo),
		byHandle: map[string]*stored{}, seen: map[string]sent{},
	}
	maps.Copy(q.attributes, attributes)
	s.queues[name] = q
	return s.url(name), nil
}

// ranges are the numbers that attributes may have.
var ranges = map[string][2]int{
	"MaximumMessageSize":            {1024, 1 << 20},
	"VisibilityTimeout":             {0, 43200},
	"MessageRetentionPeriod":        {60, 1209600},
	"DelaySeconds":                  {0, 900},
	"ReceiveMessageWaitTimeSeconds": {0, 20},
}

// words are the texts that attributes of FIFO queues may have.
var words = map[string][]string{
	"FifoQueue":                 {"true"},
	"ContentBasedDeduplication": {"true", "false"},
	"DeduplicationScope":        {"queue", "messageGroup"},
	"FifoThroughputLimit":       {"perQueue", "perMessageGroupId"},
}

// checkAttributes checks the attributes that mean something here. Policies, keys and the like are kept without a look.
func checkAttributes(attributes map[string]string, fifo bool) error {
	for key, value := range attributes {
		if limits, ok := ranges[key]; ok {
			if n, err := strconv.Atoi(value); err != nil || n < limits[0] || n > limits[1] {
				return refuse("InvalidAttributeValue", "Invalid value for "+key)
			}
			continue
		}
		allowed, ok := words[key]
		switch {
		case !ok:
		case !fifo:
			return refuse("InvalidAttributeName", "Unknown Attribute "+key)
		case !slices.Contains(allowed, value):
			return refuse("InvalidAttributeValue", "Invalid value for "+key)
		}
	}
	if attributes["FifoThroughputLimit"] == "perMessageGroupId" && attributes["DeduplicationScope"] != "messageGroup" {
		return refuse("InvalidAttributeValue",
			"The value perMessageGroupId is allowed only when DeduplicationScope is messageGroup")
	}
	return nil
}

// number is a numeric attribute; create and set have checked it.
func (q *queue) number(attribute string) int {
	n, _ := strconv.Atoi(q.attributes[attribute])
	return n
}

func (q *queue) seconds(attribute string) time.Duration {
	return time.Duration(q.number(attribute)) * time.Second
}

var errNoQueue = QueueDoesNotExist()

// lookup finds a queue by URL. Callers hold mu.
func (s *Server) lookup(url string) (*queue, error) {
	if q := s.queues[nameOf(url)]; q != nil {
		return q, nil
	}
	return nil, errNoQueue
}

func (c *call) createQueue() (any, error) {
	var in struct {
		QueueName  string
		Attributes map[string]string
	}
	if err := c.read(&in); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	url, err := c.create(in.QueueName, in.Attributes)
	return map[string]string{"QueueUrl": url}, err
}

func (c *call) getQueueURL() (any, error) {
	var in struct{ QueueName string }
	if err := c.read(&in); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.lookup(in.QueueName)
	return map[string]string{"QueueUrl": c.url(in.QueueName)}, err
}

// withQueue decodes a request about one queue and runs f with mu held.
func (c *call) withQueue(in any, url *string, f func(*queue) (any, error)) (any, error) {
	if err := c.read(in); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	q, err := c.lookup(*url)
	if err != nil {
		return nil, err
	}
	return f(q)
}

func (c *call) getQueueAttributes() (any, error) {
	var in struct {
		QueueURL       string `json:"QueueUrl"`
		AttributeNames []string
	}
	return c.withQueue(&in, &in.QueueURL, func(q *queue) (any, error) {
		all := maps.Clone(q.attributes)
		visible, inFlight := q.count(c.config.Now())
		all["ApproximateNumberOfMessages"] = strconv.Itoa(visible)
		all["ApproximateNumberOfMessagesNotVisible"] = strconv.Itoa(inFlight)
		all["CreatedTimestamp"] = strconv.FormatInt(q.created.Unix(), 10)
		all["QueueArn"] = "arn:aws:sqs:us-east-1:000000000000:" + q.name
		if !slices.Contains(in.AttributeNames, "All") {
			maps.DeleteFunc(all, func(name, _ string) bool { return !slices.Contains(in.AttributeNames, name) })
		}
		return map[string]any{"Attributes": all}, nil
	})
}

func (c *call) setQueueAttributes() (any, error) {
	var in struct {
		QueueURL   string `json:"QueueUrl"`
		Attributes map[string]string
	}
	return c.withQueue(&in, &in.QueueURL, func(q *queue) (any, error) {
		merged := maps.Clone(q.attributes)
		maps.Copy(merged, in.Attributes)
		if err := checkAttributes(merged, q.fifo); err != nil {
			return nil, err
		}
		q.attributes = merged
		return struct{}{}, nil
	})
}

func (c *call) listQueues() (any, error) {
	var in struct {
		QueueNamePrefix string
		MaxResults      int
	}
	if err := c.read(&in); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	urls := []string{}
	for _, name := range slices.Sorted(maps.Keys(c.queues)) {
		if strings.HasPrefix(name, in.QueueNamePrefix) && (in.MaxResults == 0 || len(urls) < in.MaxResults) {
			urls = append(urls, c.url(name))
		}
	}
	return map[string]any{"QueueUrls": urls}, nil
}

func (c *call) purgeQueue() (any, error) {
	var in struct {
		QueueURL string `json:"QueueUrl"`
	}
	return c.withQueue(&in, &in.QueueURL, func(q *queue) (any, error) {
		q.waiting, q.deleted, q.byHandle = nil, 0, map[string]*stored{}
		return struct{}{}, nil
	})
}

func (c *call) deleteQueue() (any, error) {
	var in struct {
		QueueURL string `json:"QueueUrl"`
	}
	out, err := c.withQueue(&in, &in.QueueURL, func(q *queue) (any, error) {
		delete(c.queues, q.name)
		return struct{}{}, nil
	})
	if errors.Is(err, errNoQueue) {
		return struct{}{}, nil
	}
	return out, err
}
