package detect

import (
	"path"
	"strings"
	"sync"
)

// special analyses a call of one program whose words need knowledge of their
// own. It emits the command itself and whatever else that starts.
type special func(a *analyser, ws []word, name string, extra effect)

var (
	specialOnce  sync.Once
	specialTable map[string]special
)

// specials is the table of them. A variable could not hold it: the functions
// refer back to it.
func specials() map[string]special {
	specialOnce.Do(func() {
		specialTable = map[string]special{
			"env": (*analyser).env, "git": (*analyser).git, "find": (*analyser).find, "gfind": (*analyser).find, "fd": (*analyser).fd,
			"tar": (*analyser).tar, "gtar": (*analyser).tar, "bsdtar": (*analyser).tar,
			"eval": (*analyser).eval, "trap": (*analyser).trap, "alias": (*analyser).alias, "cd": (*analyser).chdir,
			"rm": (*analyser).rm, "dd": (*analyser).dd, "curl": (*analyser).curl, "wget": (*analyser).curl, "http": (*analyser).curl,
			"sed": (*analyser).sed, "gsed": (*analyser).sed, "rsync": (*analyser).rsync, "ssh": (*analyser).ssh,
			"docker": (*analyser).docker, "podman": (*analyser).docker, "nerdctl": (*analyser).docker,
			"psql": (*analyser).psql, "make": (*analyser).make, "gmake": (*analyser).make, "bmake": (*analyser).make,
			"printf": (*analyser).subscript, "read": (*analyser).subscript, "unset": (*analyser).subscript, "test": (*analyser).subscript, "[": (*analyser).subscript,
			"let": (*analyser).subscript, "mapfile": (*analyser).subscript, "readarray": (*analyser).subscript, "export": (*analyser).subscript, "declare": (*analyser).subscript,
			"enable": (*analyser).builtin, "hash": (*analyser).builtin, "complete": (*analyser).builtin, "compgen": (*analyser).builtin, "bind": (*analyser).builtin, "shopt": (*analyser).builtin, "fc": (*analyser).builtin, "history": (*analyser).builtin,
			"cp": (*analyser).toDevice, "tee": (*analyser).toDevice, "mv": (*analyser).toDevice, "cat": (*analyser).toDevice,
		}
		for name, verbs := range runners() {
			v := lazyWords(verbs)
			specialTable[name] = func(a *analyser, ws []word, name string, extra effect) { a.runner(ws, name, extra, v()) }
		}
		for name, opts := range execOptions() {
			o := lazyWords(opts)
			specialTable[name] = func(a *analyser, ws []word, name string, extra effect) { a.withOptions(ws, name, extra, o()) }
		}
	})
	return specialTable
}

// runners start the program that follows one of the verbs; "" is the name
// itself.
var runners = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"npx": `""`, "bunx": `""`, "pnpx": `""`, "npm": "exec x", "pnpm": "exec dlx", "yarn": "exec dlx", "bun": "x",
		"uv": "run tool", "uvx": `""`, "poetry": "run", "pdm": "run", "hatch": "run", "rye": "run", "pipenv": "run", "pixi": "run", "conda": "run", "mamba": "run",
		"bundle": "exec", "bundler": "exec", "mise": "exec x", "asdf": "exec", "rbenv": "exec", "pyenv": "exec", "nodenv": "exec", "direnv": "exec", "dotenv": `""`, "heroku": "local:run",
		"pipx": "run", "nix": "run shell develop", "nix-shell": `""`, "op": "run", "doppler": "run", "aws-vault": "exec", "chamber": "exec", "infisical": "run", "sops": "exec-env exec-file", "teller": "run",
		"kubectl": "exec", "oc": "exec", "flyctl": "ssh", "coverage": "run", "torchrun": `""`, "accelerate": "launch", "watchexec": `""`, "nodemon": `""`, "wait-on": `""`, "start-server-and-test": `""`, "concurrently": `""`,
		"dotenvx": "run", "jenv": "exec", "fnm": "exec", "volta": "run", "nvm": "exec run", "rustup": "run", "opam": "exec", "stack": "exec", "cabal": "exec", "mix": "cmd", "lerna": "exec", "nx": "exec", "rush": "rushx",
	}
})

