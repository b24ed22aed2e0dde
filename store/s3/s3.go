// Package s3 keeps a store in a bucket of Amazon S3, or of a server that speaks its
// protocol. Call [New] with s3://bucket/prefix.
//
// Credentials, region and endpoint come from the SDK's own chain: AWS_* variables,
// ~/.aws/config and credentials with profiles, SSO and assumed roles, web identity
// (IRSA), and the roles of containers and instances. They are read anew when the server
// says that they have expired, so that a run outlives them. [Config] has the rest.
//
// # What is promised
//
// An object is written in parts while its bytes come, and becomes visible, whole, with
// Commit; small ones are sent with it. Memory is bounded: see Config.Uploads. The server
// verifies a checksum of each part and of the whole (Config.Checksum). Until Commit
// the parts are an upload that no listing of objects shows and that costs storage; an
// Abort, a Commit that fails, and Sweep end it. What a killed process has left stays
// until a Sweep, or until the bucket's rule AbortIncompleteMultipartUpload strikes.
//
// An open Object is one version by its ETag: every request is conditional on it
// (If-Match). S3 keeps no replaced object for those who read it, so a read after that is
// [store.ErrChanged], never other bytes. Open fetches the first bytes with its one
// request, and asks nothing where [store.WithSize] says how large the object is.
//
// # Locks
//
// A lock is an object that is written if there is none (If-None-Match) and renewed,
// under the condition that it is still ours (If-Match), four times within its lease,
// Config.Lease. Whoever finds one whose last renewal is older than its lease, by the
// server's clock alone, takes it over, again conditionally, so that of several only one
// does. So a lock ends with its process at the latest a lease later. A process that
// could not renew for a lease, as a laptop that slept, has lost its lock without
// knowing, and finds out at the next renewal or at unlock, which then fails; what it has
// written meanwhile is whole all the same. package pack is made for that: two who write
// the same shard write the same bytes.
//
// The first Lock of a Store makes sure that the server honours such conditions, and
// fails with [errors.ErrUnsupported] where it ignores them (Config.NoLocks).
//
// # Retrying
//
// Open, ReadAt and List make one attempt: wrap the store in store/retry. What writes,
// and Lock, is tried again here, eight times with exponential waits, as only who knows
// the upload can tell whether a request whose answer got lost has happened.
package s3

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"

	"shardify/store"
)

// attempts is how often what writes is tried.
const attempts = 8

// backoff is the wait after so many failures: as in store/retry, a random time up to one
// that doubles, from 100 ms to 20 s.
func backoff(failures int, _ error) (time.Duration, error) {
	return rand.N(min(100*time.Millisecond<<min(failures, 10), 20*time.Second)), nil
}

// passing are codes, besides those the SDK knows, that pass by themselves: another
// request to the key is under way; the body was cut on its way; versitygw says the last
// one when a folder vanishes, with its last object, while another is written into it.
var passing = retry.RetryableErrorCode{Codes: map[string]struct{}{
	"OperationAborted": {}, "IncompleteBody": {}, "ExistingObjectIsDirectory": {},
}}

// Store is a store in a bucket.
type Store struct {
	url    string // s3://bucket/prefix
	bucket string
	root   string // of keys: "" or "prefix/"
	c      Config
	client *awss3.Client
	region string // for messages
	amazon bool   // there is no endpoint of one's own
	creds  *aws.CredentialsCache

	// Parts under way, and memory for more.
	slots   chan struct{}
	buffers sync.Pool // of *[]byte, of PartSize

	renewMu sync.Mutex
	renewed time.Time

	// conditional: the server honours conditions of writes.
	conditional atomic.Bool

	mu      sync.Mutex
	writers map[*writer]struct{} // neither done nor swept
}

var _ store.Store = (*Store)(nil)

