package sqs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/go-outbox/outbox/core"
)

// The codes that we look for again.
const (
	codeAccessDenied = "ACCESS_DENIED"
	codeNoQueue      = "QUEUE_DOES_NOT_EXIST"
)

// verdict is what an error means.
type verdict struct {
	class   core.Class
	scope   core.Scope
	code    string
	outcome core.Outcome
	split   bool // the request is at fault, not the queue: its parts may go through
}

func (v verdict) publishError(err error) *core.PublishError {
	return &core.PublishError{Class: v.class, Scope: v.scope, Code: v.code, Err: err}
}

// publishError wraps an error with its classification.
func publishError(err error) *core.PublishError { return classify(err).publishError(err) }

// What a reply can have against a message without an error of SQS. All count as the message's, so that one that SQS
// chokes on is parked in the end; sending it again repeats nothing while SQS knows its de-duplication id.
var (
	verdictUnnamed  = verdict{core.ClassTransient, core.ScopeMessage, "NO_RESULT", core.OutcomeUnknown, false}
	verdictChecksum = verdict{core.ClassTransient, core.ScopeMessage, "CHECKSUM_MISMATCH", core.OutcomeUnknown, false}
	// A deleted queue may say for 60 s that it stores.
	verdictVanished = verdict{core.ClassMisconfigured, core.ScopeDestination, codeNoQueue, core.OutcomeUnknown, false}
)

// entryError is what SQS says about one entry of a request.
type entryError struct{ types.BatchResultErrorEntry }

func (e *entryError) Error() string {
	return aws.ToString(e.Code) + ": " + aws.ToString(e.Message)
}

// classify says what an error of a whole request means.
func classify(err error) verdict {
	var (
		operation, inner *smithy.OperationError
		dial             *net.OpError
		api              smithy.APIError
		response         *smithyhttp.ResponseError
	)
	switch {
	case errors.Is(err, core.ErrClosed):
		return verdict{core.ClassUnavailable, core.ScopeBroker, "CLOSED", core.OutcomeRejected, false}
	// A request of another service inside ours: the one that gives us credentials. They may be back soon.
	case errors.As(err, &operation) && errors.As(operation.Err, &inner):
		return verdict{core.ClassUnavailable, core.ScopeBroker, "NO_CREDENTIALS", core.OutcomeRejected, false}
	// Without a connection nothing was sent. All queues have the same endpoint. Before the timeouts, as a dial that takes
	// too long looks like one.
	case errors.As(err, &dial) && dial.Op == "dial":
		return verdict{core.ClassUnavailable, core.ScopeBroker, "NO_CONNECTION", core.OutcomeRejected, false}
	// Ours: nothing is wrong with the message. What was sent may have been stored.
	case errors.Is(err, context.Canceled):
		return verdict{core.ClassUnavailable, core.ScopeDestination, "CANCELED", core.OutcomeUnknown, false}
	case errors.Is(err, context.DeadlineExceeded):
		return verdict{core.ClassUnavailable, core.ScopeDestination, "TIMEOUT", core.OutcomeUnknown, false}
	case errors.As(err, &api) && errors.As(err, &response):
		return classifyAPI(api, response.HTTPStatusCode())
	case errors.As(err, &response):
		return classifyStatus(response.HTTPStatusCode())
	// The connection broke: the request may have been carried out.
	case errors.As(err, new(*smithyhttp.RequestSendError)), errors.As(err, new(*smithy.DeserializationError)):
		return verdict{core.ClassUnavailable, core.ScopeDestination, "NO_REPLY", core.OutcomeUnknown, false}
	// The SDK gave up before it sent anything: no credentials, or no endpoint for the region.
	default:
		return verdict{core.ClassUnavailable, core.ScopeBroker, "NOT_SENT", core.OutcomeRejected, false}
	}
}

