package policy

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// Checker is a value that says itself what is wrong with it, once all of its
// parts are read.
type Checker interface{ Check() error }

// PlaceError is a mistake at one path of what checks itself.
type PlaceError struct {
	Path string
	Why  string
}

// Error implements error.
func (e *PlaceError) Error() string { return e.Path + ": " + e.Why }

// Check implements Checker: it refuses what would grant a command. Nothing is
// denied of commands by default, so that such a line would have no effect.
func (d *Document) Check() error {
	for path, a := range map[string]*Authority{"base": d.Base, "request": d.Request} {
		if a != nil && len(a.Commands) > 0 {
			return &PlaceError{path + ".commands", grantsNoCommand}
		}
	}
	for _, who := range Delegatees {
		if c := d.Delegate[who]; c != nil && len(c.Commands) > 0 {
			return &PlaceError{"delegate." + string(who) + ".commands", grantsNoCommand}
		}
	}
	return nil
}

const grantsNoCommand = "commands are denied and never granted, so this would have no effect; tools.allow lifts tools.default, and deny.commands denies"

// Levels are levels per axis. An axis that is not there is not said.
type Levels map[task.Axis]int

// Check implements Checker.
func (l Levels) Check() error {
	for _, a := range task.Axes {
		if err := level(a, l[a]); err != nil {
			return err
		}
	}
	return nil
}

func level(a task.Axis, n int) error {
	if top := task.MaxLevel(a); top < 0 {
		return &WordError{string(a), wordsOf(task.Axes)}
	} else if n < 0 || n > top {
		return fmt.Errorf("levels of %s go from 0 to %d, not to %d", a, top, n)
	}
	return nil
}

func wordsOf[T ~string](l []T) []string {
	out := make([]string, len(l))
	for i, w := range l {
		out[i] = string(w)
	}
	return out
}

// Statements are values per characteristic.
type Statements map[task.Characteristic]Values

