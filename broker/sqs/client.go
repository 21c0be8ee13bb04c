package sqs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// idleTimeout closes connections before the service does: a request that meets a connection being closed has an unknown
// outcome, and pauses its queue.
const idleTimeout = 15 * time.Second

// newClient makes a client with connections of its own, and the function that closes them.
func newClient(ctx context.Context, config Config) (*sdk.Client, func(), error) {
	builder := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConns, t.MaxIdleConnsPerHost = 0, config.Concurrency
		t.IdleConnTimeout = idleTimeout
	})
	options := []func(*awsconfig.LoadOptions) error{awsconfig.WithHTTPClient(builder)}
	if config.Region != "" {
		options = append(options, awsconfig.WithRegion(config.Region))
	}
	if provider := config.Credentials.provider(); provider != nil {
		options = append(options, awsconfig.WithCredentialsProvider(provider))
	}
	loaded, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, nil, err
	}
	if loaded.Region == "" {
		return nil, nil, errors.New("no region: set Config.Region, AWS_REGION, or one in the profile")
	}
	// Loading may have added certificates (AWS_CA_BUNDLE). The builder's own connections cannot be closed by us.
	if built, ok := loaded.HTTPClient.(*awshttp.BuildableClient); ok {
		builder = built
	}
	transport := builder.GetTransport()
	own := func(o *sdk.Options) {
		o.HTTPClient = &http.Client{
			Transport: wholeReplies{transport},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse // a signature is for one host
			},
		}
		if config.Endpoint != "" {
			o.BaseEndpoint = aws.String(config.Endpoint)
		}
	}
	client := sdk.NewFromConfig(loaded, append([]func(*sdk.Options){own}, config.OptFns...)...)
	return client, transport.CloseIdleConnections, nil
}

// wholeReplies reads replies to their end before the SDK sees them. The SDK closes the body of a request as soon as the
// reply has begun; a transport that is not done with the request then gives up the connection, and with the rest of the
// reply the outcome of the messages is lost. It was seen with a server on the same machine under load, once in some
// thousand requests.
type wholeReplies struct{ http.RoundTripper }

func (w wholeReplies) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // it has been read to its end
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// provider is what is to sign requests; nil means the default chain.
func (c Credentials) provider() aws.CredentialsProvider {
	switch {
	case c.Provider != nil:
		return c.Provider
	case c.IsZero():
		return nil
	}
	return credentials.NewStaticCredentialsProvider(c.AccessKeyID, string(c.SecretAccessKey), string(c.SessionToken))
}

// once makes a client send a request once. The checksums of bodies are compared entry by entry (see account): the SDK
// would give up the whole request for one that differs.
func once(o *sdk.Options) {
	o.Retryer = aws.NopRetryer{}
	o.DisableMessageChecksumValidation = true
}
