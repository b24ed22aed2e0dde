// Package nearest finds the name that somebody probably meant.
package nearest

import "strings"

// Name returns that of names which is most like name, and "" where none is like
// it: at most a third of its letters, and always one, may be wrong, missing, too
// many, or swapped with its neighbour. Upper and lower case are the same.
func Name(name string, names []string) string {
	limit, found := max(1, len(name)/3)+1, ""
	for _, n := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(n), limit); d < limit {
			limit, found = d, n
		}
	}
	return found
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours between a and b (optimal string alignment), or limit where it is not
// below that.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range old {
		old[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(old[j]+1, row[j-1]+1, old[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > limit {
			return limit
		}
		older, old, row = old, row, older
	}
	return min(old[len(b)], limit)
}