// New returns the store at s3://bucket/prefix, which need not exist yet; its bucket
// must when it is used. New itself asks no server but those that the chain of
// credentials needs, and these at the first request only.
func New(ctx context.Context, url string, c Config) (*Store, error) {
	bucket, root, err := split(url)
	if err != nil {
		return nil, err
	}
	s := &Store{bucket: bucket, root: root, writers: map[*writer]struct{}{}}
	s.url = strings.TrimSuffix("s3://"+bucket+"/"+root, "/")
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("open %s: %w", s.url, err)
	}
	s.c = c.withDefaults()
	s.slots = make(chan struct{}, s.c.Uploads)

	load := func(ctx context.Context) (aws.Config, error) {
		// What the SDK would log, errors say.
		options := []func(*awsconfig.LoadOptions) error{awsconfig.WithHTTPClient(newClient()), awsconfig.WithLogger(logging.Nop{})}
		if s.c.Profile != "" {
			options = append(options, awsconfig.WithSharedConfigProfile(s.c.Profile))
		}
		if s.c.Region != "" {
			options = append(options, awsconfig.WithRegion(s.c.Region))
		}
		return awsconfig.LoadDefaultConfig(ctx, options...)
	}
	cfg, err := load(ctx)
	if err != nil {
		return nil, fmt.Errorf("open %s: the configuration of AWS (AWS_* variables, ~/.aws/config): %w", s.url, err)
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	s.region = cfg.Region
	if s.c.Anonymous {
		cfg.Credentials = aws.AnonymousCredentials{}
	} else {
		// The whole chain is asked again, also for what it takes to be valid for ever:
		// somebody may have written new credentials into the file.
		first := cfg.Credentials
		s.creds = aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			provider := first
			if s.wasRenewed() {
				again, err := load(ctx)
				if err != nil {
					return aws.Credentials{}, err
				}
				provider = again.Credentials
			}
			return provider.Retrieve(ctx)
		}), func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = time.Minute })
		cfg.Credentials = s.creds
	}
	var fault error
	s.client = awss3.NewFromConfig(cfg, func(o *awss3.Options) {
		if c, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
			o.HTTPClient = shared(c)
		}
		if s.c.Endpoint != "" {
			o.BaseEndpoint = aws.String(s.c.Endpoint)
		}
		plain := false
		s.amazon = o.BaseEndpoint == nil
		if o.BaseEndpoint != nil {
			fault = checkEndpoint(*o.BaseEndpoint)
			plain = strings.HasPrefix(*o.BaseEndpoint, "http:")
		}
		o.UsePathStyle = s.c.Addressing == AddressingPath || s.c.Addressing == "" && o.BaseEndpoint != nil
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
		o.DisableMultiRegionAccessPoints = false
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = attempts
			o.Backoff = retry.BackoffDelayerFunc(backoff)
			o.Retryables = append(o.Retryables, passing)
		})
		if !plain {
			// TLS keeps the payload from being changed; hashing it would be the
			// larger part of an upload's work.
			o.APIOptions = append(o.APIOptions, v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)
		}
	})
	if fault != nil {
		return nil, fmt.Errorf("open %s: %w", s.url, fault)
	}
	return s, nil
}

// newClient returns a client for [shared].
func newClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		// Many requests at once go to one host; each should find a connection open.
		t.MaxIdleConns = 512
		t.MaxIdleConnsPerHost = 256
		t.MaxConnsPerHost = 0
		t.DisableCompression = true
	})
}

var clients struct {
	sync.Mutex
	all []*awshttp.BuildableClient
}

// shared returns the client that all Stores of the process use which trust the same
// certificates as c (AWS_CA_BUNDLE), so that a store that is opened anew finds
// connections open, and one that nobody uses any more leaves none.
func shared(c *awshttp.BuildableClient) *awshttp.BuildableClient {
	roots := func(c *awshttp.BuildableClient) *x509.CertPool {
		if t := c.GetTransport().TLSClientConfig; t != nil {
			return t.RootCAs
		}
		return nil
	}
	mine := roots(c)
	clients.Lock()
	defer clients.Unlock()
	for _, other := range clients.all {
		if r := roots(other); r == mine || r != nil && mine != nil && r.Equal(mine) {
			return other
		}
	}
	clients.all = append(clients.all, c)
	return c
}

