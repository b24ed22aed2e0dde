package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"shardify/store"
	web "shardify/store/http"
)

// headSize is what Open fetches of an object of unknown size: all of a manifest or an
// index of ordinary size, so that it takes one request, and a millisecond's work more
// than asking for the size alone.
const headSize = 64 << 10

type object struct {
	s    *Store
	head []byte // the object's first bytes, where Open has fetched them

	mu     sync.Mutex
	info   store.Info
	etag   string // "" until the first answer
	closed bool
}

// Open opens the object called name.
func (s *Store) Open(ctx context.Context, name string) (store.Object, error) {
	if err := s.check(ctx, "open", name); err != nil {
		return nil, err
	}
	o := &object{s: s, info: store.Info{Name: name}}
	if size, ok := store.SizeOf(ctx); ok && size >= 0 {
		o.info.Size = size
		return o, nil
	}
	buf := make([]byte, headSize)
	var a answer
	err := s.do(ctx, "open", name, func() (err error) {
		a, err = s.get(ctx, name, "", buf, 0)
		if statusOf(err) != http.StatusRequestedRangeNotSatisfiable {
			return err
		}
		// An empty object has no first byte.
		out, err := s.client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: &s.bucket, Key: s.key(name), RequestPayer: s.payer()}, once)
		if err == nil {
			a = answer{size: aws.ToInt64(out.ContentLength), etag: aws.ToString(out.ETag), modified: out.LastModified}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	o.info.Size, o.info.ModTime, o.etag = a.size, aws.ToTime(a.modified), a.etag
	o.head = append([]byte(nil), buf[:a.n]...)
	return o, nil
}

// Stat describes an object with a HEAD request.
func (s *Store) Stat(ctx context.Context, name string) (store.Info, error) {
	if err := s.check(ctx, "stat", name); err != nil {
		return store.Info{}, err
	}
	var out *awss3.HeadObjectOutput
	err := s.do(ctx, "stat", name, func() (err error) {
		out, err = s.client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: &s.bucket, Key: s.key(name), RequestPayer: s.payer()}, once)
		return err
	})
	if err != nil {
		return store.Info{}, err
	}
	return store.Info{Name: name, Size: aws.ToInt64(out.ContentLength), ModTime: aws.ToTime(out.LastModified), Version: aws.ToString(out.ETag)}, nil
}

// Info describes the object; ModTime is zero where Open has asked nothing.
func (o *object) Info() store.Info {
	o.mu.Lock()
	defer o.mu.Unlock()
	info := o.info
	info.Version = o.etag
	return info
}

// Close ends reading.
func (o *object) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return fmt.Errorf("close %s: %w", o.s.path(o.info.Name), fs.ErrClosed)
	}
	o.closed = true
	return nil
}

// ReadAt fills p from byte off on, with one request at most.
func (o *object) ReadAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	o.mu.Lock()
	info, etag, closed := o.info, o.etag, o.closed
	o.mu.Unlock()
	fault := func(err error) error { return fmt.Errorf("read %s at %d: %w", o.s.path(info.Name), off, err) }
	switch {
	case ctx.Err() != nil:
		return 0, fault(ctx.Err())
	case closed:
		return 0, fault(fs.ErrClosed)
	case off < 0:
		return 0, fault(fs.ErrInvalid)
	}
	end := error(nil)
	if left := max(0, info.Size-off); int64(len(p)) > left {
		p, end = p[:left], io.EOF
	}
	if len(p) == 0 {
		return 0, end
	}
	if off < int64(len(o.head)) {
		if n = copy(p, o.head[off:]); n == len(p) {
			return n, end
		}
	}
	var a answer
	err = o.s.do(ctx, "read", info.Name, func() (err error) {
		a, err = o.s.get(ctx, info.Name, etag, p[n:], off+int64(n))
		return err
	})
	if err != nil && a.etag == "" {
		switch gone := statusOf(err) == http.StatusNotFound; {
		case gone && etag != "" && codeOf(err) != "NoSuchBucket":
			return n, fault(fmt.Errorf("%w: it was removed: %w", store.ErrChanged, err))
		case statusOf(err) == http.StatusPreconditionFailed:
			return n, fault(fmt.Errorf("%w: its ETag is no longer %s", store.ErrChanged, etag))
		case statusOf(err) == http.StatusRequestedRangeNotSatisfiable:
			return n, fault(fmt.Errorf("%w: it has less than the %d bytes that it had, or should have", store.ErrChanged, info.Size))
		}
		return n, err
	}
	if e := o.same(&a); e != nil {
		return n, fault(e)
	}
	n += a.n
	if err != nil {
		return n, err
	}
	return n, end
}

// same compares an answer with what is known of the object, and adds what is not.
func (o *object) same(a *answer) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case a.size != o.info.Size:
		return fmt.Errorf("%w: it has %d bytes, and had, or should have, %d", store.ErrChanged, a.size, o.info.Size)
	case o.etag == "":
		o.etag = a.etag
	case a.etag != o.etag:
		return fmt.Errorf("%w: its ETag was %s and is %s", store.ErrChanged, o.etag, a.etag)
	}
	return nil
}

// answer is what came of a GET.
type answer struct {
	n        int    // bytes that it brought
	size     int64  // of the object
	etag     string // "": there was no answer
	modified *time.Time
}

// get fetches the bytes of an object from off on into p, all of it unless the object
// ends before. etag, if it is not "", is the version that it must be. Where the body
// breaks off, the answer says how much came.
func (s *Store) get(ctx context.Context, name, etag string, p []byte, off int64) (a answer, err error) {
	in := awss3.GetObjectInput{
		Bucket: &s.bucket, Key: s.key(name), RequestPayer: s.payer(),
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1)),
	}
	if etag != "" {
		in.IfMatch = &etag
	}
	out, err := s.client.GetObject(ctx, &in, once)
	if err != nil {
		return a, err
	}
	defer out.Body.Close()
	from, size := int64(0), aws.ToInt64(out.ContentLength)
	if out.ContentRange != nil {
		var to int64
		var ok bool
		if from, to, size, ok = web.ContentRange(*out.ContentRange); !ok || to < from || to >= size {
			return a, fmt.Errorf("%w: the server sends the range %q", errAnswer, *out.ContentRange)
		}
	}
	want := min(int64(len(p)), size-off)
	switch length := aws.ToInt64(out.ContentLength); {
	case from != off || want < 0:
		return a, fmt.Errorf("%w: the server sends the object from byte %d of %d on, asked for byte %d", errAnswer, from, size, off)
	case length < want:
		return a, fmt.Errorf("%w: the server sends %d bytes, asked for %d", errAnswer, length, want)
	}
	a = answer{size: size, etag: aws.ToString(out.ETag), modified: out.LastModified}
	if a.etag == "" {
		return a, fmt.Errorf("%w: the server sends no ETag", errAnswer)
	}
	a.n, err = io.ReadFull(out.Body, p[:want])
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return a, err
}

// errAnswer: the server answers something else than it was asked.
var errAnswer = errors.New("a wrong answer")
