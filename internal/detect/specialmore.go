package detect

import "strings"

// find starts commands and removes files.
func (a *analyser) find(ws []word, name string, extra effect) {
	a.emit(ws, name, extra, "")
	for i := 1; i < len(ws); i++ {
		switch ws[i].s {
		case "-exec", "-execdir", "-ok", "-okdir":
			j := i + 1
			for j < len(ws) && ws[j].s != ";" && !(ws[j].s == "+" && ws[j-1].s == "{}") {
				j++
			}
			a.call(found(ws[i+1 : j]))
			i = j
		}
	}
}

// found puts what is not literal in the place of {}.
func found(ws []word) []word {
	out := make([]word, len(ws))
	for i, w := range ws {
		out[i] = w
		// The script of a shell keeps it, to be seen there.
		if w.lit && strings.Contains(w.s, "{}") && !strings.ContainsAny(w.s, " ;|&") {
			out[i] = word{}
		}
	}
	return out
}

func (a *analyser) fd(ws []word, name string, extra effect) {
	a.emit(ws, name, extra, "")
	for i, w := range ws {
		if w.lit && (w.s == "-x" || w.s == "-X" || w.s == "--exec" || w.s == "--exec-batch") {
			a.call(append(found(ws[i+1:]), word{}))
			return
		}
	}
}

// tarOptions name a command.
var tarOptions = []string{"--to-command", "--use-compress-program", "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command"}

func (a *analyser) tar(ws []word, name string, extra effect) {
	a.emit(ws, name, extra, "")
	for i, w := range ws[1:] {
		if !w.lit {
			continue
		}
		key, val, has := strings.Cut(w.s, "=")
		for _, o := range tarOptions {
			if !shortens(key, o) {
				continue
			}
			a.opaque("tar " + o + " names a command")
			if has {
				a.script(val)
			} else {
				a.nested(ws, i+2, name)
			}
			break
		}
		switch {
		case strings.HasPrefix(key, "--checkpoint-a"):
			if !has && i+2 < len(ws) {
				val = ws[i+2].s
			}
			if c, ok := strings.CutPrefix(val, "exec="); ok || val == "" {
				a.opaque("tar --checkpoint-action names a command")
				a.script(c)
			}
		case i == 0 && !strings.HasPrefix(w.s, "--") && strings.ContainsAny(w.s, "IF"), strings.HasPrefix(w.s, "-") && !strings.HasPrefix(w.s, "--") && strings.ContainsAny(w.s, "IF"):
			a.opaque("tar -" + "I or -F names a command")
			if i+2 < len(ws) {
				a.nested(ws, i+2, name)
			}
		}
	}
}

// rsync starts a remote shell.
func (a *analyser) rsync(ws []word, name string, extra effect) {
	e := extra
	for i, w := range ws[1:] {
		if !w.lit {
			continue
		}
		key, val, has := strings.Cut(w.s, "=")
		switch {
		case key == "--rsh" || key == "--rsync-path" || w.s == "-e":
			a.opaque("rsync " + key + " names a command")
			if has {
				a.script(val)
			} else {
				a.nested(ws, i+2, name)
			}
		case strings.HasPrefix(w.s, "-") && !strings.HasPrefix(w.s, "--") && strings.IndexByte(w.s, 'e') > 0:
			a.opaque("rsync -e names a command")
		case strings.Contains(w.s, "::") || strings.HasPrefix(w.s, "rsync://") || strings.IndexByte(w.s, ':') > 0 && !strings.HasPrefix(w.s, "-"):
			e |= effMutate | effCredDev
		case w.s == "--daemon":
			e |= effProcess | effPort
		}
	}
	a.emit(ws, name, e, "")
}

// ssh runs the rest of its words elsewhere, and can start a program here.
func (a *analyser) ssh(ws []word, name string, extra effect) {
	e := extra | effMutate | effCredDev | effStateOut
	for i, w := range ws[1:] {
		opt := strings.ToLower(w.s)
		if w.s == "-o" && i+2 < len(ws) {
			opt = "-o" + strings.ToLower(ws[i+2].s)
		}
		for _, k := range []string{"-oproxycommand", "-olocalcommand", "-opermitlocalcommand", "-oknownhostscommand", "-opkcs11provider"} {
			if strings.HasPrefix(opt, k) {
				e |= effOpaque
			}
		}
		if w.s == "-F" {
			e |= effOpaque
		}
	}
	a.emit(ws, name, e, "")
}

// docker has options that open the host.
func (a *analyser) docker(ws []word, name string, extra effect) {
	argv, partial := literal(ws)
	p := programs()[name]
	e := extra | p.effect(argv, partial)
	image := ""
	for i, w := range ws[1:] {
		s := w.s
		switch {
		case !w.lit:
		case s == "--privileged" || strings.HasPrefix(s, "--privileged=") || strings.HasPrefix(s, "--device") || strings.HasPrefix(s, "--cap-add") || strings.HasPrefix(s, "--gpus"):
			e |= effKernel
		case s == "--pid=host" || s == "--ipc=host" || s == "--userns=host" || s == "--uts=host":
			e |= effKernel
		case (s == "--pid" || s == "--ipc" || s == "--userns") && i+2 < len(ws) && ws[i+2].s == "host":
			e |= effKernel
		case strings.HasPrefix(s, "--security-opt") && strings.Contains(s, "unconfined"):
			e |= effKernel
		case s == "-p" || s == "-P" || strings.HasPrefix(s, "--publish"):
			e |= effPort
		case s == "-d" || s == "--detach" || s == "-itd" || s == "-dit":
			e |= effProcess
		case strings.Contains(s, "docker.sock"):
			e |= effRuntime
		case !strings.HasPrefix(s, "-") && image == "" && i > 0:
			if kind := imageKind(s); kind != 0 {
				image = s
				e |= kind
			}
		}
	}
	if e&effMigSchema != 0 {
		e |= effDB
	}
	a.emit(ws, name, e, "")
}
