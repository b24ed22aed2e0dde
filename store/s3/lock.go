package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"shardify/store"
)

// maxLock bounds a lock object that is read.
const maxLock = 64 << 10

// grace is added to a lease: the server's times have whole seconds.
const grace = 2 * time.Second

// lockText is what a lock object holds, as JSON.
type lockText struct {
	Owner string `json:"owner"`
	// ID is of one Lock; Renewed counts its renewals, so that each has an ETag of its
	// own, which is what the conditions are about.
	ID           string  `json:"id"`
	Renewed      int     `json:"renewed"`
	LeaseSeconds float64 `json:"lease_seconds"`
}

// heldLock is a lock that is held, or was.
type heldLock struct {
	s    *Store
	name string
	text lockText
	etag string

	stop context.CancelFunc
	done chan struct{} // renewing has ended

	until time.Time // our clock: no other can have taken it before
	lost  error
}

// Lock takes the lock called name.
func (s *Store) Lock(ctx context.Context, name, owner string) (unlock func() error, err error) {
	if err := s.check(ctx, "lock", name); err != nil {
		return nil, err
	}
	if s.c.NoLocks {
		return func() error { return nil }, nil
	}
	l := &heldLock{s: s, name: name, text: lockText{Owner: owner, ID: rand.Text(), LeaseSeconds: s.c.Lease.Seconds()}}
	if err := l.take(ctx); err != nil {
		return nil, err
	}
	if !s.conditional.Load() {
		if err := l.probe(ctx); err != nil {
			return nil, err
		}
	}
	// It is held until unlock, whatever becomes of ctx.
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop, l.done = stop, make(chan struct{})
	go l.renew(renewing)
	return sync.OnceValue(l.unlock), nil
}

// put writes the lock object under a condition: that it is the version etag, or with ""
// that there is none.
func (l *heldLock) put(ctx context.Context, op, etag string) error {
	s := l.s
	data, err := json.Marshal(&l.text)
	if err != nil {
		return err
	}
	in := awss3.PutObjectInput{Bucket: &s.bucket, Key: s.key(l.name), ContentLength: aws.Int64(int64(len(data))), RequestPayer: s.payer()}
	if etag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &etag
	}
	began := time.Now()
	var out *awss3.PutObjectOutput
	err = s.do(ctx, op, l.name, func() (err error) {
		in.Body = bytes.NewReader(data)
		out, err = s.client.PutObject(ctx, &in, s.limited)
		return err
	})
	if err == nil {
		l.etag, l.until = aws.ToString(out.ETag), began.Add(s.c.Lease)
	}
	return err
}

// seen is a lock object as it was found.
type seen struct {
	lockText
	etag string
	age  time.Duration // since it was written, by the server's clock
}

// look reads the lock object. A missing one is fs.ErrNotExist.
func (l *heldLock) look(ctx context.Context) (f seen, err error) {
	s := l.s
	err = s.do(ctx, "lock", l.name, func() error {
		out, err := s.client.GetObject(ctx, &awss3.GetObjectInput{Bucket: &s.bucket, Key: s.key(l.name), RequestPayer: s.payer()}, s.patient)
		if err != nil {
			return err
		}
		defer out.Body.Close()
		data, err := io.ReadAll(io.LimitReader(out.Body, maxLock))
		if err != nil {
			return err
		}
		f = seen{etag: aws.ToString(out.ETag)}
		// What is no lock of ours, as an object that somebody has put there, is held by
		// nobody knows whom, for ever.
		if json.Unmarshal(data, &f.lockText) != nil || f.LeaseSeconds <= 0 {
			f.lockText = lockText{}
		}
		if now, ok := awsmiddleware.GetServerTime(out.ResultMetadata); ok && out.LastModified != nil {
			f.age = now.Sub(*out.LastModified)
		}
		return nil
	})
	return f, err
}

// patient is for reads that are tried again here. Their bodies are read outside of the
// request, so an attempt has no time of its own.
func (s *Store) patient(*awss3.Options) {}

