package s3

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Checksums of [Config.Checksum].
const (
	ChecksumCRC64NVME = "CRC64NVME"
	ChecksumCRC32C    = "CRC32C"
	ChecksumNone      = "none"
)

// Addressing of [Config.Addressing].
const (
	AddressingPath    = "path"    // https://host/bucket/key
	AddressingVirtual = "virtual" // https://bucket.host/key
)

// Defaults of a zero Config.
const (
	// DefaultPartSize is a compromise: 10,000 parts of it make 80 GiB, and S3 takes
	// one in some 100 ms.
	DefaultPartSize = 8 << 20
	// DefaultUploads fill a line of 10 Gbit/s where each brings 80 MB/s.
	DefaultUploads = 16
	// DefaultLease outlasts a minute's trouble of the network.
	DefaultLease = time.Minute
)

const (
	minPart  = 5 << 20 // what S3 wants of every part but the last
	maxPart  = 5 << 30
	maxParts = 10_000
)

// Config says how to reach a bucket and how to write to it. The zero value leaves all
// to the SDK's chain (environment, ~/.aws/config, instance metadata): credentials,
// region, endpoint. [Config.Environment] fills empty fields from SHARDIFY_S3_*.
//
// No field is a secret. Credentials come from the SDK's chain alone.
type Config struct {
	// Endpoint is the URL of a server other than Amazon's; "": AWS_ENDPOINT_URL_S3,
	// AWS_ENDPOINT_URL, endpoint_url of the profile, or Amazon's.
	Endpoint string `json:"endpoint,omitempty"`
	// Region is the bucket's; "": AWS_REGION or the profile's, and where none says
	// anything, us-east-1, which servers other than Amazon's do not look at.
	Region string `json:"region,omitempty"`
	// Profile is a section of ~/.aws/config; "": AWS_PROFILE or default.
	Profile string `json:"profile,omitempty"`
	// Addressing is "path" or "virtual"; "": path with an endpoint of one's own,
	// virtual at Amazon.
	Addressing string `json:"addressing,omitempty"`
	// Anonymous sends requests without a signature, for public buckets.
	Anonymous bool `json:"anonymous,omitempty"`
	// RequesterPays agrees to pay for requests and bytes of somebody else's bucket.
	RequesterPays bool `json:"requester_pays,omitempty"`

	// SSE is the encryption of what is written: AES256, aws:kms or aws:kms:dsse; "":
	// the bucket's default.
	SSE string `json:"sse,omitempty"`
	// KMSKey is the id or ARN of the key for aws:kms; "": the account's own.
	KMSKey string `json:"kms_key,omitempty"`
	// StorageClass of what is written, e.g. STANDARD_IA; "": STANDARD.
	StorageClass string `json:"storage_class,omitempty"`
	// Tags of what is written, as in a URL's query: team=vision&keep=yes.
	Tags string `json:"tags,omitempty"`

	// Checksum is what the server verifies of what is written: CRC64NVME or CRC32C;
	// "none" is for servers that know neither. "": CRC64NVME.
	Checksum string `json:"checksum,omitempty"`
	// PartSize is the size of the parts of an upload, from 5 MiB; 0: DefaultPartSize.
	// An object has 10,000 parts at most.
	PartSize int64 `json:"part_size,omitempty"`
	// Uploads bounds the parts under way at once, of all objects that are written;
	// 0: DefaultUploads. Memory is (Uploads + open Writers) × PartSize.
	Uploads int `json:"uploads,omitempty"`
	// Timeout is the time for one attempt of a request that writes; 0: 2 minutes.
	// Reads end with their context alone.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Lease is how long a lock outlives its process; 0: DefaultLease. At least 2 s.
	Lease time.Duration `json:"lease,omitempty"`
	// NoLocks takes no locks, for servers without conditional writes. Make sure that
	// only one process writes a data set.
	NoLocks bool `json:"no_locks,omitempty"`
}

