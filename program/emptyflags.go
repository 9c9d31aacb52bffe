package program

import (
	"fmt"

	"github.com/spf13/cobra"
)

// fullFlags are those that are not empty where they are set. What a message holds may be: a key, data.
var fullFlags = []string{"config", "consumer", "brokers", "topic", "url", "creds", "subject", "to", "value-file",
	"handler", "class", "since", "until", "origin", "state", // of dlq
	"group", "stream", "durable", // of lag
	"listen", "http", "scaler", "scaler-http", "tls-cert", "tls-key", "processes", // of scaler
	"address", "kafka", "file"}

// emptyFlags are flags that are set to nothing, as by a script whose variable is not. What stands for none is another thing than
// what somebody meant: --class "$CLASS" would choose all letters, and purge would delete them; --url "$URL" would ask the server
// on this machine; --tls-cert "$CERT" and --tls-key "$KEY" would serve without TLS.
func emptyFlags(cmd *cobra.Command) (errs []error) {
	for _, name := range fullFlags {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && (f.Value.String() == "" || f.Value.String() == "[]") {
			errs = append(errs, fmt.Errorf("--%s is empty", name))
		}
	}
	return errs
}
