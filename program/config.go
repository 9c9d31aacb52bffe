package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/longshoremq/longshore/program/internal/config"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
)

func newConfig(p Parts) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file, show what it comes to, or print an example",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheck(p), newConfigShow(p), newConfigExample())
	return cmd
}

// fileOf gives a command of one FILE the flag by which all other commands name theirs, and returns which is meant.
func fileOf(cmd *cobra.Command) func(args []string) string {
	var file string
	cmd.Flags().StringVarP(&file, "config", "c", "", "FILE, as the other commands name it")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	cmd.ValidArgsFunction = completeFile
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case file == "":
			return oneArg(cmd, args)
		case len(args) > 0:
			return usageError{fmt.Errorf("want one FILE, --config %s and %s are given", file, strings.Join(args, " "))}
		}
		return nil
	}
	return func(args []string) string {
		if file != "" {
			return file
		}
		return args[0]
	}
}

func newConfigCheck(p Parts) *cobra.Command {
	var file func([]string) string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file without connecting to anything",
		Long: "Reads a configuration file as run does, with the environment of this process, and makes all that it describes, but " +
			"connects to nothing.\n" +
			"All mistakes are named at once, with line and path; the exit code is then 2. FILE may be - for standard input.",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := assembleNamed(cmd, file(args), p)
			if err != nil {
				return usageError{err}
			}
			doc := a.doc
			for _, w := range doc.Warnings {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s:%d: %s: warning: %s\n", doc.Name, w.Line, w.Path, w.Problem)
			}
			names := make([]string, len(a.members))
			for i, m := range a.members {
				names[i] = m.name
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: ok; consumers: %s\n", doc.Name, strings.Join(names, ", "))
			return nil
		},
	}
	file = fileOf(cmd)
	return cmd
}

// assembleNamed makes all that a file describes, and connects to nothing. Its error has all that is wrong.
func assembleNamed(cmd *cobra.Command, name string, p Parts) (*assembly, error) {
	doc, err := loadNamed(cmd.Context(), name, cmd.InOrStdin(), p.adapters())
	if err != nil {
		return nil, err
	}
	a := assemble(doc, p, zerolog.Nop(), nil, context.CancelCauseFunc(func(error) {}))
	return a, errors.Join(doc.Err(), a.close())
}

func completeFile(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// loadNamed is loadFile, for standard input, too: -.
func loadNamed(ctx context.Context, name string, stdin io.Reader, adapters []string) (*config.Document, error) {
	if name != "-" {
		return loadFile(ctx, name, adapters)
	}
	return until(ctx, func() (*config.Document, error) {
		return config.LoadFrom("standard input", stdin, os.LookupEnv, adapters...)
	})
}

func newConfigExample() *cobra.Command {
	var broker string
	cmd := &cobra.Command{
		Use:   "example",
		Short: "Print a complete, commented configuration file that run accepts as it is",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, ok := config.Examples[broker]
			if !ok {
				return usageError{fmt.Errorf("--broker is %q, there is an example for: kafka, nats", broker)}
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().StringVar(&broker, "broker", "nats", "broker to read from: kafka, nats")
	return cmd
}