// execOptions have a command as their value.
var execOptions = sync.OnceValue(func() map[string]string {
	return map[string]string{
		"sort": "--compress-program", "split": "--filter", "rg": "--pre --hostname-bin", "zip": "-TT --unzip-command", "man": "-P --pager -H --html", "scp": "-S", "sftp": "-S",
		"go": "-exec --exec -toolexec --toolexec -vettool --vettool -fuzztool --fuzztool", "less": "-k --lesskey-src", "cargo": "--config", "ag": "--pager", "fzf": "--preview --bind", "rclone": "--password-command",
		"gpg": "--use-agent-program --photo-viewer --keyserver-options", "mutt": "-e", "lftp": "-c -e", "ncat": "-e --exec -c --sh-exec", "nc": "-e -c", "netcat": "-e -c", "socat": "", "crontab": "", "at": "-f", "batch": "",
	}
})

// runner starts what its words name.
func (a *analyser) runner(ws []word, name string, extra effect, verbs map[string]bool) {
	argv, partial := literal(ws)
	p := programs()[name]
	e := extra
	if p != nil {
		e |= p.effect(argv, partial)
	} else {
		e |= effRepo
	}
	i := 1
	found, strange := verbs[`""`], false
	for i < len(ws) {
		w := ws[i]
		if !w.lit {
			e |= effOpaque
			break
		}
		if w.s == "--" {
			i++
			found = true
			break
		}
		if len(w.s) > 1 && w.s[0] == '-' {
			switch {
			case (name == "kubectl" || name == "oc") && w.s == "-c":
				i++ // a container
			case w.s == "-c" || w.s == "--call" || w.s == "--shell-mode" || w.s == "--run" || w.s == "--command":
				a.emit(ws, name, e, "")
				a.nested(ws, i+1, name)
				return
			case p != nil && p.values[w.s] || runnerValues()[w.s]:
				i++
			case !runnerFlags()[w.s] && strings.IndexByte(w.s, '=') < 0:
				strange = true // its value may be the next word
			}
			i++
			continue
		}
		if found && (name == "kubectl" || name == "oc") {
			i++ // the pod; the command comes after "--"
			continue
		}
		if found {
			break
		}
		if verbs[w.s] {
			found = true
			i++
			if name == "uv" && w.s == "tool" || name == "aws-vault" || name == "chamber" {
				i++ // "tool run", a profile
			}
			continue
		}
		break
	}
	a.emit(ws, name, e, "")
	if found && strange {
		a.opaque("an option of " + name + " that is not known")
	}
	if found && i < len(ws) && e&effOpaque == 0 {
		if name == "concurrently" || name == "start-server-and-test" {
			for _, w := range ws[i:] {
				if w.lit {
					a.script(w.s)
				}
			}
			return
		}
		a.call(ws[i:])
		return
	}
	if !found && e&effRepo != 0 {
		a.body(name, argv)
	}
}

var runnerValues = lazyWords("-p --package --with --python --env-file -e -f --from --extra --group -n --name --prefix -w --workspace --watch --ext --ignore -i --context -A --attr -I --shell")

var runnerFlags = lazyWords("-y --yes --no --no-install --quiet -q --silent -s --offline --prefer-offline --frozen --locked --no-sync --no-project --isolated --no-dev --all-extras -v --verbose -r --recursive --parallel --if-present --bun -it -ti -t --stdin --tty --exact --keep-file-descriptors --no-install-recommends --pure --impure --quick --no-warn-script-location -u --ignore-existing")

// withOptions is a program that some options of give a command.
func (a *analyser) withOptions(ws []word, name string, extra effect, opts map[string]bool) {
	argv, partial := literal(ws)
	e := extra
	if p := programs()[name]; p != nil {
		e |= p.effect(argv, partial)
	}
	a.emit(ws, name, e, "")
	for i, w := range ws[1:] {
		if !w.lit || len(w.s) < 2 || w.s[0] != '-' {
			continue
		}
		key, val, has := strings.Cut(w.s, "=")
		hit, next := opts[key], true
		if !hit && w.s[1] == '-' {
			for o := range opts {
				hit = hit || strings.HasPrefix(o, "--") && shortens(key, o)
			}
		} else if !hit {
			// The first letter that names a command takes the rest.
			for at := 1; at < len(w.s) && !hit; at++ {
				if opts["-"+w.s[at:at+1]] {
					hit, next, has = true, at+1 == len(w.s), false
				}
			}
		}
		if !hit {
			continue
		}
		a.opaque(name + " " + key + " names a command")
		switch {
		case has:
			a.script(val)
		case next:
			a.nested(ws, i+2, name)
		}
	}
	switch name {
	case "socat":
		for _, w := range ws[1:] {
			if u := strings.ToUpper(w.s); strings.Contains(u, "EXEC:") || strings.Contains(u, "SYSTEM:") || strings.Contains(u, "SHELL:") {
				a.opaque("socat starts a command")
			}
		}
	case "crontab", "at", "batch":
		if name != "crontab" || !hasLetter(ws, "-l") {
			a.opaque("a command that runs later")
		}
	}
}

