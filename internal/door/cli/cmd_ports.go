package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-dev/caisson/internal/door"
	"github.com/caisson-dev/caisson/internal/task"
)

func (a *app) portsCommand() *cobra.Command {
	var in door.PortsIn
	var withdraw []string
	cmd := &cobra.Command{
		Use:     "ports TASK",
		Short:   "the ports of servers in a task, and publish them on this machine",
		GroupID: groupTask,
		Long: `Lists where servers in a task wait for connections and which of them this machine
offers. A port is offered on 127.0.0.1 alone and to you alone: other users of the machine
are refused, and so are pages of other sites in your browser. Without a number of your
own the port is the same for the same name of a task, as long as it is free.`,
		Example: `  caisson ports demo
  caisson ports demo --publish 3000
  caisson ports demo --publish 8080:3000
  caisson ports demo --withdraw 3000`,
		Args:              exact(1, "a task"),
		ValidArgsFunction: a.completeTask,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Task = args[0]
			for _, s := range in.Publish {
				if _, err := task.ParsePublish(s); err != nil {
					return usagef(cmd, "--publish %v", err).WithHint("for example --publish 3000")
				}
			}
			for _, s := range withdraw {
				p, err := task.ParsePublish(s)
				if err != nil || p.Host != 0 {
					return usagef(cmd, "--withdraw %q is no port inside", clipped(s)).WithHint("for example --withdraw 3000")
				}
				in.Withdraw = append(in.Withdraw, p.Inside)
			}
			r, err := do[*task.PortsReport](a, cmd, "", "ports", &in, nil)
			if err != nil {
				return err
			}
			if a.json {
				a.writeJSON(r)
				return nil
			}
			return a.renderPorts(a.stdout(), r, args[0])
		},
	}
	cmd.Flags().StringArrayVar(&in.Publish, "publish", nil, "offer a port inside, at a port of caisson's choice or at HOST-PORT `[HOST-PORT:]PORT`")
	cmd.Flags().StringArrayVar(&withdraw, "withdraw", nil, "offer a port inside no more `PORT`")
	return cmd
}

func (a *app) renderPorts(w io.Writer, r *task.PortsReport, ref string) error {
	t := text{w: w, u: a.ui}
	if len(r.Ports) == 0 {
		t.printf("no server in task %s waits for connections, and no port is published\n", r.Task)
		return t.err
	}
	rows := [][]string{{"INSIDE", "ON THIS MACHINE", "SERVER"}}
	offered := false
	for _, p := range r.Ports {
		at, server := "not published", "nobody waits there yet"
		if p.Host != 0 {
			at = "127.0.0.1:" + strconv.Itoa(p.Host)
		}
		if p.URL != "" {
			at += ", " + clean(p.URL)
		}
		if p.Listening {
			server = "waits at " + clean(strings.Join(p.At, ", "))
		}
		offered = offered || p.Host == 0
		rows = append(rows, []string{strconv.Itoa(p.Inside), at, server})
	}
	width := [2]int{}
	for _, row := range rows {
		for i := range width {
			width[i] = max(width[i], len(row[i]))
		}
	}
	for _, row := range rows {
		t.printf("%-*s  %-*s  %s\n", width[0], row[0], width[1], row[1], row[2])
	}
	if offered && !a.quiet {
		for _, p := range r.Ports {
			if p.Host == 0 {
				fmt.Fprintf(w, "`caisson ports %s --publish %d` offers it on this machine\n", clean(ref), p.Inside)
				break
			}
		}
	}
	return t.err
}