// classifyAPI is for errors that SQS has sent about a request. Types are preferred to codes: SQS sends the codes of its
// older protocol for some of them.
func classifyAPI(err smithy.APIError, status int) verdict {
	is := func(class core.Class, scope core.Scope, code string) verdict {
		return verdict{class, scope, code, core.OutcomeRejected, false}
	}
	switch {
	// All together are too large or too many: fewer may go. One alone is too large for ever.
	case as[*types.BatchRequestTooLong](err), as[*types.TooManyEntriesInBatchRequest](err):
		return verdict{core.ClassPermanent, core.ScopeMessage, "MESSAGE_TOO_LARGE", core.OutcomeRejected, true}
	// One message is against the rules, and a strict server refuses its neighbours with it.
	case as[*types.InvalidMessageContents](err), as[*types.InvalidAttributeValue](err),
		as[*types.InvalidAttributeName](err):
		return verdict{core.ClassPermanent, core.ScopeMessage, "INVALID_MESSAGE", core.OutcomeRejected, true}
	// A person has to create the queue, or to correct its name.
	case as[*types.QueueDoesNotExist](err), as[*types.QueueDeletedRecently](err):
		return is(core.ClassMisconfigured, core.ScopeDestination, codeNoQueue)
	case as[*types.InvalidAddress](err), as[*types.UnsupportedOperation](err):
		return is(core.ClassMisconfigured, core.ScopeDestination, "INVALID_QUEUE")
	// The queue's key: a person has to enable or grant it.
	case as[*types.KmsAccessDenied](err), as[*types.KmsDisabled](err), as[*types.KmsNotFound](err),
		as[*types.KmsOptInRequired](err), as[*types.KmsInvalidState](err), as[*types.KmsInvalidKeyUsage](err):
		return is(core.ClassMisconfigured, core.ScopeDestination, "KMS")
	case as[*types.RequestThrottled](err), as[*types.KmsThrottled](err), as[*types.OverLimit](err),
		status == http.StatusTooManyRequests:
		return is(core.ClassThrottled, core.ScopeDestination, "THROTTLED")
	// Requests are not encrypted as the queue's policy demands, which is a matter of our configuration.
	case as[*types.InvalidSecurity](err):
		return is(core.ClassMisconfigured, core.ScopeBroker, "INVALID_SECURITY")
	}
	if v, ok := classifyCode(err.ErrorCode()); ok {
		return v
	}
	return classifyStatus(status)
}

// classifyCode is for errors without a type, of whole requests and of entries.
func classifyCode(code string) (v verdict, known bool) {
	is := func(class core.Class, scope core.Scope, code string) (verdict, bool) {
		return verdict{class, scope, code, core.OutcomeRejected, false}, true
	}
	switch code {
	// SQS, and what stands before it, have several names for too fast.
	case "RequestThrottled", "ThrottlingException", "Throttling", "ThrottledException", "RequestThrottledException",
		"TooManyRequestsException", "RequestLimitExceeded", "SlowDown", "OverLimit", "KMS.ThrottlingException",
		"KmsThrottled":
		return is(core.ClassThrottled, core.ScopeDestination, "THROTTLED")
	// The provider will bring a new token; till then nothing goes anywhere, and no person has to act.
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired":
		return is(core.ClassUnavailable, core.ScopeBroker, "CREDENTIALS_EXPIRED")
	// A right on this queue is missing.
	case "AccessDenied", "AccessDeniedException", "AuthorizationError", "AuthorizationErrorException":
		return is(core.ClassMisconfigured, core.ScopeDestination, codeAccessDenied)
	// We are nobody: wrong key, wrong secret, wrong region, wrong clock.
	case "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "InvalidSignatureException",
		"MissingAuthenticationToken", "MissingAuthenticationTokenException", "IncompleteSignature", "OptInRequired",
		"InvalidAccessKeyId", "NotAuthorized", "RequestTimeTooSkewed":
		return is(core.ClassMisconfigured, core.ScopeBroker, "INVALID_CREDENTIALS")
	case "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue":
		return is(core.ClassMisconfigured, core.ScopeDestination, codeNoQueue)
	// Against the rules. In a request of several the others may be right.
	case "InvalidParameterValue", "InvalidParameterValueException", "InvalidParameterCombination", "MissingParameter",
		"MissingRequiredParameterException", "InvalidMessageContents", "InvalidAttributeValue", "InvalidAttributeName",
		"ValidationException", "InvalidBatchEntryId", "BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong":
		return verdict{core.ClassPermanent, core.ScopeMessage, "INVALID_MESSAGE", core.OutcomeRejected, true}, true
	}
	return verdict{}, false
}