// environment is the table of the variables that fill empty fields.
var environment = []struct {
	name string
	set  func(c *Config, text string) error
}{
	{"SHARDIFY_S3_ADDRESSING", text(func(c *Config) *string { return &c.Addressing })},
	{"SHARDIFY_S3_ANONYMOUS", yes(func(c *Config) *bool { return &c.Anonymous })},
	{"SHARDIFY_S3_REQUESTER_PAYS", yes(func(c *Config) *bool { return &c.RequesterPays })},
	{"SHARDIFY_S3_SSE", text(func(c *Config) *string { return &c.SSE })},
	{"SHARDIFY_S3_KMS_KEY", text(func(c *Config) *string { return &c.KMSKey })},
	{"SHARDIFY_S3_STORAGE_CLASS", text(func(c *Config) *string { return &c.StorageClass })},
	{"SHARDIFY_S3_TAGS", text(func(c *Config) *string { return &c.Tags })},
	{"SHARDIFY_S3_CHECKSUM", text(func(c *Config) *string { return &c.Checksum })},
	{"SHARDIFY_S3_PART_SIZE", func(c *Config, text string) (err error) {
		if c.PartSize == 0 {
			c.PartSize, err = strconv.ParseInt(text, 10, 64)
		}
		return err
	}},
	{"SHARDIFY_S3_UPLOADS", func(c *Config, text string) (err error) {
		if c.Uploads == 0 {
			c.Uploads, err = strconv.Atoi(text)
		}
		return err
	}},
	{"SHARDIFY_S3_LEASE", func(c *Config, text string) (err error) {
		if c.Lease == 0 {
			c.Lease, err = time.ParseDuration(text)
		}
		return err
	}},
	{"SHARDIFY_S3_NO_LOCKS", yes(func(c *Config) *bool { return &c.NoLocks })},
}

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, text string) error {
		if f := field(c); *f == "" {
			*f = text
		}
		return nil
	}
}

func yes(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, text string) error {
		on, err := strconv.ParseBool(text)
		*field(c) = *field(c) || on
		return err
	}
}

// Environment is c with fields that are empty filled from the variables SHARDIFY_S3_
// ADDRESSING, ANONYMOUS, REQUESTER_PAYS, SSE, KMS_KEY, STORAGE_CLASS, TAGS, CHECKSUM,
// PART_SIZE (bytes), UPLOADS, LEASE (as 90s) and NO_LOCKS. What the SDK has variables
// for, AWS_*, has none here.
func (c Config) Environment() (Config, error) {
	var faults []error
	for _, e := range environment {
		if value := os.Getenv(e.name); value != "" {
			if err := e.set(&c, value); err != nil {
				faults = append(faults, fmt.Errorf("%s=%q: %w", e.name, value, err))
			}
		}
	}
	return c, errors.Join(faults...)
}

// Validate reports every fault of c.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Endpoint != "" {
		if err := checkEndpoint(c.Endpoint); err != nil {
			faults = append(faults, err)
		}
	}
	switch c.Addressing {
	case "", AddressingPath, AddressingVirtual:
	default:
		fault("addressing: %q is neither %q nor %q", c.Addressing, AddressingPath, AddressingVirtual)
	}
	switch c.Checksum {
	case "", ChecksumCRC64NVME, ChecksumCRC32C, ChecksumNone:
	default:
		fault("checksum: %q is none of %s, %s, %s", c.Checksum, ChecksumCRC64NVME, ChecksumCRC32C, ChecksumNone)
	}
	switch c.SSE {
	case "", "AES256", "aws:kms", "aws:kms:dsse":
	default:
		fault("sse: %q is none of AES256, aws:kms, aws:kms:dsse", c.SSE)
	}
	if c.KMSKey != "" && !strings.HasPrefix(c.SSE, "aws:kms") {
		fault("kms_key: it needs sse aws:kms or aws:kms:dsse")
	}
	if _, err := url.ParseQuery(c.Tags); err != nil {
		fault("tags: %q is not of the form name=value&name=value", c.Tags)
	}
	if c.PartSize != 0 && (c.PartSize < minPart || c.PartSize > maxPart) {
		fault("part_size: %d is not from 5 MiB to 5 GiB", c.PartSize)
	}
	if c.Uploads < 0 {
		fault("uploads: %d is negative", c.Uploads)
	}
	if c.Timeout < 0 {
		fault("timeout: %v is negative", c.Timeout)
	}
	if c.Lease != 0 && c.Lease < 2*time.Second {
		fault("lease: %v is less than 2s", c.Lease)
	}
	return errors.Join(faults...)
}

// checkEndpoint says what is wrong with an endpoint, without secrets that it may hold.
func checkEndpoint(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("endpoint: it is no URL like https://host:port")
	case u.User != nil || u.RawQuery != "":
		return fmt.Errorf("endpoint: %s://%s with a user, password or query; credentials come from the environment or a profile", u.Scheme, u.Host)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Checksum == "" {
		c.Checksum = ChecksumCRC64NVME
	}
	if c.PartSize == 0 {
		c.PartSize = DefaultPartSize
	}
	if c.Uploads == 0 {
		c.Uploads = DefaultUploads
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Minute
	}
	if c.Lease == 0 {
		c.Lease = DefaultLease
	}
	return c
}