// split parses s3://bucket/prefix.
func split(url string) (bucket, root string, err error) {
	scheme, rest, ok := strings.Cut(url, "://")
	bucket, path, _ := strings.Cut(rest, "/")
	path = strings.TrimSuffix(path, "/")
	switch {
	case !ok || !strings.EqualFold(scheme, "s3"):
		return "", "", fmt.Errorf("open a store: %w: want s3://bucket/prefix", fs.ErrInvalid)
	case strings.Contains(bucket, "@"):
		return "", "", fmt.Errorf("open s3://%s: %w: no keys or passwords in a URL; they come from the environment or a profile",
			bucket[strings.LastIndexByte(bucket, '@')+1:], fs.ErrInvalid)
	case bucket == "" || strings.ContainsAny(bucket, "?#% :\\"):
		return "", "", fmt.Errorf("open a store: %w: s3://bucket/prefix needs the name of a bucket, without ?, # or :; region and endpoint come from AWS_REGION and AWS_ENDPOINT_URL_S3", fs.ErrInvalid)
	}
	if path == "" {
		return bucket, "", nil
	}
	if err := store.CheckName(path); err != nil {
		return "", "", fmt.Errorf("open s3://%s: the prefix: %w", bucket, err)
	}
	return bucket, path + "/", nil
}

// URL is s3://bucket/prefix.
func (s *Store) URL() string { return s.url }

func (s *Store) path(name string) string { return s.url + "/" + name }

func (s *Store) key(name string) *string { return aws.String(s.root + name) }

func (s *Store) payer() types.RequestPayer {
	if s.c.RequesterPays {
		return types.RequestPayerRequester
	}
	return ""
}

// once makes a request that is not tried again.
func once(o *awss3.Options) { o.Retryer = aws.NopRetryer{} }

// errStalled is an attempt of a request that writes whose time was over.
var errStalled = errors.New("no answer in time")

type stalled struct{ after time.Duration }

func (e stalled) Error() string        { return fmt.Sprintf("no answer within %v", e.after) }
func (e stalled) Is(target error) bool { return target == errStalled }
func (e stalled) RetryableError() bool { return true }

// limited gives each attempt of a request the time Config.Timeout.
func (s *Store) limited(o *awss3.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("shardifyTimeout",
			func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
				limited, cancel := context.WithTimeout(ctx, s.c.Timeout)
				defer cancel()
				out, meta, err := next.HandleFinalize(limited, in)
				if err != nil && limited.Err() != nil && ctx.Err() == nil {
					err = stalled{s.c.Timeout}
				}
				return out, meta, err
			}), "Retry", middleware.After)
	})
}

// check is for every operation on a name.
func (s *Store) check(ctx context.Context, op, name string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, s.path(name), err)
	}
	if err := store.CheckName(name); err != nil {
		return fmt.Errorf("%s in %s: %w", op, s.url, err)
	}
	return nil
}

// do makes a request. Where the server takes the credentials for expired, or the clock
// for wrong, it is made once more: with new ones, and with the server's time, which the
// client has noted.
func (s *Store) do(ctx context.Context, op, name string, request func() error) error {
	err := request()
	if err == nil {
		return nil
	}
	switch code := codeOf(err); {
	case expired(code) && s.renew(), skewed(code):
		if err = request(); err == nil {
			return nil
		}
	}
	return s.fault(ctx, op, name, err)
}

// renew makes the next request ask the chain of credentials again; false where there is
// nothing to ask.
func (s *Store) renew() bool {
	if s.creds == nil {
		return false
	}
	s.renewMu.Lock()
	defer s.renewMu.Unlock()
	// Many requests fail at once with credentials that have expired.
	if time.Since(s.renewed) > 2*time.Second {
		s.renewed = time.Now()
		s.creds.Invalidate()
	}
	return true
}

func (s *Store) wasRenewed() bool {
	s.renewMu.Lock()
	defer s.renewMu.Unlock()
	return !s.renewed.IsZero()
}

// List yields the objects below the prefix, a thousand with each request. Objects whose
// names are none of a store's are left out.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[store.Info, error] {
	return s.ListFrom(ctx, prefix, "", false)
}

