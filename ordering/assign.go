package ordering

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"
)

// Assign returns for each of the lanes 0 to lanes-1 the member that should own it. Every replica that knows the same
// members computes the same answer, whatever their order, so no leader is needed. It is rendezvous hashing with a
// bounded load: no member gets more than one lane more than another, and a member that joins or leaves moves few
// lanes between the others. Without members the result is a slice of empty names.
func Assign(lanes int, members []string) []string {
	owners := make([]string, lanes)
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	if len(members) == 0 {
		return owners
	}
	load := make(map[string]int, len(members))
	room := lanes % len(members) // how many members may take one lane above the even share
	for lane := range owners {
		for _, m := range byScore(lane, members) {
			even := lanes / len(members)
			if load[m] == even && room > 0 {
				room--
			} else if load[m] >= even {
				continue
			}
			load[m]++
			owners[lane] = m
			break
		}
	}
	return owners
}

// byScore sorts the members by how well they fit the lane, best first.
func byScore(lane int, members []string) []string {
	score := make(map[string]uint64, len(members))
	for _, m := range members {
		h := fnv.New64a()
		_, _ = h.Write([]byte(strconv.Itoa(lane) + "/" + m))
		score[m] = mix(h.Sum64())
	}
	return slices.SortedFunc(slices.Values(members), func(a, b string) int { return cmp.Compare(score[b], score[a]) })
}

// mix finishes a hash so that all its bits depend on all input bits (the finaliser of MurmurHash3): FNV alone orders
// members much the same for every lane.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