// classifyStatus is for answers that say nothing else that we know.
func classifyStatus(status int) verdict {
	switch {
	case status == http.StatusTooManyRequests:
		return verdict{core.ClassThrottled, core.ScopeDestination, "THROTTLED", core.OutcomeRejected, false}
	// Trouble of the service, or of what stands before it: nobody knows what became of the request.
	case status >= http.StatusInternalServerError:
		return verdict{core.ClassUnavailable, core.ScopeDestination, "SERVER_ERROR", core.OutcomeUnknown, false}
	// Refused for a reason of the future. It counts as the message's, so that it is parked in the end; but none of its
	// neighbours with it.
	case status >= http.StatusBadRequest:
		return verdict{core.ClassTransient, core.ScopeMessage, "REFUSED", core.OutcomeRejected, true}
	// An answer that does not say done is none.
	default:
		return verdict{core.ClassUnavailable, core.ScopeDestination, "NO_REPLY", core.OutcomeUnknown, false}
	}
}

// classifyEntry says what the refusal of one entry means, while its neighbours were stored.
func classifyEntry(entry types.BatchResultErrorEntry) verdict {
	v, known := classifyCode(aws.ToString(entry.Code))
	switch {
	// The queue takes other messages: it is this group that is too fast.
	case known && v.class == core.ClassThrottled:
		v.scope = core.ScopeKey
		return v
	case known:
		return v
	// By definition trying again does not help.
	case entry.SenderFault:
		return verdict{core.ClassPermanent, core.ScopeMessage, "REFUSED", core.OutcomeRejected, false}
	// InternalError and the like: it counts as the message's, so that one that SQS chokes on is parked in the end.
	default:
		return verdict{core.ClassTransient, core.ScopeMessage, "INTERNAL_ERROR", core.OutcomeUnknown, false}
	}
}

// as says whether the error is of type T.
func as[T error](err error) bool { return errors.As(err, new(T)) }

// asPublishError finds what send and account put into every error.
func asPublishError(err error) *core.PublishError {
	var failed *core.PublishError
	if errors.As(err, &failed) {
		return failed
	}
	return publishError(err)
}

// earlierFailed is for a message that was not sent because of the one before it. It says nothing about the message.
func earlierFailed(failed *core.PublishError) *core.PublishError {
	return &core.PublishError{
		Class: core.ClassTransient, Scope: core.ScopeKey, Code: "EARLIER_FAILED",
		Err: fmt.Errorf("sqs: not sent, as an earlier message of its group was not delivered: %w", failed),
	}
}

// noTime is for messages that the call's context left no time for. Nothing is wrong with their queue.
func noTime(ctx context.Context) *core.PublishError {
	reason := context.Cause(ctx)
	if reason == nil {
		reason = errors.New("the call's time is nearly over")
	}
	return &core.PublishError{
		Class: core.ClassTransient, Scope: core.ScopeKey, Code: "NO_TIME", Err: fmt.Errorf("sqs: not sent: %w", reason),
	}
}

// unsentOutcome is the outcome of what was not sent.
func unsentOutcome(ctx context.Context) core.Outcome {
	if ctx.Err() != nil {
		return core.OutcomeSkipped
	}
	return core.OutcomeRejected
}
