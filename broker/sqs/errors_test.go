package sqs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/go-outbox/outbox/core"
)

// failed wraps an error as the SDK does.
func failed(service string, err error) error {
	return &smithy.OperationError{ServiceID: service, OperationName: "SendMessageBatch", Err: err}
}

// answered is an error that came as an answer.
func answered(status int, err error) error {
	return failed("SQS", &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: err,
	})
}

func code(code string) error { return &smithy.GenericAPIError{Code: code} }

// Short names for the tables.
const (
	transient     = core.ClassTransient
	throttled     = core.ClassThrottled
	unavailable   = core.ClassUnavailable
	misconfigured = core.ClassMisconfigured
	permanent     = core.ClassPermanent

	message     = core.ScopeMessage
	key         = core.ScopeKey
	destination = core.ScopeDestination
	broker      = core.ScopeBroker

	rejected = core.OutcomeRejected
	unknown  = core.OutcomeUnknown
)

func TestClassify(t *testing.T) {
	t.Parallel()
	dial := &net.OpError{Op: "dial", Err: &os.SyscallError{Syscall: "connect", Err: errors.New("refused")}}
	read := &net.OpError{Op: "read", Err: errors.New("reset")}
	for _, c := range []struct {
		err     error
		class   core.Class
		scope   core.Scope
		outcome core.Outcome
		split   bool
	}{
		// the request, or a message in it
		{answered(400, &types.BatchRequestTooLong{}), permanent, message, rejected, true},
		{answered(400, &types.TooManyEntriesInBatchRequest{}), permanent, message, rejected, true},
		{answered(400, &types.InvalidMessageContents{}), permanent, message, rejected, true},
		{answered(400, code("InvalidParameterValue")), permanent, message, rejected, true},
		{answered(400, code("SomethingNew")), transient, message, rejected, true},
		// too fast
		{answered(400, &types.RequestThrottled{}), throttled, destination, rejected, false},
		{answered(400, &types.KmsThrottled{}), throttled, destination, rejected, false},
		{answered(400, code("ThrottlingException")), throttled, destination, rejected, false},
		{answered(429, code("SomethingNew")), throttled, destination, rejected, false},
		{answered(429, errors.New("no JSON")), throttled, destination, rejected, false},
		// the queue
		{answered(400, &types.QueueDoesNotExist{}), misconfigured, destination, rejected, false},
		{answered(400, &types.KmsDisabled{}), misconfigured, destination, rejected, false},
		{answered(400, &types.UnsupportedOperation{}), misconfigured, destination, rejected, false},
		{answered(403, code("AccessDenied")), misconfigured, destination, rejected, false},
		// us
		{answered(403, code("ExpiredTokenException")), unavailable, broker, rejected, false},
		{answered(403, code("SignatureDoesNotMatch")), misconfigured, broker, rejected, false},
		{answered(403, &types.InvalidSecurity{}), misconfigured, broker, rejected, false},
		{failed("SQS", errors.New("get identity: none")), unavailable, broker, rejected, false},
		{failed("SQS", fmt.Errorf("get identity: %w", failed("STS", &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: 500}},
		}))), unavailable, broker, rejected, false},
		// the service
		{answered(500, code("InternalError")), unavailable, destination, unknown, false},
		{answered(503, code("ServiceUnavailable")), unavailable, destination, unknown, false},
		{answered(502, errors.New("no JSON")), unavailable, destination, unknown, false},
		{answered(302, errors.New("no JSON")), unavailable, destination, unknown, false},
		{answered(200, &smithy.DeserializationError{}), unavailable, destination, unknown, false},
		// the network
		{failed("SQS", &smithyhttp.RequestSendError{Err: dial}), unavailable, broker, rejected, false},
		{failed("SQS", &smithyhttp.RequestSendError{Err: read}), unavailable, destination, unknown, false},
		{failed("SQS", &aws.RequestCanceledError{Err: context.Canceled}), unavailable, destination, unknown, false},
		{failed("SQS", &aws.RequestCanceledError{Err: context.DeadlineExceeded}), unavailable, destination, unknown, false},
		{core.ErrClosed, unavailable, broker, rejected, false},
	} {
		v := classify(fmt.Errorf("wrapped: %w", c.err))
		if v.class != c.class || v.scope != c.scope || v.outcome != c.outcome || v.split != c.split {
			t.Errorf("%v: %v of the %v, %v, split %t; want %v of the %v, %v, split %t", c.err,
				v.class, v.scope, v.outcome, v.split, c.class, c.scope, c.outcome, c.split)
		}
		if v.code == "" {
			t.Errorf("%v: no code", c.err)
		}
	}
}

func TestClassifyEntry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code        string
		senderFault bool
		class       core.Class
		scope       core.Scope
		outcome     core.Outcome
	}{
		{"RequestThrottled", true, throttled, key, rejected},
		{"ThrottlingException", false, throttled, key, rejected},
		{"InvalidMessageContents", true, permanent, message, rejected},
		{"InvalidParameterValue", true, permanent, message, rejected},
		{"SomethingNew", true, permanent, message, rejected},
		{"AccessDenied", true, misconfigured, destination, rejected},
		{"AWS.SimpleQueueService.NonExistentQueue", true, misconfigured, destination, rejected},
		{"InternalError", false, transient, message, unknown},
		{"", false, transient, message, unknown},
	} {
		v := classifyEntry(types.BatchResultErrorEntry{Code: &c.code, SenderFault: c.senderFault})
		if v.class != c.class || v.scope != c.scope || v.outcome != c.outcome {
			t.Errorf("%s: %v of the %v, %v; want %v of the %v, %v", c.code, v.class, v.scope, v.outcome,
				c.class, c.scope, c.outcome)
		}
	}
}