// ListFrom is as store.ListFrom.
func (s *Store) ListFrom(ctx context.Context, prefix, after string, folders bool) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(store.Info{}, fmt.Errorf("list %s: %w", s.path(prefix), err))
			return
		}
		if !possible(prefix) {
			return
		}
		in := awss3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: s.key(sendable(prefix)), RequestPayer: s.payer()}
		if folders {
			in.Delimiter = aws.String("/")
		}
		if after > prefix {
			in.StartAfter = s.key(after)
		}
		last := after
		for {
			var out *awss3.ListObjectsV2Output
			err := s.do(ctx, "list", prefix, func() (err error) {
				out, err = s.client.ListObjectsV2(ctx, &in, once)
				return err
			})
			if err != nil {
				yield(store.Info{}, err)
				return
			}
			for _, info := range s.page(out, prefix, after) {
				if err := ctx.Err(); err != nil {
					yield(store.Info{}, fmt.Errorf("list %s: %w", s.path(prefix), err))
					return
				}
				if info.Name <= last {
					yield(store.Info{}, fmt.Errorf("list %s: %w: %q comes after %q; a directory bucket (S3 Express) does not list in order", s.path(prefix), errors.ErrUnsupported, info.Name, last))
					return
				}
				last = info.Name
				if !yield(info, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				break
			}
			if out.NextContinuationToken == nil {
				yield(store.Info{}, fmt.Errorf("list %s: %w: the server cuts its list and does not say how to go on", s.path(prefix), errors.ErrUnsupported))
				return
			}
			in.ContinuationToken = out.NextContinuationToken
		}
		if err := ctx.Err(); err != nil {
			yield(store.Info{}, fmt.Errorf("list %s: %w", s.path(prefix), err))
		}
	}
}

// page is what of an answer is to be listed, objects and folders in one order.
func (s *Store) page(out *awss3.ListObjectsV2Output, prefix, after string) []store.Info {
	infos := make([]store.Info, 0, len(out.Contents)+len(out.CommonPrefixes))
	for i := range out.Contents {
		o := &out.Contents[i]
		name, ok := strings.CutPrefix(aws.ToString(o.Key), s.root)
		if ok && strings.HasPrefix(name, prefix) && name > after && store.CheckName(name) == nil {
			infos = append(infos, store.Info{Name: name, Size: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified), Version: aws.ToString(o.ETag)})
		}
	}
	if len(out.CommonPrefixes) == 0 {
		return infos
	}
	for i := range out.CommonPrefixes {
		name, ok := strings.CutPrefix(aws.ToString(out.CommonPrefixes[i].Prefix), s.root)
		if ok && strings.HasPrefix(name, prefix) && name > after && store.CheckName(strings.TrimSuffix(name, "/")) == nil {
			infos = append(infos, store.Info{Name: name})
		}
	}
	slices.SortFunc(infos, func(a, b store.Info) int { return strings.Compare(a.Name, b.Name) })
	return infos
}

// possible says that some name could begin with prefix.
func possible(prefix string) bool {
	if strings.ContainsAny(prefix, "\x00\\") {
		return false
	}
	at := strings.LastIndexByte(prefix, '/')
	return !strings.HasPrefix(prefix[at+1:], store.TempPrefix) && (at < 0 || store.CheckName(prefix[:at]) == nil)
}

// sendable is as much of a prefix as every server takes: text, and no component that is
// nothing but dots (MinIO). What begins with it and not with prefix is left out of its list.
func sendable(prefix string) string {
	for i, c := range prefix {
		if c == utf8.RuneError {
			prefix = prefix[:i]
			break
		}
	}
	folder := prefix[:strings.LastIndexByte(prefix, '/')+1]
	if strings.Trim(prefix[len(folder):], ".") == "" {
		return folder
	}
	return prefix
}

// Remove deletes an object.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := s.check(ctx, "remove", name); err != nil {
		return err
	}
	in := awss3.DeleteObjectInput{Bucket: &s.bucket, Key: s.key(name), RequestPayer: s.payer()}
	err := s.do(ctx, "remove", name, func() error {
		_, err := s.client.DeleteObject(ctx, &in, s.limited)
		return err
	})
	if codeOf(err) == "NoSuchKey" {
		return nil
	}
	return err
}

// Sweep aborts uploads under names that begin with prefix: those in the bucket, whoever
// began them, and writes of this Store that have sent nothing yet.
func (s *Store) Sweep(ctx context.Context, prefix string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sweep %s: %w", s.path(prefix), err)
	}
	if !possible(prefix) {
		return nil
	}
	s.mu.Lock()
	for w := range s.writers {
		if strings.HasPrefix(w.name, prefix) {
			delete(s.writers, w)
		}
	}
	s.mu.Unlock()
	for u, err := range s.uploads(ctx, "sweep", prefix) {
		if err != nil {
			return err
		}
		if err := s.abort(ctx, u.Name, u.ID); err != nil {
			return err
		}
	}
	return nil
}

