//go:build unix

package inbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// A postgres is a server of PostgreSQL on a socket in a folder of its own.
type postgres struct {
	dir string
	cmd *exec.Cmd
	log bytes.Buffer
}

// programs finds initdb and postgres, as Debian and others install them.
func programs() (initdb, server string, err error) {
	var dirs []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin"} {
		found, _ := filepath.Glob(pattern)
		dirs = append(dirs, found...)
	}
	for i := len(dirs) - 1; i >= 0; i-- { // the newest
		initdb, server = filepath.Join(dirs[i], "initdb"), filepath.Join(dirs[i], "postgres")
		if _, err := os.Stat(initdb); err == nil {
			return initdb, server, nil
		}
	}
	if initdb, err = exec.LookPath("initdb"); err != nil {
		return "", "", err
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return "", "", err
	}
	server = filepath.Join(filepath.Dir(initdb), "postgres")
	_, err = os.Stat(server)
	return initdb, server, err
}

// someone is who runs the server: it refuses root.
func someone() (*syscall.SysProcAttr, int, int, error) {
	if os.Getuid() != 0 {
		return &syscall.SysProcAttr{}, os.Getuid(), os.Getgid(), nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, uid, gid, nil
	}
	return nil, 0, 0, errors.New("there is neither a user postgres nor nobody, and PostgreSQL refuses root")
}

// One server serves all tests of the process: each has a database of its own.
var postgresServer = sync.OnceValues(startPostgres)

func startPostgres() (*postgres, error) {
	initdb, program, err := programs()
	if err != nil {
		return nil, fmt.Errorf("no PostgreSQL: %w", err)
	}
	attr, uid, gid, err := someone()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pg") // short: the name of a socket has 107 bytes at most
	if err != nil {
		return nil, err
	}
	p := &postgres{dir: dir}
	if err := errors.Join(os.Chown(dir, uid, gid), os.Chmod(dir, 0o755)); err != nil {
		return nil, err
	}
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.SysProcAttr = dir, attr
		cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME="+dir)
		cmd.Stdout, cmd.Stderr = &p.log, &p.log
		return cmd
	}
	data := filepath.Join(dir, "data")
	if err := run(initdb, "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--no-sync").Run(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, p.log.String())
	}
	p.cmd = run(program, "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200",
		"-c", "shared_buffers=32MB")
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	db, err := sql.Open("pgx", p.dsn("postgres"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if err = db.PingContext(context.Background()); err == nil {
			return p, nil
		}
		if time.Now().After(end) {
			p.stop()
			return nil, fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, p.log.String())
		}
	}
}

func (p *postgres) dsn(database string) string {
	return fmt.Sprintf("host=%s user=test dbname=%s sslmode=disable", p.dir, database)
}

// stop ends the server and removes what it had.
func (p *postgres) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGINT) // fast
	_ = p.cmd.Wait()
	_ = os.RemoveAll(p.dir)
}

// newPostgres makes an empty database, and returns what opens it.
func newPostgres(t testing.TB) (driver, dsn string) {
	p, err := postgresServer()
	if err != nil {
		if os.Getenv("LONGSHORE_REAL") != "" {
			t.Fatalf("LONGSHORE_REAL is set, and %v", err)
		}
		t.Skipf("NO REAL DATABASE: %v", err)
	}
	db, err := sql.Open("pgx", p.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	name := "t" + strings.ToLower(unique())
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return "pgx", p.dsn(name)
}
