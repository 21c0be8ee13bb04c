package main

import (
	"cmp"
	"slices"
)

// quantile of the values, which are at least one: 0.5 is the median.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(q*float64(len(sorted)-1))]
}

// medianBy is the item in the middle of at least one.
func medianBy[T any](items []T, by func(T) float64) T {
	sorted := slices.SortedFunc(slices.Values(items), func(a, b T) int { return cmp.Compare(by(a), by(b)) })
	return sorted[(len(sorted)-1)/2]
}
