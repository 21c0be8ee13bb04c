package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"
)

const (
	secretPrefix    = "whsec_"
	signatureScheme = "v1,"
)

// ErrSignature is wrapped by the errors of [Verify].
var ErrSignature = errors.New("notify: the message is not from who knows the secret")

// Verify checks that the body of a request was signed with the secret, at most maxAge ago. Receivers that remember the
// header webhook-id can refuse a message that somebody sends them again within that time. Its errors wrap
// [ErrSignature]; they say what is wrong and repeat nothing of the message. Secrets can be changed without a gap: check
// with the new and the old one.
func Verify(header http.Header, body []byte, secret string, maxAge time.Duration) error {
	key, err := signingKey(secret)
	if err != nil {
		return fmt.Errorf("notify: secret: %w", err)
	}
	stamp := header.Get(headerTimestamp)
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: no %s", ErrSignature, headerTimestamp)
	}
	if age := time.Since(time.Unix(seconds, 0)); age > maxAge || age < -maxAge {
		return fmt.Errorf("%w: %s is %s ago, more than %s", ErrSignature, headerTimestamp, age.Round(time.Second), maxAge)
	}
	want := []byte(sign(key, header.Get(headerID), stamp, body))
	for given := range strings.FieldsSeq(header.Get(headerSignature)) {
		if hmac.Equal([]byte(given), want) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s does not match", ErrSignature, headerSignature)
}

// sign is the signature of a message.
func sign(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return signatureScheme + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// signingKey decodes a secret.
func signingKey(secret string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil {
		return nil, errors.New("not base64") // the decoder's own text says where
	}
	if len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("has %d bytes, must have 24 to 64", len(key))
	}
	return key, nil
}
