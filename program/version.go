package program

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// A version is what the Go toolchain wrote into the binary: revision, time and modified by go build in a git work tree, not by go
// run.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the main module, so not for a main function outside of longshore
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

const modulePath = "github.com/longshoremq/longshore"

func readVersion() version {
	v := version{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	if info.Main.Path != modulePath { // a main function of a user
		v.Version = "unknown"
		for _, d := range info.Deps {
			if d.Path == modulePath {
				v.Version = d.Version
			}
		}
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String is one line.
func (v version) String() string {
	s := fmt.Sprintf("longshore %s %s %s", v.Version, v.Go, v.Platform)
	if v.Revision != "" {
		s += fmt.Sprintf(", commit %s of %s", v.Revision, v.Time)
	}
	if v.Modified {
		s += ", modified"
	}
	return s
}

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the commit where the build knows it",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, out := readVersion(), cmd.OutOrStdout()
			if asJSON {
				return json.NewEncoder(out).Encode(v)
			}
			_, err := fmt.Fprintln(out, v)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return cmd
}
