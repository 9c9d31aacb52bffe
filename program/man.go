package program

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a folder",
		Long: "Writes a manual page for each command into a folder, which is made when it is not there. Read one with man -l, or " +
			"install them into man1.",
		Args: oneArg,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { // #nosec G301 -- everybody may read man pages
				return fmt.Errorf("making the folder: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // no date: the same program writes the same pages
			if err := doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "longshore", Manual: "longshore"},
				args[0]); err != nil {
				return fmt.Errorf("writing the manual pages: %w", err)
			}
			return nil
		},
	}
}
