// Package config reads the configuration file of the program.
//
// Load parses the YAML, fills in ${NAME} and ${NAME:-default} from the environment, decodes strictly, reads the files that hold
// secrets, and checks what contradicts itself. It goes on after each mistake: a Document has all of them, each with its line and
// path.
package config