// uploads yields the uploads of names that begin with prefix, whose Size is not known, and
// whose ModTime is that of their beginning.
func (s *Store) uploads(ctx context.Context, op, prefix string) iter.Seq2[store.Unfinished, error] {
	return func(yield func(store.Unfinished, error) bool) {
		under, some := s.key(sendable(prefix)), false
		for u, err := range s.uploadsUnder(ctx, op, prefix, under) {
			if some = true; !yield(u, err) {
				return
			}
		}
		// MinIO takes a prefix for the one key whose uploads are wanted.
		if !some && !s.amazon && *under != "" {
			s.uploadsUnder(ctx, op, prefix, nil)(yield)
		}
	}
}

// uploadsUnder is uploads of what the server has under a prefix of keys.
func (s *Store) uploadsUnder(ctx context.Context, op, prefix string, under *string) iter.Seq2[store.Unfinished, error] {
	return func(yield func(store.Unfinished, error) bool) {
		in := awss3.ListMultipartUploadsInput{Bucket: &s.bucket, Prefix: under, RequestPayer: s.payer()}
		for {
			var out *awss3.ListMultipartUploadsOutput
			err := s.do(ctx, op, prefix, func() (err error) {
				out, err = s.client.ListMultipartUploads(ctx, &in, s.limited)
				return err
			})
			if err != nil {
				yield(store.Unfinished{}, err)
				return
			}
			for i := range out.Uploads {
				u := &out.Uploads[i]
				name, ok := strings.CutPrefix(aws.ToString(u.Key), s.root)
				if !ok || !strings.HasPrefix(name, prefix) {
					continue
				}
				if !yield(store.Unfinished{Name: name, ID: aws.ToString(u.UploadId), ModTime: aws.ToTime(u.Initiated)}, nil) {
					return
				}
			}
			if !aws.ToBool(out.IsTruncated) {
				return
			}
			in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
		}
	}
}

// Unfinished yields the uploads in the bucket, with the size and the time of their parts.
func (s *Store) Unfinished(ctx context.Context, prefix string) iter.Seq2[store.Unfinished, error] {
	const op = "list uploads"
	return func(yield func(store.Unfinished, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(store.Unfinished{}, fmt.Errorf("%s %s: %w", op, s.path(prefix), err))
			return
		}
		if !possible(prefix) {
			return
		}
		for u, err := range s.uploads(ctx, op, prefix) {
			if err == nil {
				err = s.measure(ctx, op, &u)
			}
			if errors.Is(err, fs.ErrNotExist) && codeOf(err) != "NoSuchBucket" {
				continue // it ended meanwhile
			}
			if !yield(u, err) || err != nil {
				return
			}
		}
	}
}

// measure adds up an upload's parts.
func (s *Store) measure(ctx context.Context, op string, u *store.Unfinished) error {
	in := awss3.ListPartsInput{Bucket: &s.bucket, Key: s.key(u.Name), UploadId: &u.ID, RequestPayer: s.payer()}
	for {
		var out *awss3.ListPartsOutput
		err := s.do(ctx, op, u.Name, func() (err error) {
			out, err = s.client.ListParts(ctx, &in, s.limited)
			return err
		})
		if err != nil {
			return err
		}
		for i := range out.Parts {
			u.Size += aws.ToInt64(out.Parts[i].Size)
			if at := aws.ToTime(out.Parts[i].LastModified); at.After(u.ModTime) {
				u.ModTime = at
			}
		}
		if !aws.ToBool(out.IsTruncated) {
			return nil
		}
		in.PartNumberMarker = out.NextPartNumberMarker
	}
}

// Drop aborts an upload that Unfinished has yielded.
func (s *Store) Drop(ctx context.Context, u store.Unfinished) error {
	if err := s.check(ctx, "drop", u.Name); err != nil {
		return err
	}
	return s.abort(ctx, u.Name, u.ID)
}

// abort ends an upload; one that is not there is no error.
func (s *Store) abort(ctx context.Context, name, id string) error {
	in := awss3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: s.key(name), UploadId: &id, RequestPayer: s.payer()}
	err := s.do(ctx, "abort", name, func() error {
		_, err := s.client.AbortMultipartUpload(ctx, &in, s.limited)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
