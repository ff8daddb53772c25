package inventory

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
)

// conn is a connection that keeps the statements it compiled until it is closed:
// compiling one takes longer than executing it, and a command asks for the same
// few again and again, each time in a transaction of its own. One that is in use
// is compiled once more for whoever asks for it meanwhile. Used by one goroutine
// at a time, as database/sql promises.
type conn struct {
	driverConn
	idle map[string]driver.Stmt
}

// driverConn is what the driver's connections can do. What runs a text at once
// is not in it, so that database/sql goes by way of PrepareContext.
type driverConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

// keepStatements returns c, whose statements are kept where it can do what that needs.
func keepStatements(c driver.Conn) driver.Conn {
	d, ok := c.(driverConn)
	if !ok {
		return c
	}
	return &conn{driverConn: d, idle: map[string]driver.Stmt{}}
}

// kept reports whether a text is asked for again: what sets a database up, or
// makes its tables, is not.
func kept(query string) bool {
	word, _, _ := strings.Cut(query, " ")
	return word == "SELECT" || word == "INSERT" || word == "UPDATE" || word == "DELETE"
}

func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if s := c.idle[query]; s != nil {
		delete(c.idle, query)
		return &statement{s.(driverStmt), c, query}, nil
	}
	s, err := c.driverConn.PrepareContext(ctx, query)
	if err != nil || !kept(query) {
		return s, err
	}
	if d, ok := s.(driverStmt); ok {
		return &statement{d, c, query}, nil
	}
	return s, nil
}

// Close ends the statements first: with one left the database stays open.
func (c *conn) Close() error {
	var errs []error
	for q, s := range c.idle {
		errs = append(errs, s.Close())
		delete(c.idle, q)
	}
	c.idle = nil
	return errors.Join(append(errs, c.driverConn.Close())...)
}

type driverStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// statement goes back to its connection when it is closed. The driver resets one
// after each use.
type statement struct {
	driverStmt
	c     *conn
	query string
}

func (s *statement) Close() error {
	d := s.driverStmt
	if d == nil {
		return nil
	}
	s.driverStmt = nil
	if s.c.idle == nil || s.c.idle[s.query] != nil {
		return d.Close()
	}
	s.c.idle[s.query] = d
	return nil
}
