// Command goreleaser reads .goreleaser.yml as goreleaser does: a key that it does not know, or of the wrong type, is an error.
// The whole program would also look whether git, docker and syft are there, and takes minutes to build.
package main

import (
	"fmt"
	"os"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

func main() {
	p, err := config.Load(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
		os.Exit(1)
	}
	if p.Version != 2 || len(p.Builds) == 0 || len(p.Archives) == 0 {
		fmt.Fprintf(os.Stderr, "%s: version %d with %d builds and %d archives, want version 2 and some of each\n", os.Args[1],
			p.Version, len(p.Builds), len(p.Archives))
		os.Exit(1)
	}
	fmt.Println("goreleaser: ok")
}