// Check implements Checker.
func (s Statements) Check() error {
	for _, c := range task.Characteristics {
		vs, said := s[c]
		if !said {
			continue
		}
		if len(vs) == 0 {
			return fmt.Errorf("%s has no value", c)
		}
		if len(vs) > 1 && c != task.MutableState {
			return fmt.Errorf("%s takes one value, not %d", c, len(vs))
		}
		for _, v := range vs {
			if err := value(c, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func value(c task.Characteristic, v string) error {
	if v != task.Unknown && !slices.Contains(c.Values(), v) {
		return fmt.Errorf("%s: %w", c, &WordError{v, append(slices.Clone(c.Values()), task.Unknown)})
	}
	return nil
}

// Check implements Checker.
func (s *Scope) Check() error { return scope(s.Repo, s.Ref, s.Expires, s.Reason) }

func scope(repo RepoPattern, ref string, expires Date, reason string) error {
	switch {
	case repo == "":
		return errors.New("it names no repo")
	case ref != "" && !strings.HasPrefix(ref, "refs/"):
		return fmt.Errorf("the ref %q: write its full name, such as refs/heads/main", clip(ref))
	case expires.IsZero():
		return errors.New("it says no day on which it ends: expires")
	}
	return because(reason)
}

func because(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return errors.New("it gives no reason")
	}
	return nil
}

// Check implements Checker.
func (l *Lowering) Check() error {
	switch {
	case l.Characteristic.Values() == nil:
		return fmt.Errorf("characteristic: %w", &WordError{string(l.Characteristic), wordsOf(task.Characteristics)})
	case l.Characteristic == task.CodeTrust:
		return errors.New("code_trust is not lowered here: write it in trust")
	case l.Characteristic == task.Concurrency:
		return errors.New("concurrency is computed from what runs, and nobody lowers it")
	case l.Value == task.Unknown:
		return errors.New("unknown lowers nothing")
	}
	if err := value(l.Characteristic, l.Value); err != nil {
		return err
	}
	return scope(l.Repo, l.Ref, l.Expires, l.Reason)
}

// Check implements Checker.
func (c *TrustedCheck) Check() error {
	if len(c.Argv) == 0 {
		return errors.New("it has no argv")
	}
	if c.Executes != "none" && c.Executes != "checks" {
		return fmt.Errorf("executes: %w", &WordError{c.Executes, []string{"none", "checks"}})
	}
	if b, err := hex.DecodeString(c.SHA256); c.SHA256 != "" && (err != nil || len(b) != 32) {
		return errors.New("sha256 is 64 hex digits")
	}
	return nil
}

// Check implements Checker.
func (s *Suppression) Check() error {
	if s.Rule == "" {
		return errors.New("it names no rule")
	}
	return because(s.Reason)
}

// Check implements Checker.
func (r *AcceptanceRules) Check() error {
	for _, a := range r.Delegable {
		if err := level(a, 0); err != nil {
			return fmt.Errorf("delegable: %w", err)
		}
	}
	return nil
}

// Check implements Checker.
func (s *Standing) Check() error {
	if err := level(s.Axis, s.Level); err != nil {
		return err
	}
	return scope(s.Repo, s.Ref, s.Expires, s.Reason)
}

// Check implements Checker.
func (h *Hook) Check() error {
	switch {
	case (len(h.Exec) > 0) == (h.HTTP != ""):
		return errors.New("it has one of the two, exec or http")
	case len(h.Exec) > 0 && !path.IsAbs(h.Exec[0]):
		return fmt.Errorf("the program %q is not an absolute path", clip(h.Exec[0]))
	case time.Duration(h.Timeout) > time.Minute:
		return errors.New("a decision that takes longer than 1m holds everything up: shorten timeout")
	case h.HTTP == "":
		return nil
	}
	u, err := url.Parse(h.HTTP)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("http: %q is no URL such as https://policy.example.com/decide", clip(h.HTTP))
	}
	if a, aerr := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && (aerr != nil || !a.IsLoopback()) {
		return errors.New("http: without TLS anybody on the way answers; only 127.0.0.1 and ::1 may be asked so")
	}
	return nil
}

// Check implements Checker.
func (r *ToolRules) Check() error {
	if r.Default != "" && !isVerdict(r.Default) {
		return fmt.Errorf("default: %w", &WordError{string(r.Default), wordsOf(verdicts)})
	}
	return nil
}

// verdicts, loosest first.
var verdicts = []task.Verdict{task.VerdictAllow, task.VerdictAsk, task.VerdictDeny}

func isVerdict(v task.Verdict) bool { return slices.Contains(verdicts, v) }

// Check implements Checker.
func (r *CallRule) Check() error {
	if r.Tool == "" && len(r.Command) == 0 && r.Path == "" && r.Host == "" && len(r.Methods) == 0 && r.Credential == "" {
		return errors.New(`it names nothing; every call is tool: "*"`)
	}
	return calledTool(r)
}

// Check implements Checker.
func (b *BackendRules) Check() error {
	for _, l := range [][]string{b.Prefer, b.Allowed} {
		for i, n := range l {
			name := strings.TrimPrefix(n, "oci:")
			if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
				return fmt.Errorf("%q is no name of a backend", clip(n))
			}
			if slices.Contains(l[:i], n) {
				return fmt.Errorf("%s stands there twice", n)
			}
		}
	}
	return nil
}

var (
	drivers    = []string{"native", "builtin", "compose", "shared", "external"}
	conditions = []string{"started", "healthy", "completed"}
)

// Check implements Checker.
func (s *Service) Check() error {
	switch {
	case !slices.Contains(drivers, s.Driver):
		return fmt.Errorf("driver %w", &WordError{s.Driver, drivers})
	case s.Driver == "compose" && s.File == "":
		return errors.New("compose needs a file")
	case s.Driver != "compose" && (s.File != "" || s.Service != ""):
		return errors.New("file and service belong to the driver compose")
	}
	for _, f := range []string{s.File, s.Seed} {
		if f != "" && (path.IsAbs(f) || path.Clean(f) != f || strings.HasPrefix(f, "..") || strings.ContainsAny(f, "\x00\\")) {
			return fmt.Errorf("%q is no file of the repository: write its path from the top", clip(f))
		}
	}
	return nil
}

// Check implements Checker.
func (d *Dependency) Check() error {
	if !slices.Contains(conditions, d.Condition) {
		return fmt.Errorf("condition %w", &WordError{d.Condition, conditions})
	}
	return nil
}

// Check implements Checker.
func (p *Readiness) Check() error {
	n := 0
	for _, given := range []bool{len(p.Exec) > 0, p.HTTP != "", p.TCP != 0, p.Log != "", p.Protocol != ""} {
		if given {
			n++
		}
	}
	if n != 1 {
		return errors.New("it has one of exec, http, tcp, log, protocol")
	}
	return nil
}

// Check implements Checker.
func (c *NamedCheck) Check() error {
	if c.Name == "" || len(c.Name) > 60 || strings.Trim(c.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") != "" || strings.HasPrefix(c.Name, "-") {
		return fmt.Errorf("%q is no name: letters, digits and _ . -, and not - first", clip(c.Name))
	}
	if len(c.Run) == 0 {
		return errors.New("it has no command: run")
	}
	return nil
}

// Check implements Checker.
func (c *NamedChecks) Check() error {
	for i, x := range *c {
		if slices.ContainsFunc((*c)[:i], func(y NamedCheck) bool { return y.Name == x.Name }) {
			return fmt.Errorf("%s is there twice", x.Name)
		}
	}
	return nil
}

// Check implements Checker.
func (e *Expectation) Check() error {
	if !isVerdict(e.Expect) {
		return fmt.Errorf("expect: %w", &WordError{string(e.Expect), wordsOf(verdicts)})
	}
	return e.Question.Check()
}

// Check implements Checker.
func (q *Question) Check() error {
	n := 0
	for _, given := range []bool{q.Egress != "", q.Mount != nil, q.Env != "", q.Credential != "", q.Grant != "", len(q.Command) > 0, q.Tool != ""} {
		if given {
			n++
		}
	}
	if q.Tool != "" {
		n = 1 // it may come with others
	} else if q.Path != "" {
		return errors.New("path belongs to a tool; a path of the host is mount")
	}
	if n != 1 {
		return fmt.Errorf("it is one question, about one of egress, mount, env, credential, grant, command and tool, not %d", n)
	}
	if err := q.called(); err != nil {
		return err
	}
	if q.Egress != "" {
		if _, err := ParseEgress(q.Egress); err != nil {
			return err
		}
	}
	return nil
}
