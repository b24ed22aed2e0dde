package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"

	"github.com/minio/crc64nvme"
)

const (
	// page is what each checksum is of, and the unit in which room is counted.
	page     = 4096
	magic    = "SHBLOCK1"
	checksAt = 48
	keySize  = 16 // bytes of the SHA-256 that name a file
)

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// block is a block of one version of an object.
type block struct {
	number      int64
	start, size int64 // of its bytes in the object
	sum         [sha256.Size]byte
}

// part is what is wanted of a block: p, from its byte at on.
type part struct {
	block
	p  []byte
	at int64
}

// part returns the part of p, which begins at off of the object, that lies in the
// block called number.
func (o *object) part(p []byte, off, number int64) part {
	x := part{block: block{number: number, start: number * o.s.block}}
	x.size = min(o.s.block, o.info.Size-x.start)
	x.at = off - x.start
	x.p = p[:min(int64(len(p)), x.size-x.at)]
	x.sum = sha256.Sum256(fmt.Appendf(nil, "%s %d %d", o.identity, number, o.s.block))
	return x
}

// block is the path of the block's file.
func (f *folder) block(b block) string {
	name := hex.EncodeToString(b.sum[:keySize])
	return f.at(blocksDir, name[:2], name)
}

// isBlock says that a file in the folder of a set has the name of a block.
func isBlock(set, name string) bool {
	sum, err := hex.DecodeString(name)
	return err == nil && len(sum) == keySize && name[:2] == set
}

func (b *block) set() int { return int(b.sum[0]) }

// checks is the length of what stands before the block in its file.
func (b *block) checks() int64 { return checksAt + 8*(roundUp(b.size, page)/page) + 8 }

// head is where the block begins in its file.
func (b *block) head() int64 { return roundUp(b.checks(), page) }

// length is the file's.
func (b *block) length() int64 { return b.head() + b.size }

// room is what the file takes on the disk.
func (b *block) room() int64 { return roundUp(b.length(), page) }

// header is what stands before data in its file.
func (b *block) header(data []byte) []byte {
	h := make([]byte, 0, b.checks())
	h = append(h, magic...)
	h = append(h, b.sum[:]...)
	h = binary.LittleEndian.AppendUint64(h, uint64(b.size))
	for len(data) > 0 {
		n := min(page, len(data))
		h = binary.LittleEndian.AppendUint64(h, crc64nvme.Checksum(data[:n]))
		data = data[n:]
	}
	return binary.LittleEndian.AppendUint64(h, crc64nvme.Checksum(h))
}

// read fills x.p from the block's file, if all that it needs is sound. blank: the
// file has not been filled.
func (x *part) read(file *os.File) (sound, blank bool) {
	from, to := x.at/page*page, min(roundUp(x.at+int64(len(x.p)), page), x.size)
	buffer := getBuffer(x.checks() + to - from)
	defer buffers.Put(buffer)
	h, data := (*buffer)[:x.checks()], (*buffer)[x.checks():]
	if !full(file, h, 0) {
		return false, false
	}
	if bytes.Equal(h[:len(magic)], make([]byte, len(magic))) {
		return false, true
	}
	end := len(h) - 8
	if string(h[:len(magic)]) != magic || [sha256.Size]byte(h[len(magic):]) != x.sum ||
		binary.LittleEndian.Uint64(h[checksAt-8:]) != uint64(x.size) ||
		binary.LittleEndian.Uint64(h[end:]) != crc64nvme.Checksum(h[:end]) || !full(file, data, x.head()+from) {
		return false, false
	}
	checks := h[checksAt+8*from/page:]
	for rest := data; len(rest) > 0; checks = checks[8:] {
		n := min(page, len(rest))
		if crc64nvme.Checksum(rest[:n]) != binary.LittleEndian.Uint64(checks) {
			return false, false
		}
		rest = rest[n:]
	}
	copy(x.p, data[x.at-from:])
	return true, false
}