func (a *analyser) env(ws []word, name string, extra effect) {
	a.emit(ws, name, extra, "")
	for i := 1; i < len(ws); i++ {
		w := ws[i]
		switch {
		case !w.lit:
			a.opaque("an argument of env is not literal")
			return
		case isAssignment(w.s):
			k, v, _ := strings.Cut(w.s, "=")
			a.assign(k, word{v, true})
		case w.s == "--":
			a.afterEnv(ws[i+1:])
			return
		case w.s == "-i", w.s == "-", w.s == "--ignore-environment", w.s == "-0", w.s == "--null", w.s == "-v", w.s == "--debug", w.s == "-iv",
			strings.HasPrefix(w.s, "--unset="), strings.HasPrefix(w.s, "--chdir="), strings.HasPrefix(w.s, "--block-signal"), strings.HasPrefix(w.s, "--default-signal"), strings.HasPrefix(w.s, "--ignore-signal"), strings.HasPrefix(w.s, "--list-signal"):
		case w.s == "-u", w.s == "-C", w.s == "--unset", w.s == "--chdir":
			i++
		case strings.HasPrefix(w.s, "-u"), strings.HasPrefix(w.s, "-C"):
		case w.s == "-S" || w.s == "--split-string" || w.s == "-vS" || w.s == "-iS":
			a.splitString(ws, i+1, "")
			return
		case strings.HasPrefix(w.s, "-S"):
			a.splitString(ws, i+1, w.s[2:])
			return
		case strings.HasPrefix(w.s, "--split-string="):
			a.splitString(ws, i+1, w.s[len("--split-string="):])
			return
		case strings.HasPrefix(w.s, "-"):
			a.opaque("an option of env that is not known")
			return
		default:
			a.call(ws[i:])
			return
		}
	}
}

// afterEnv takes assignments that follow "--".
func (a *analyser) afterEnv(ws []word) {
	for len(ws) > 0 && ws[0].lit && isAssignment(ws[0].s) {
		k, v, _ := strings.Cut(ws[0].s, "=")
		a.assign(k, word{v, true})
		ws = ws[1:]
	}
	a.call(ws)
}

// splitString is env -S: blanks split, quotes and variables act, nothing else.
func (a *analyser) splitString(ws []word, next int, text string) {
	if text == "" {
		if next >= len(ws) || !ws[next].lit {
			a.opaque("what env splits is not literal")
			return
		}
		text, next = ws[next].s, next+1
	}
	if !plainText(text) {
		a.opaque("what env splits has quotes or variables")
		return
	}
	rest := []word{{"env", true}}
	for f := range strings.FieldsSeq(text) {
		rest = append(rest, word{f, true})
	}
	if next < len(ws) {
		rest = append(rest, ws[next:]...)
	}
	if a.depth >= maxDepth {
		a.opaque("env inside of env, too deep")
		return
	}
	a.depth++
	a.env(rest, "env", 0)
	a.depth--
}

func (a *analyser) eval(ws []word, name string, extra effect) {
	a.emit(ws, name, extra, "")
	if len(ws) > 1 && ws[1].lit && ws[1].s == "--" {
		ws = ws[1:]
	}
	if len(ws) > 1 {
		a.joined(ws[1:], name, false)
	}
}

func (a *analyser) trap(ws []word, name string, extra effect) {
	a.emit(ws, name, extra, "")
	i := 1
	if i < len(ws) && ws[i].lit && ws[i].s == "--" {
		i++
	}
	if i+1 < len(ws) && !(ws[i].lit && (ws[i].s == "-" || ws[i].s == "" || ws[i].s == "-l" || ws[i].s == "-p")) {
		a.nested(ws, i, name)
	}
}

func (a *analyser) alias(ws []word, name string, extra effect) {
	for _, w := range ws[1:] {
		if !w.lit || strings.Contains(w.s, "=") {
			a.emit(ws, name, effOpaque, "an alias changes what later words mean")
			return
		}
	}
	a.emit(ws, name, extra, "")
}

// chdir remembers where the script goes, so that the bodies of its scripts are
// looked for there.
func (a *analyser) chdir(ws []word, name string, extra effect) {
	a.emit(ws, name, extra, "")
	if len(ws) == 2 && ws[1].lit && ws[1].s != "-" && !path.IsAbs(ws[1].s) {
		a.dir = path.Join(a.dir, ws[1].s)
	} else {
		a.dir = ".." // not known
	}
}

