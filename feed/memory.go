package feed

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
)

// memory is the server's, which it lends to passes: to each what its reader's configuration
// says that it may hold. A reader that has lent nothing keeps what its last pass had, for
// the next epoch, as long as no other needs it.
type memory struct {
	limit int64 // 0: none

	mu    sync.Mutex
	used  int64
	loans map[*loan]struct{}
}

// loan is what one reader has of it.
type loan struct {
	// who has it, for people, and what for.
	who, data string
	// each is what a pass of it may hold; trim frees what lies between two epochs.
	each int64
	trim func()

	passes int
	// closed: the reader is, or is about to be.
	closed bool
	// spare: the memory of a pass lies there for the next one.
	spare bool
	// left are bytes of batches that are held of passes that have ended.
	left int64
}

func (l *loan) bytes() int64 {
	n := int64(l.passes)*l.each + l.left
	if l.spare {
		n += l.each
	}
	return n
}

// start lends memory to a pass.
func (m *memory) start(l *loan) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case l.closed:
		return errorf(CodeNotFound, "the reader of %s is closed", l.data)
	case l.spare:
		l.spare = false
		l.passes++
		return nil
	}
	for other := range m.loans {
		if m.limit == 0 || m.used+l.each <= m.limit {
			break
		}
		if other.spare {
			other.spare = false
			m.used -= other.each
			other.trim()
		}
	}
	if m.limit > 0 && m.used+l.each > m.limit {
		return m.lentOut(l)
	}
	m.used += l.each
	l.passes++
	m.loans[l] = struct{}{}
	return nil
}

// lentOut says who has what.
func (m *memory) lentOut(l *loan) error {
	var others []string
	for other := range m.loans {
		if n := other.bytes(); n > 0 {
			others = append(others, fmt.Sprintf("%s has %s for %d passes of %s", other.who, bytesText(n), other.passes, other.data))
		}
	}
	slices.Sort(others)
	return errorf(CodeMemory, "a pass of this reader may hold %s, and of the server's %s only %s are left: %s; end passes and release batches that are no longer needed, set memory in the configuration to less, or start the server with more --memory",
		bytesText(l.each), bytesText(m.limit), bytesText(m.limit-m.used), strings.Join(others, ", "))
}

// end takes the memory of a pass back, but for so many bytes of batches that are held.
func (m *memory) end(l *loan, held int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.passes--
	if l.spare || l.closed {
		m.used -= l.each
	} else {
		l.spare = true
	}
	l.left += held
	m.used += held
	m.forget(l)
}

// back takes back what was held of a pass that had ended.
func (m *memory) back(l *loan, n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.left -= n
	m.used -= n
	m.forget(l)
}

// close takes back what lies between epochs, and lends no more to this reader.
func (m *memory) close(l *loan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.closed = true
	if l.spare {
		l.spare = false
		m.used -= l.each
	}
	m.forget(l)
}

// forget drops a loan that is nothing any more.
func (m *memory) forget(l *loan) {
	if l.bytes() == 0 {
		delete(m.loans, l)
	}
}

// bytesText is a number of bytes for people.
func bytesText(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }
