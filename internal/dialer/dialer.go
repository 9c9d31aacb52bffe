// Package dialer lets the tests of whole systems choose how an adapter connects: over pipes in memory instead of sockets, which
// wait for real time, so that a test's virtual clock would stand still. It is internal: a program that uses longshore cannot set
// it, and finds no field for it.
package dialer

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"sync"
)

// A Func opens one connection, as net.Dialer's DialContext does. ctx ends when the attempt has had its time.
type Func = func(ctx context.Context, network, address string) (net.Conn, error)

// setters is how each type of connection is told, by reflect.Type: a func(*C, Func).
var setters sync.Map

// Accept makes known how a C, an adapter's Connection, is told its Func. It is for the adapter's init.
func Accept[C any](set func(conn *C, dial Func)) { setters.Store(reflect.TypeFor[C](), set) }

// Use makes whatever is built from conn connect by dial. It panics for a C of which no package said Accept.
func Use[C any](conn *C, dial Func) {
	set, ok := setters.Load(reflect.TypeFor[C]())
	if !ok {
		panic(fmt.Sprintf("dialer: no adapter accepts a Func for %T", *conn))
	}
	set.(func(*C, Func))(conn, dial)
}
