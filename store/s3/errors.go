package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"shardify/store"
)

// Error is a request that the server, or what is on the way to it, did not answer as it
// should. It wraps the sentinels of package store and of fs that apply, and the SDK's
// own error.
type Error struct {
	Op  string // open, read, write, commit, list, ...
	URL string // the object's, or the prefix's
	// Status and Code are HTTP's and S3's, as 404 and NoSuchKey; 0 and "" if there was
	// no answer.
	Status int
	Code   string
	// Message is the server's, RequestID what its support asks for.
	Message, RequestID string
	// Hint says what can be done; "" where nobody knows.
	Hint string

	kind, err error
}

// Error says what happened, to what, and what to do.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: ", e.Op, e.URL)
	if e.kind != nil {
		fmt.Fprintf(&b, "%v: ", e.kind)
	}
	switch {
	case e.Code == "" && e.Status == 0:
		fmt.Fprintf(&b, "%v", bare(e.err))
	case e.Message != "":
		fmt.Fprintf(&b, "the server says %s: %s", e.Code, e.Message)
	default:
		fmt.Fprintf(&b, "the server says %s", e.Code)
	}
	if e.Status != 0 {
		fmt.Fprintf(&b, " (HTTP %d", e.Status)
		if e.RequestID != "" {
			fmt.Fprintf(&b, ", request %s", e.RequestID)
		}
		b.WriteByte(')')
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	return b.String()
}

// Unwrap returns the sentinel, if there is one, and the SDK's error.
func (e *Error) Unwrap() []error {
	if e.kind != nil {
		return []error{e.kind, e.err}
	}
	return []error{e.err}
}

