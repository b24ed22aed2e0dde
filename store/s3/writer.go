package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/minio/crc64nvme"

	"shardify/store"
)

// cleanup is the time for ending an upload after its context has ended.
const cleanup = 30 * time.Second

// mark is the user metadata of an object by which its writer knows it again: an answer
// to CompleteMultipartUpload may get lost, and the same request then finds no upload.
const mark = "shardify-write"

// writer writes one object. Until PartSize bytes have come it is memory alone; then
// it is an upload whose parts are sent while more bytes come.
type writer struct {
	s    *Store
	name string
	mark string
	sum  hash.Hash // of all; nil without checksums

	buf  []byte
	done bool

	ctx    context.Context // of the upload
	cancel context.CancelFunc
	id     string // of the upload; "" before the first part
	parts  sync.WaitGroup

	mu   sync.Mutex
	sent []types.CompletedPart
	err  error // the first of a part, or of Write
	// cutOff: the sending of a part was broken off.
	cutOff bool
}

// Create starts the object called name. Parts are sent under ctx.
func (s *Store) Create(ctx context.Context, name string) (store.Writer, error) {
	if err := s.check(ctx, "create", name); err != nil {
		return nil, err
	}
	w := &writer{s: s, name: name, sum: s.newSum(), mark: rand.Text()}
	w.ctx, w.cancel = context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writers[w] = struct{}{}
	return w, nil
}

// newSum is the hash of Config.Checksum; nil for none.
func (s *Store) newSum() hash.Hash {
	switch s.c.Checksum {
	case ChecksumCRC64NVME:
		return crc64nvme.New()
	case ChecksumCRC32C:
		return crc32.New(crc32.MakeTable(crc32.Castagnoli))
	}
	return nil
}

// sumOf is the checksum of p as S3 writes it; nil for none.
func (s *Store) sumOf(p []byte) *string {
	switch s.c.Checksum {
	case ChecksumCRC64NVME:
		return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, crc64nvme.Checksum(p))))
	case ChecksumCRC32C:
		return aws.String(base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))))
	}
	return nil
}

func (s *Store) is(checksum string) bool { return s.c.Checksum == checksum }

// pick is sum where the checksum is the one meant, and nil elsewhere.
func (s *Store) pick(checksum string, sum *string) *string {
	if s.is(checksum) {
		return sum
	}
	return nil
}