// rm is destructive where it can take more than what is the task's.
func (a *analyser) rm(ws []word, name string, extra effect) {
	e := extra
	recursive := false
	for _, w := range ws[1:] {
		recursive = recursive || w.lit && strings.HasPrefix(w.s, "-") && !strings.HasPrefix(w.s, "--") && strings.ContainsAny(w.s, "rR") || w.s == "--recursive"
	}
	for _, w := range ws[1:] {
		if recursive && w.lit && (w.s == "/" || strings.HasPrefix(w.s, "/") && strings.Count(path.Clean(w.s), "/") < 3 && !strings.HasPrefix(w.s, "/tmp/")) {
			e |= effDestroy
		}
	}
	a.emit(ws, name, e, "")
}

func (a *analyser) dd(ws []word, name string, extra effect) {
	e := extra
	for _, w := range ws[1:] {
		if t, ok := strings.CutPrefix(w.s, "of="); ok && diskDevice(t) {
			e |= effDestroy | effKernel
		}
		if t, ok := strings.CutPrefix(w.s, "if="); ok && (diskDevice(t) || kernelFile(t)) {
			e |= effKernel
		}
	}
	a.emit(ws, name, e, "")
}

// toDevice is any program on files, of which one may be a device.
func (a *analyser) toDevice(ws []word, name string, extra effect) {
	e := extra
	for _, w := range ws[1:] {
		if (diskDevice(w.s) || kernelFile(w.s)) && (name == "cp" || name == "mv" || name == "tee" || strings.HasPrefix(w.s, "/dev/")) {
			e |= effKernel
			if name != "cat" && diskDevice(w.s) {
				e |= effDestroy
			}
		}
	}
	a.emit(ws, name, e, "")
}

// diskDevice reports whether a path names a disk.
func diskDevice(p string) bool {
	for _, d := range []string{"/dev/sd", "/dev/nvme", "/dev/vd", "/dev/hd", "/dev/mmcblk", "/dev/mapper/", "/dev/disk/", "/dev/loop", "/dev/dm-", "/dev/xvd"} {
		if strings.HasPrefix(p, d) {
			return true
		}
	}
	return false
}

// kernelFile reports whether a path reaches the kernel or a device beyond the
// ones every process has.
func kernelFile(p string) bool {
	for _, d := range []string{"/dev/kvm", "/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/net/tun", "/dev/dri", "/dev/nvidia", "/dev/tty", "/dev/usb", "/dev/bus/usb", "/dev/vhost", "/dev/input", "/dev/snd", "/dev/video", "/dev/i2c", "/dev/spidev", "/dev/gpio", "/sys/kernel", "/sys/fs/bpf", "/proc/sysrq-trigger", "/proc/sys/", "/proc/kcore", "/sys/class/", "/sys/module"} {
		if strings.HasPrefix(p, d) && p != "/dev/tty" {
			return true
		}
	}
	return false
}

func (a *analyser) curl(ws []word, name string, extra effect) {
	e := extra | effRead
	local := false
	for i, w := range ws[1:] {
		s := w.s
		switch {
		case s == "-d", s == "-T", s == "-F", strings.HasPrefix(s, "--data"), s == "--upload-file", strings.HasPrefix(s, "--form"), strings.HasPrefix(s, "--post-"), s == "--json":
			e |= effMutate
		case s == "-X" || s == "--request" || s == "--method":
			if i+2 < len(ws) && ws[i+2].s != "GET" && ws[i+2].s != "HEAD" {
				e |= effMutate
			}
		case strings.HasPrefix(s, "-X") && s != "-XGET" && s != "-XHEAD", s == "POST", s == "PUT", s == "DELETE", s == "PATCH":
			e |= effMutate
		case s == "-K" || s == "--config":
			e |= effMutate | effOpaque
		case loopback(s):
			local = true
		}
	}
	if local {
		e &^= effRead | effMutate
	}
	if e&effMutate != 0 {
		e |= effVisible
	}
	a.emit(ws, name, e, "")
}

