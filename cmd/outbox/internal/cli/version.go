package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			version, revision := "unknown", ""
			if build, ok := debug.ReadBuildInfo(); ok {
				version = build.Main.Version
				for _, setting := range build.Settings {
					if setting.Key == "vcs.revision" {
						revision = " " + setting.Value
					}
				}
			}
			p.printf("outbox %s%s (%s, %s/%s)\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
}