// algorithm is Config.Checksum as the SDK has it.
func (s *Store) algorithm() types.ChecksumAlgorithm {
	if s.is(ChecksumNone) {
		return ""
	}
	return types.ChecksumAlgorithm(s.c.Checksum)
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func (w *writer) fault(op string, err error) error {
	return fmt.Errorf("%s %s: %w", op, w.s.path(w.name), err)
}

// Write takes p into parts, and waits where as many are under way as may be.
func (w *writer) Write(p []byte) (n int, err error) {
	if w.done {
		return 0, w.fault("write", fs.ErrClosed)
	}
	size := int(w.s.c.PartSize)
	for len(p) > 0 {
		if err := w.failure(); err != nil {
			return n, err
		}
		if len(w.buf) == size { // only when more comes: a whole object may be small
			if err := w.send(); err != nil {
				w.fail(err) // what a later Commit must not leave out
				return n, err
			}
		}
		k := min(len(p), size-len(w.buf))
		if len(w.buf)+k > 256<<10 && cap(w.buf) < size {
			w.buf = append(w.s.buffer(), w.buf...)
		}
		w.buf = append(w.buf, p[:k]...)
		if w.sum != nil {
			_, _ = w.sum.Write(p[:k])
		}
		p = p[k:]
		n += k
	}
	return n, nil
}

// buffer returns memory for a part, of length 0.
func (s *Store) buffer() []byte {
	if b, ok := s.buffers.Get().(*[]byte); ok {
		return (*b)[:0]
	}
	return make([]byte, 0, s.c.PartSize)
}

func (s *Store) putBuffer(b []byte) {
	if cap(b) == int(s.c.PartSize) {
		s.buffers.Put(&b)
	}
}

// failure is the first error of a part.
func (w *writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// fail notes an error of a part, and ends the others.
func (w *writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		w.cancel()
	}
}

// send sends what has gathered as the next part.
func (w *writer) send() error {
	s := w.s
	if w.id == "" {
		if err := w.begin(); err != nil {
			return err
		}
	}
	number := len(w.sent) + 1
	if number > maxParts {
		return w.fault("write", fmt.Errorf("%w: more than %d parts of %d bytes: give shards a smaller size, or parts a larger one, SHARDIFY_S3_PART_SIZE", fs.ErrInvalid, maxParts, s.c.PartSize))
	}
	select {
	case s.slots <- struct{}{}:
	case <-w.ctx.Done():
		if err := w.failure(); err != nil {
			return err
		}
		return w.fault("write", w.ctx.Err())
	}
	data := w.buf
	w.buf = nil
	w.mu.Lock()
	w.sent = append(w.sent, types.CompletedPart{PartNumber: aws.Int32(int32(number))})
	w.mu.Unlock()
	w.parts.Go(func() {
		defer func() { <-s.slots }()
		defer s.putBuffer(data)
		sum := s.sumOf(data)
		in := awss3.UploadPartInput{
			Bucket: &s.bucket, Key: s.key(w.name), UploadId: &w.id, PartNumber: aws.Int32(int32(number)),
			ContentLength: aws.Int64(int64(len(data))), RequestPayer: s.payer(),
			ChecksumAlgorithm: s.algorithm(),
			ChecksumCRC64NVME: s.pick(ChecksumCRC64NVME, sum), ChecksumCRC32C: s.pick(ChecksumCRC32C, sum),
		}
		var out *awss3.UploadPartOutput
		err := s.do(w.ctx, fmt.Sprintf("write part %d of", number), w.name, func() (err error) {
			in.Body = bytes.NewReader(data)
			out, err = s.client.UploadPart(w.ctx, &in, s.limited)
			return err
		})
		if err != nil {
			w.fail(err)
			w.mu.Lock()
			w.cutOff = w.cutOff || w.ctx.Err() != nil
			w.mu.Unlock()
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		part := &w.sent[number-1]
		part.ETag = out.ETag
		part.ChecksumCRC64NVME, part.ChecksumCRC32C = in.ChecksumCRC64NVME, in.ChecksumCRC32C
	})
	return nil
}

// begin begins the upload.
func (w *writer) begin() error {
	s := w.s
	in := awss3.CreateMultipartUploadInput{
		Bucket: &s.bucket, Key: s.key(w.name), RequestPayer: s.payer(),
		Metadata:             map[string]string{mark: w.mark},
		ServerSideEncryption: types.ServerSideEncryption(s.c.SSE), SSEKMSKeyId: optional(s.c.KMSKey),
		StorageClass: types.StorageClass(s.c.StorageClass), Tagging: optional(s.c.Tags),
		ChecksumAlgorithm: s.algorithm(),
	}
	if !s.is(ChecksumNone) {
		in.ChecksumType = types.ChecksumTypeFullObject
	}
	var out *awss3.CreateMultipartUploadOutput
	err := s.do(w.ctx, "begin to write", w.name, func() (err error) {
		out, err = s.client.CreateMultipartUpload(w.ctx, &in, s.limited)
		return err
	})
	if err != nil {
		return err
	}
	w.id = aws.ToString(out.UploadId)
	return nil
}

// end takes the writer from the store's list; swept says that a Sweep did it before.
func (w *writer) end() (swept bool) {
	w.done = true
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	_, ok := w.s.writers[w]
	delete(w.s.writers, w)
	return !ok
}

// Commit makes the object visible.
func (w *writer) Commit(ctx context.Context) (err error) {
	if w.done {
		return w.fault("commit", fs.ErrClosed)
	}
	swept := w.end()
	defer w.cancel()
	defer w.free()
	switch {
	case ctx.Err() != nil:
		err = w.fault("commit", ctx.Err())
	case swept:
		err = w.fault("commit", fmt.Errorf("%w: it was swept while it was written", fs.ErrNotExist))
	case w.failure() != nil:
		err = w.failure()
	case w.id == "":
		return w.put(ctx)
	default:
		err = w.complete(ctx)
	}
	if err != nil {
		return errors.Join(err, w.drop())
	}
	return nil
}

// put sends a small object.
func (w *writer) put(ctx context.Context) error {
	s, sum := w.s, w.s.sumOf(w.buf)
	in := awss3.PutObjectInput{
		Bucket: &s.bucket, Key: s.key(w.name), ContentLength: aws.Int64(int64(len(w.buf))), RequestPayer: s.payer(),
		Metadata:             map[string]string{mark: w.mark},
		ServerSideEncryption: types.ServerSideEncryption(s.c.SSE), SSEKMSKeyId: optional(s.c.KMSKey),
		StorageClass: types.StorageClass(s.c.StorageClass), Tagging: optional(s.c.Tags),
		ChecksumAlgorithm: s.algorithm(),
		ChecksumCRC64NVME: s.pick(ChecksumCRC64NVME, sum), ChecksumCRC32C: s.pick(ChecksumCRC32C, sum),
	}
	return s.do(ctx, "write", w.name, func() error {
		in.Body = bytes.NewReader(w.buf)
		_, err := s.client.PutObject(ctx, &in, s.limited)
		return err
	})
}

// complete sends the last part and makes the upload an object.
func (w *writer) complete(ctx context.Context) error {
	s := w.s
	// The end of Commit's context ends the parts as well.
	stop := context.AfterFunc(ctx, w.cancel)
	defer stop()
	if len(w.buf) > 0 {
		if err := w.send(); err != nil {
			return err
		}
	}
	w.parts.Wait()
	if ctx.Err() != nil {
		return w.fault("commit", ctx.Err())
	}
	if err := w.failure(); err != nil {
		return err
	}
	in := awss3.CompleteMultipartUploadInput{
		Bucket: &s.bucket, Key: s.key(w.name), UploadId: &w.id, RequestPayer: s.payer(),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: slices.Clone(w.sent)},
	}
	if w.sum != nil {
		sum := aws.String(base64.StdEncoding.EncodeToString(w.sum.Sum(nil)))
		in.ChecksumType = types.ChecksumTypeFullObject
		in.ChecksumCRC64NVME, in.ChecksumCRC32C = s.pick(ChecksumCRC64NVME, sum), s.pick(ChecksumCRC32C, sum)
	}
	err := s.do(ctx, "commit", w.name, func() error {
		_, err := s.client.CompleteMultipartUpload(ctx, &in, s.limited)
		return err
	})
	if codeOf(err) == "NoSuchUpload" && w.committed(ctx) {
		return nil
	}
	return err
}

// committed says that the object is there, and is the one written here: the answer to
// an earlier attempt got lost.
func (w *writer) committed(ctx context.Context) bool {
	s := w.s
	out, err := s.client.HeadObject(ctx, &awss3.HeadObjectInput{Bucket: &s.bucket, Key: s.key(w.name), RequestPayer: s.payer()}, s.limited)
	return err == nil && out.Metadata[mark] == w.mark
}

// drop ends the upload, also where the writer's context has ended.
func (w *writer) drop() error {
	w.cancel()
	w.parts.Wait()
	if w.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), cleanup)
	defer cancel()
	err := w.s.abort(ctx, w.name, w.id)
	if !w.cutOff {
		return err
	}
	// The server may still be at work on a part whose sending was broken off, and keep it
	// although the upload has been aborted meanwhile: S3 says to abort again.
	for pause := 50 * time.Millisecond; pause < time.Second; pause *= 2 {
		select {
		case <-time.After(pause):
			err = w.s.abort(ctx, w.name, w.id)
		case <-ctx.Done():
		}
	}
	return err
}

// free gives back the memory of what was not sent.
func (w *writer) free() {
	w.s.putBuffer(w.buf)
	w.buf = nil
}

// Abort drops the object.
func (w *writer) Abort() error {
	if w.done {
		return nil
	}
	w.end()
	defer w.free()
	return w.drop()
}
