package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is what a process and all below it use, from Linux's /proc. Elsewhere nothing is
// known, and all of it is 0.
type usage struct {
	// cpu is the time of processors, in user and system mode, of those that run and
	// those that were waited for.
	cpu time.Duration
	// rss is their resident memory, in which pages that several share are counted for
	// each; pss counts a page once, in parts. In bytes.
	rss, pss int64
	// processes is how many there are.
	processes int
}

// treeUsage looks at a process and all below it. Some that end meanwhile are left out.
// Without pss, which takes milliseconds for a large process, that is 0.
func treeUsage(pid int, pss bool) (usage, error) {
	var u usage
	left := []int{pid}
	for len(left) > 0 {
		pid := left[len(left)-1]
		left = left[:len(left)-1]
		dir := fmt.Sprintf("/proc/%d/", pid)
		if err := u.add(dir, pss); errors.Is(err, errEnded) {
			continue
		} else if err != nil {
			return u, err
		}
		threads, err := os.ReadDir(dir + "task")
		if err != nil {
			continue // it has ended
		}
		for _, t := range threads {
			children, err := os.ReadFile(dir + "task/" + t.Name() + "/children")
			if err != nil {
				continue // the thread has ended
			}
			for child := range strings.FieldsSeq(string(children)) {
				n, err := strconv.Atoi(child)
				if err != nil {
					return u, err
				}
				left = append(left, n)
			}
		}
	}
	return u, nil
}

var errEnded = errors.New("the process has ended")

// ended makes errEnded of what reading a file of a process gives that has ended.
func ended(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return errEnded
	}
	return err
}

// tick is the unit of times in /proc, USER_HZ, which is the same for all of Linux.
const tick = 10 * time.Millisecond

func (u *usage) add(dir string, pss bool) error {
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return ended(err)
	}
	// The name is in parentheses and may hold any others.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 22 {
		return fmt.Errorf("%sstat: %q", dir, stat)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return errEnded
	}
	u.processes++
	var n [5]int64
	for i, at := range []int{11, 12, 13, 14, 21} { // utime, stime, cutime, cstime, rss
		if n[i], err = strconv.ParseInt(fields[at], 10, 64); err != nil {
			return fmt.Errorf("%sstat: %w", dir, err)
		}
	}
	u.cpu += time.Duration(n[0]+n[1]+n[2]+n[3]) * tick
	u.rss += n[4] * int64(os.Getpagesize())
	if !pss {
		return nil
	}
	rollup, err := os.ReadFile(dir + "smaps_rollup")
	if err != nil {
		return ended(err)
	}
	for line := range strings.Lines(string(rollup)) {
		if value, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return fmt.Errorf("%ssmaps_rollup: %w", dir, err)
			}
			u.pss += kb << 10
		}
	}
	return nil
}
