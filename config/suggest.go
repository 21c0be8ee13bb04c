package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// suggest says what an unknown key may have meant: a key of the same level that is spelt like it or means the same, the
// key itself at another level, keys that begin with the same word; or else which keys there are. When there is only one
// such key, meant is its path.
func suggest(key, path string, s, root *shape) (hint, meant string) {
	near := nearest(key, s.keys())
	for _, other := range alsoCalled(key) {
		if _, ok := s.field(other); ok && near == "" {
			near = other
		}
	}
	if near != "" {
		return fmt.Sprintf("did you mean %q?", near), join(path, near)
	}
	found := places(key, s)
	for i, below := range found {
		found[i] = join(path, below)
	}
	if len(found) == 0 && root != nil {
		found = slices.DeleteFunc(places(key, root), func(place string) bool { return ofAnotherBlock(path, place) })
	}
	if len(found) > 0 {
		meant = found[0]
		if len(found) > 1 {
			meant = ""
		}
		return "did you mean " + either(quoted(found)) + "?", meant
	}
	word, _, _ := strings.Cut(key, "_")
	akin := slices.DeleteFunc(s.keys(), func(k string) bool {
		first, _, _ := strings.Cut(k, "_")
		return first != word
	})
	if len(akin) > 0 {
		return "did you mean " + either(quoted(akin)) + "?", ""
	}
	return "known are " + strings.Join(s.keys(), ", "), ""
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strconv.Quote(name)
	}
	return out
}

// alsoCalled returns the keys that have the meaning of a name that other programs use.
func alsoCalled(name string) []string {
	switch name {
	case "url", "uri", "address", "addresses", "host", "hosts", "servers", "bootstrap_servers":
		return []string{"dsn", "brokers", "addresses", "endpoint"}
	case "file", "filename", "database":
		return []string{"path"}
	case "topic", "topics", "pattern":
		return []string{"match"}
	case "user":
		return []string{"username"}
	default:
		return nil
	}
}

// ofAnotherBlock says that a key which stands in the section of a store or broker cannot be one of another's, or of what
// has nothing to do with either.
func ofAnotherBlock(path, place string) bool {
	steps := strings.Split(path, ".")
	if steps[0] != storeKey && steps[0] != brokerKey && steps[0] != brokersKey {
		return false
	}
	block := strings.Join(steps[:min(len(steps), 2)], ".") + "."
	return !strings.HasPrefix(place, block) && !strings.HasPrefix(place, dispatcherKey+".")
}

// places are the paths below at which a key stands. Those in items of lists count only when there are no others.
func places(key string, s *shape) []string {
	var plain, inItems []string
	s.leaves(nil, func(path []string) {
		i := slices.Index(path, key)
		if i < 0 || slices.Contains(path[:i], "*") {
			return
		}
		found, into := strings.Join(path[:i+1], "."), &plain
		if slices.Contains(path[:i], "0") {
			found, into = strings.ReplaceAll(found, ".0", "[]"), &inItems
		}
		if !slices.Contains(*into, found) {
			*into = append(*into, found)
		}
	})
	if len(plain) > 0 {
		return plain
	}
	return inItems
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
