package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestStatistics(t *testing.T) {
	t.Parallel()
	values := []float64{5, 1, 4, 2, 3}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.99: 4, 1: 5} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := medianBy(values, func(v float64) float64 { return -v }); got != 3 {
		t.Errorf("the median is %v", got)
	}
	if values[0] != 5 {
		t.Error("the values were sorted in place")
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	chosen := func(args ...string) (names []string) {
		o, err := parse(append([]string{"-postgres", "postgres://h/d"}, args...))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range scenarios() {
			if o.chosen(s) {
				names = append(names, s.name)
			}
		}
		return names
	}
	if names := chosen(); slices.Contains(names, "debezium") || !slices.Contains(names, "kafka") {
		t.Errorf("the quick suite is %v", names)
	}
	if names := chosen("-debezium"); !slices.Contains(names, "debezium") || slices.Contains(names, "batches") {
		t.Errorf("the quick suite with Debezium is %v", names)
	}
	if names := chosen("-suite", "full"); len(names) != len(scenarios()) {
		t.Errorf("the full suite is %v", names)
	}
	if names := chosen("-only", "sqs,debezium"); !slices.Equal(names, []string{"debezium", "sqs"}) {
		t.Errorf("two scenarios are %v", names)
	}
	for _, args := range [][]string{{"-suite", "huge"}, {"-only", "kafka,nosuch"}} {
		_, err := parse(append([]string{"-postgres", "postgres://h/d"}, args...))
		if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(args[1], "kafka,")) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestCPUOfAnotherProcess(t *testing.T) {
	t.Parallel()
	if memoryOf(os.Getpid()) == 0 {
		t.Error("this process has no memory")
	}
	if cpuOf(-1) != 0 || memoryOf(-1) != 0 {
		t.Error("a process that does not exist has used something")
	}
}
