package program

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestAdminPortIsTaken: the error names the key of the file.
func TestAdminPortIsTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir, at := t.TempDir(), l.Addr().String()
	writeFile(t, dir, "c.yaml", "admin: {listen: '"+at+"'}\nembedded: {dir: "+filepath.Join(dir, "data")+", port: "+freePort(t)+
		"}\n"+
		"consumers:\n  o: {source: {nats: {stream: O, subjects: [o], durable: d}}, routes: [{handler: log}]}\n")
	_, err = run(t.Context(), "run", "-c", filepath.Join(dir, "c.yaml"))
	if err == nil || !strings.Contains(err.Error(), at+": bind: address already in use; set admin.listen to another address") {
		t.Error(err)
	}
}