// loopback reports whether a URL leads to this machine.
func loopback(s string) bool {
	_, rest, ok := strings.Cut(s, "://")
	if !ok {
		rest = s
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	return localHost(hostOnly(rest))
}

// sed can run commands: the command e, and the flag e of s.
func (a *analyser) sed(ws []word, name string, extra effect) {
	for _, w := range ws[1:] {
		script := w.s
		switch {
		case !w.lit:
		case w.s == "-f" || strings.HasPrefix(w.s, "--file"):
			a.emit(ws, name, effRepo|extra, "")
			return
		case strings.HasPrefix(w.s, "--"):
			_, script, _ = strings.Cut(w.s, "--expression=")
		case strings.HasPrefix(w.s, "-"):
			_, script, _ = strings.Cut(w.s, "e")
		}
		if !w.lit || sedRuns(script) {
			a.emit(ws, name, effOpaque|extra, "a sed script that may start a command")
			return
		}
	}
	a.emit(ws, name, extra, "")
}

// sedRuns is a guess on the safe side: a command that begins with e, or an e
// among what may be flags of s.
func sedRuns(s string) bool {
	for _, c := range strings.FieldsFunc(s, func(r rune) bool { return r == ';' || r == '\n' || r == '{' || r == '}' }) {
		c = strings.TrimLeft(c, " \t0123456789,$~+!")
		if strings.HasPrefix(c, "/") || strings.HasPrefix(c, `\`) {
			if i := strings.LastIndexByte(c, '/'); i > 0 && strings.HasPrefix(c, "/") {
				if strings.HasPrefix(strings.TrimLeft(c[i+1:], " \t,!"), "e") {
					return true
				}
			} else if strings.Contains(c, "e") {
				return true
			}
			if i := strings.Index(c, "/s"); i > 0 {
				c = c[i+1:]
			}
		}
		if strings.HasPrefix(c, "e") {
			return true
		}
		if strings.HasPrefix(c, "s") && len(c) > 1 {
			j := strings.LastIndexByte(c, c[1])
			if j > 1 && strings.IndexByte(c[j:], 'e') >= 0 && strings.TrimLeft(c[j+1:], "gpiImMewW0123456789 ") == "" || j > 1 && strings.HasPrefix(c[j+1:], "e") {
				return true
			}
		}
	}
	return false
}

// subscript is a builtin that evaluates a name's subscript, in which a
// substitution runs.
func (a *analyser) subscript(ws []word, name string, extra effect) {
	e := extra
	for i, w := range ws[1:] {
		if w.lit && strings.ContainsAny(w.s, "[") && (strings.Contains(w.s, "$(") || strings.Contains(w.s, "`")) {
			e |= effOpaque
		}
		if (name == "mapfile" || name == "readarray") && w.s == "-C" {
			a.nested(ws, i+2, name)
		}
		if w.lit && (name == "read" || name == "mapfile" || name == "readarray" || name == "printf" && i > 0 && ws[i].s == "-v") && (loaderVars()[w.s] || commandVars()[w.s]) {
			e |= effOpaque
		}
		if !w.lit && (name == "let" || name == "test" && i > 0 && ws[i].s == "-v") {
			e |= effOpaque
		}
	}
	a.emit(ws, name, e, "")
}

// builtin is one of the shell's that can change what a name means.
func (a *analyser) builtin(ws []word, name string, extra effect) {
	e := extra
	if len(ws) > 1 && name != "history" && !(name == "shopt" && !hasLetter(ws, "expand_aliases")) && !(name == "hash" && hasLetter(ws, "-r")) {
		e |= effOpaque
	}
	a.emit(ws, name, e, "")
}

// make's variables can name the shell of its recipes.
func (a *analyser) make(ws []word, name string, extra effect) {
	a.emit(ws, name, effRepo|extra, "runs the recipes of a Makefile")
	for _, w := range ws[1:] {
		switch {
		case !w.lit:
		case strings.HasPrefix(w.s, "SHELL="), strings.HasPrefix(w.s, ".SHELLFLAGS="), strings.HasPrefix(w.s, "--eval"), strings.HasPrefix(w.s, "-E"), strings.HasPrefix(w.s, "MAKEFLAGS="):
			a.opaque("a shell or a rule for make, in its words")
		}
	}
	argv, _ := literal(ws)
	a.body(name, argv)
}

// psql and its kin run commands by a backslash.
func (a *analyser) psql(ws []word, name string, extra effect) {
	e := extra | effDB
	for _, w := range ws[1:] {
		if !w.lit {
			continue
		}
		if strings.Contains(w.s, `\!`) || strings.Contains(w.s, `\setshell`) || strings.Contains(strings.ToUpper(w.s), "PROGRAM") || strings.HasPrefix(w.s, `\o |`) || strings.HasPrefix(w.s, `\g |`) {
			e |= effOpaque
		}
		e |= sqlEffect(w.s)
	}
	a.emit(ws, name, e, "")
}
