package boundary

import (
	"slices"
	"time"

	"github.com/caisson-dev/caisson/internal/broker"
	"github.com/caisson-dev/caisson/internal/policy"
)

// handleOf is a credential of the policy as the broker knows it.
func handleOf(c policy.CredentialFrom) broker.Handle {
	w := c.Whole()
	h := broker.Handle{
		Name: c.Name, Prod: w.Class != "dev", As: mannerOf(w.As), Env: slices.Clone(w.Env), Set: w.Set, Form: w.Form,
		From: broker.Source{Env: w.Read.Env, File: string(w.Read.File), Command: w.Read.Command, Keyring: w.Read.Keyring, Agent: w.Read.Agent != nil && *w.Read.Agent},
		User: w.User, Header: w.Header, Region: w.Region, Service: w.Service, Keys: w.Keys, HostKeys: w.HostKeys, Sign: w.Sign, Always: w.Inject == "always",
		Lifetime: time.Duration(w.Lifetime), Uses: int(w.Uses), Approve: broker.Approve(w.Approve),
	}
	for _, e := range w.To {
		host, port := e.Host.Split(w.Port())
		d := broker.Dest{Host: host, Port: port, Path: string(e.Path)}
		for _, m := range e.Methods {
			d.Methods = append(d.Methods, string(m))
		}
		h.To = append(h.To, d)
	}
	return h
}

// mannerOf says how an API's own way of giving a credential is carried out.
func mannerOf(as string) broker.Manner {
	switch as {
	case "anthropic", "google":
		return broker.Header
	case "openai":
		return broker.Bearer
	}
	return broker.Manner(as)
}
