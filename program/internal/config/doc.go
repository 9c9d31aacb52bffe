// Package config reads the configuration file of the program.
//
// Load parses the YAML, fills in ${NAME} and ${NAME:-default} from the environment, decodes strictly, reads the files that hold
// secrets, and checks what contradicts itself. It goes on after each mistake: a Document has all of them, each with its line and
// path.
//
// What is wrong is found by parts, each over what it is about. All of them write into one report:
//
//	report         where the file says what, and what is wrong with it (finding.go)
//	place          a section of it: keys are those below
//	tree           the YAML, with the environment filled in, and where each value stands
//	secrets        what nobody else should read, and the files that hold it
//	consumerCheck  one consumer's section; sectionCheck: that of one source
//	Document       the file as a whole: what consumers say of each other
package config