// bare is err without the SDK's preamble of operations.
func bare(err error) error {
	var op *smithy.OperationError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// codeOf is S3's code of an error; "" if it has none.
func codeOf(err error) string {
	var ours *Error
	if errors.As(err, &ours) {
		return ours.Code
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// statusOf is the HTTP status of an error; 0 if there was no answer.
func statusOf(err error) int {
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

func expired(code string) bool {
	switch code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired":
		return true
	}
	return false
}

func skewed(code string) bool { return code == "RequestTimeTooSkewed" }

// refused says that a conditional write found its condition not to hold.
func refused(err error) bool {
	switch codeOf(err) {
	case "PreconditionFailed", "ConditionalRequestConflict", "OperationAborted":
		return true
	}
	return statusOf(err) == http.StatusPreconditionFailed
}

// fault turns an error of the SDK into one of ours.
func (s *Store) fault(ctx context.Context, op, name string, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		return fmt.Errorf("%s %s: %w", op, s.path(name), ctxErr)
	}
	e := &Error{Op: op, URL: s.path(name), Code: codeOf(err), Status: statusOf(err), err: err}
	var api smithy.APIError
	if errors.As(err, &api) {
		e.Message = api.ErrorMessage()
	}
	var answer *awshttp.ResponseError
	region := ""
	if errors.As(err, &answer) {
		e.RequestID = answer.ServiceRequestID()
		if r := answer.HTTPResponse(); r != nil {
			region = r.Header.Get("X-Amz-Bucket-Region")
		}
	}
	e.Hint, e.kind = s.judge(e, region)
	// What the SDK says round the error of a connection is long, and nothing of it happened.
	var sent *url.Error
	if e.Status == 0 && e.kind == nil && errors.As(err, &sent) {
		e.err = fmt.Errorf("no answer: %w", sent.Err)
		if at, err := url.Parse(sent.URL); err == nil {
			e.err = fmt.Errorf("no answer from %s://%s: %w", at.Scheme, at.Host, sent.Err)
		}
		e.Hint = "check the network, and AWS_ENDPOINT_URL_S3, which is not set for Amazon's own"
	}
	return e
}

// judge says what an error means, and what to do about it.
func (s *Store) judge(e *Error, region string) (hint string, kind error) {
	if region == s.region {
		region = ""
	}
	switch e.Code {
	case "NoSuchBucket":
		return fmt.Sprintf("there is no bucket %q: create it, or check its name, and AWS_ENDPOINT_URL_S3 where the server is not Amazon's", s.bucket), fs.ErrNotExist
	case "NoSuchKey", "NoSuchVersion", "NotFound":
		return "", fs.ErrNotExist
	case "NoSuchUpload":
		return "the upload was aborted meanwhile, by a sweep or by a rule of the bucket", fs.ErrNotExist
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		return "the credentials have expired and the chain has no newer ones: log in again (aws sso login), or renew AWS_SESSION_TOKEN", fs.ErrPermission
	case "InvalidAccessKeyId", "InvalidToken", "UnrecognizedClientException", "XAdminUserNotFound": // the last of versitygw, with 404
		return "the server does not know these credentials: check AWS_ACCESS_KEY_ID, AWS_PROFILE and AWS_ENDPOINT_URL_S3", fs.ErrPermission
	case "SignatureDoesNotMatch":
		return "the secret key is not the one of this access key, or something on the way changes requests: check AWS_SECRET_ACCESS_KEY", fs.ErrPermission
	case "RequestTimeTooSkewed":
		return "this machine's clock is wrong by more than 15 minutes: set it (timedatectl set-ntp true)", fs.ErrPermission
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "TemporaryRedirect", "MovedPermanently", "301":
		hint := fmt.Sprintf("the bucket is not in the region %s: set AWS_REGION to its own", s.region)
		if region != "" {
			hint = fmt.Sprintf("the bucket is in the region %s, and requests go to %s: set AWS_REGION=%s", region, s.region, region)
		}
		return hint, fs.ErrInvalid
	case "QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "StorageFull":
		return "", store.ErrNoSpace
	case "SlowDown", "Throttling", "TooManyRequests", "RequestLimitExceeded", "ServiceUnavailable":
		return "read larger ranges (shuffle window), use a cache, or spread data over prefixes", store.ErrThrottled
	case "InvalidPart", "BadDigest", "XAmzContentChecksumMismatch":
		return "what arrived is not what was sent: something on the way damages data", nil
	case "NotImplemented":
		return "the server does not know this request; docs/s3.md says what is needed, and what SHARDIFY_S3_CHECKSUM and SHARDIFY_S3_NO_LOCKS do without", errors.ErrUnsupported
	}
	switch status := e.Status; {
	case status == http.StatusMovedPermanently || status == http.StatusTemporaryRedirect || (status == http.StatusBadRequest || status == http.StatusForbidden) && region != "":
		if region != "" {
			return fmt.Sprintf("the bucket is in the region %s, and requests go to %s: set AWS_REGION=%s", region, s.region, region), fs.ErrInvalid
		}
		return fmt.Sprintf("the bucket is not in the region %s: set AWS_REGION to its own", s.region), fs.ErrInvalid
	case status == http.StatusNotFound:
		return "", fs.ErrNotExist
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		if s.c.Anonymous {
			return "the bucket is not open to everybody: leave out SHARDIFY_S3_ANONYMOUS and give credentials", fs.ErrPermission
		}
		return "these credentials may not do that: see the IAM statement in docs/s3.md; a missing object reads as forbidden where s3:ListBucket is not allowed; a bucket whose requester pays needs SHARDIFY_S3_REQUESTER_PAYS=1", fs.ErrPermission
	case status == http.StatusInsufficientStorage:
		return "", store.ErrNoSpace
	case status == http.StatusNotImplemented:
		return "", errors.ErrUnsupported
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return "", store.ErrThrottled
	case status == http.StatusRequestTimeout || e.Code == "RequestTimeout" || e.Code == "IncompleteBody":
		return "", nil
	case status >= 400 && status < 500 && status != http.StatusConflict:
		return "", fs.ErrInvalid
	case status == 0 && strings.Contains(e.err.Error(), "get credentials"), status == 0 && strings.Contains(e.err.Error(), "get identity"):
		return "no credentials were found: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or SHARDIFY_S3_ANONYMOUS=1 for a public bucket", fs.ErrPermission
	}
	return "", nil
}
