package config

import (
	"fmt"
	"slices"
	"strings"
)

// suggest says what an unknown key may have meant: a key of the same level that is spelt like it, the key itself at
// another level, keys that begin with the same word; or else which keys there are.
func suggest(key string, s, root *shape) string {
	if near := nearest(key, s.keys()); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if root != nil {
		if other := elsewhere(key, root); other != "" {
			return fmt.Sprintf("did you mean %q?", other)
		}
	}
	word, _, _ := strings.Cut(key, "_")
	var akin []string
	for _, k := range s.keys() {
		if first, _, _ := strings.Cut(k, "_"); first == word {
			akin = append(akin, fmt.Sprintf("%q", k))
		}
	}
	if len(akin) > 0 {
		return "did you mean " + either(akin) + "?"
	}
	return "known are " + strings.Join(s.keys(), ", ")
}

// elsewhere looks for a key at every level, and returns the shortest path to it.
func elsewhere(key string, root *shape) string {
	best := ""
	root.leaves(nil, func(path []string) {
		for i, step := range path {
			if found := strings.Join(path[:i+1], "."); step == key && !slices.Contains(path[:i], "*") &&
				(best == "" || len(found) < len(best)) {
				best = found
			}
		}
	})
	return best
}

// nearest returns the candidate that is spelt most like the text, if one is near enough to be meant.
func nearest(text string, candidates []string) string {
	best, least := "", 1+max(1, len(text)/4)
	for _, c := range candidates {
		if d := distance(strings.ToLower(text), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance counts the letters to insert, drop, change or swap with their neighbour (optimal string alignment).
func distance(a, b string) int {
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range old {
		old[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(old[j]+1, row[j-1]+1, old[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
		older, old, row = old, row, older
	}
	return old[len(b)]
}
