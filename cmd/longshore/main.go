// Command longshore runs background event processing from the command line. All of it is in package program, so that a program
// with handlers of its own has the same commands.
//
// Exit codes: 0 done, 1 failed at work, 2 wrong use or configuration, 130 and 143 stopped by force (a second SIGINT or SIGTERM).
package main

import (
	"github.com/longshoremq/longshore/handlers"
	"github.com/longshoremq/longshore/program"
)

func main() { program.Main(handlers.Default()) }