// take makes the lock object ours, or fails with ErrLocked.
func (l *heldLock) take(ctx context.Context) error {
	const tries = 8
	condition := "" // that there is none
	for range tries {
		err := l.put(ctx, "lock", condition)
		if err == nil {
			return nil
		}
		if !refused(err) && !(condition != "" && errors.Is(err, fs.ErrNotExist)) {
			return err
		}
		condition = ""
		f, err := l.look(ctx)
		if errors.Is(err, fs.ErrNotExist) && codeOf(err) != "NoSuchBucket" {
			continue // freed meanwhile
		}
		if err != nil {
			return err
		}
		lease := time.Duration(f.LeaseSeconds * float64(time.Second))
		switch {
		case f.ID == l.text.ID:
			// The answer to our own request got lost.
			l.etag, l.until = f.etag, time.Now().Add(-f.age-grace).Add(l.s.c.Lease)
			return nil
		case lease <= 0:
			return fmt.Errorf("lock %s: %w: by an object that is no lock of ours; remove it if it is not needed", l.s.path(l.name), store.ErrLocked)
		case f.age <= lease+grace:
			return fmt.Errorf("lock %s: %w: held by %q; wait for it to end, or stop it; if it was killed, its lock ends within %v",
				l.s.path(l.name), store.ErrLocked, f.Owner, (lease + grace - f.age).Round(time.Second))
		}
		condition = f.etag
	}
	return fmt.Errorf("lock %s: %w: taken and freed by others %d times meanwhile", l.s.path(l.name), store.ErrLocked, tries)
}

// probe makes sure that the server honours conditions: a second object of the name is
// to be refused.
func (l *heldLock) probe(ctx context.Context) error {
	mine, until := l.etag, l.until
	err := l.put(ctx, "lock", "")
	if refused(err) {
		l.etag, l.until = mine, until
		l.s.conditional.Store(true)
		return nil
	}
	if err == nil {
		err = fmt.Errorf("lock %s: %w: the server ignores conditions of writes (If-None-Match), so locks would not hold; with SHARDIFY_S3_NO_LOCKS=1 none are taken: make sure that only one process writes",
			l.s.path(l.name), errors.ErrUnsupported)
	}
	return errors.Join(err, l.s.Remove(context.WithoutCancel(ctx), l.name))
}

// renew renews the lock until ctx ends or the lock is lost.
func (l *heldLock) renew(ctx context.Context) {
	defer close(l.done)
	tick := time.NewTicker(l.s.c.Lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		l.text.Renewed++
		switch err := l.put(ctx, "renew the lock", l.etag); {
		case err == nil || ctx.Err() != nil:
		case refused(err), errors.Is(err, fs.ErrNotExist):
			// Perhaps by ourselves, and the answer got lost.
			f, e := l.look(ctx)
			switch {
			case e == nil && f.ID == l.text.ID:
				l.etag = f.etag
			case e == nil:
				l.lost = fmt.Errorf("lock %s: %w: by %q: this process could not renew it in time", l.s.path(l.name), store.ErrLocked, f.Owner)
				return
			case errors.Is(e, fs.ErrNotExist):
				return // removed, as pack does with its folder at the end
			}
		}
		// Other errors: the next renewal may do, there are three in a lease.
	}
}

// unlock ends renewing and removes the lock object.
func (l *heldLock) unlock() error {
	l.stop()
	<-l.done
	if l.lost != nil {
		return l.lost
	}
	s := l.s
	ctx, cancel := context.WithTimeout(context.Background(), cleanup)
	defer cancel()
	remove := func(condition *string) error {
		in := awss3.DeleteObjectInput{Bucket: &s.bucket, Key: s.key(l.name), IfMatch: condition, RequestPayer: s.payer()}
		err := s.do(ctx, "unlock", l.name, func() error {
			_, err := s.client.DeleteObject(ctx, &in, s.limited)
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	err := remove(&l.etag)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errors.ErrUnsupported) || statusOf(err) == http.StatusNotImplemented:
		// A server without conditional removal. Within the lease nobody can have
		// taken the lock; later it is left to end by itself.
		if time.Now().Before(l.until) {
			return remove(nil)
		}
		return nil
	case refused(err):
		f, e := l.look(ctx)
		switch {
		case errors.Is(e, fs.ErrNotExist):
			return nil
		case e != nil:
			return e
		case f.ID == l.text.ID: // a renewal that was under way
			return remove(&f.etag)
		case time.Now().Before(l.until):
			// Within the lease nobody can have taken it from us: it was removed, the
			// answer to that got lost, and by now it is another's.
			return nil
		}
		return fmt.Errorf("lock %s: %w: by %q: this process could not renew it in time", s.path(l.name), store.ErrLocked, f.Owner)
	}
	return err
}
