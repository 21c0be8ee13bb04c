package main

import (
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progressBar shows how many events have arrived, when a person is looking.
type progressBar struct{ bar *progressbar.ProgressBar }

func newProgressBar(terminal *os.File, events int) progressBar {
	if !term.IsTerminal(int(terminal.Fd())) {
		return progressBar{}
	}
	return progressBar{bar: progressbar.NewOptions(events,
		progressbar.OptionSetWriter(terminal),
		progressbar.OptionSetDescription("delivered"),
		progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(false),
		progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)}
}

// show and close ignore errors: a bar that cannot be drawn is no reason to stop.
func (p progressBar) show(events int) {
	if p.bar != nil {
		_ = p.bar.Set(events)
	}
}

func (p progressBar) close() {
	if p.bar != nil {
		_ = p.bar.Finish()
		_ = p.bar.Exit()
	}
}
