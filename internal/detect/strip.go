package detect

import (
	"strings"
	"sync"
)

// wrapper is a program that starts the one its further words name.
type wrapper struct {
	effect effect
	flags  string // options of one letter without a value
	values string // options of one letter with a value
	long   map[string]bool
	skip   int    // words before the command
	shell  string // options of one letter after which a shell runs, or a script does
	attach string // options of one letter whose value, if any, is in the same word
	assign bool   // NAME=VALUE words may come before the command
	text   bool   // the words are joined and given to a shell
	more   bool   // the command gets arguments that are not among the words
	query  string // options of one letter with which nothing is run
	lone   effect // alone, without a command
}

// wrapperTable: names | options without value | options with value | long
// options, those with a value end in "=" | properties. A property is skipN,
// assign, text, more, shell:LETTERS, query:LETTERS, optional:LETTERS, lone, or
// an effect.
const wrapperTable = `
sudo|AbEeHKklnPSvVBN|ughpCrtTUDR|askpass bell background preserve-env edit set-home remove-timestamp list non-interactive stdin validate version user= group= host= prompt= close-from= role= type= command-timeout= other-user= chdir= chroot= login shell|assign shell:si query:lvkKVe
doas|Ln|uC||assign shell:s
pkexec||u|user= disable-internal-agent keep-cwd|
nice||n|adjustment= |
ionice|t|cnpPu|class= classdata= pid= ignore|query:p
chrt|abdfimorRv|pTPD|all-tasks batch deadline fifo idle other rr reset-on-fork sched-runtime= sched-period= sched-deadline= |skip1 query:mp
taskset|ac||all-tasks cpu-list|skip1 query:p
nohup||||process
setsid|cfw||ctty fork wait|process
time|plvaVq|fo|portability verbose append format= output= quiet|
timeout|fvp|ks|foreground preserve-status verbose signal= kill-after= |skip1
stdbuf||ioe|input= output= error= |
unbuffer|p|||
command|p|||query:vV
builtin||||
exec|cl|a||
busybox|||list install help list-full|lone:unknown
toybox|||long help version|lone:unknown
xargs|0rtxpo|InPLdEsSaJR|null no-run-if-empty verbose exit interactive open-tty show-limits replace= max-args= max-procs= max-lines= delimiter= eof= max-chars= arg-file= process-slot-var= replace max-lines eof|more optional:ile
parallel|0XmkuvqrtA|jIaSNnLdC|keep-order dry-run will-cite bar eta line-buffer linebuffer ungroup tag no-notice halt= jobs= arg-file= colsep= joblog= results= tmpdir= delay= retries= timeout= memfree= sshlogin= delimiter= max-args= |more text
flock|senxouFv|EwcW|shared exclusive nonblock close unlock verbose no-fork timeout= wait= conflict-exit-code= command= |skip1 shell:c
watch|bcdegtxpCwr|nqs|beep color differences errexit chgexit no-title exec precise interval= no-wrap no-rerun equexit= |text
script|aefqr|cIBOTmoE|append quiet return flush command= log-in= log-out= log-io= log-timing= timing= echo= output-limit= |shell:c lone:opaque skip1
su|lmpPfTV|wgGsc|login preserve-environment pty fast command= shell= group= supp-group= session-command= whitelist-environment= |shell:c skip1 lone:opaque kernel
runuser|lmpPf|wgGscu|login preserve-environment pty fast command= user= group= |shell:c kernel
chroot|||userspec= groups= skip-chdir|skip1 kernel lone:opaque
unshare|muinpUCTrcf|RwSGl|mount uts ipc net pid user cgroup time map-root-user map-current-user fork mount-proc kill-child keep-caps root= wd= setuid= setgid= propagation= map-user= map-group= map-auto setgroups= mount-proc= |kernel lone:opaque
nsenter|aFZe|tSGW|all target= mount= uts= ipc= net= pid= user= cgroup= time= mount uts ipc net pid user cgroup setuid= setgid= root= wd= no-fork preserve-credentials|kernel lone:opaque optional:muinpUCTrw
setpriv|dh||no-new-privs dump reuid= regid= clear-groups keep-groups init-groups groups= inh-caps= ambient-caps= bounding-set= securebits= pdeathsig= selinux-label= apparmor-profile= reset-env|
capsh||||opaque
prlimit|||core nofile nproc as cpu data fsize memlock rss stack noheadings raw verbose|query:p
numactl|as|iNCpmlH|all interleave= cpunodebind= physcpubind= localalloc preferred= membind= hardware show|
strace|fFqcCdirttTvwxyYzZk|aeEIoOpPsSuUbX|follow-forks summary output= trace= attach= expr= string-limit= seccomp-bpf|kernel
ltrace|fcCiSrtTL|aeloAnpsuFxw|output= |kernel
perf||||kernel opaque
valgrind|qv||tool= leak-check= track-origins= error-exitcode= show-leak-kinds= suppressions= log-file= trace-children= num-callers= quiet verbose|
catchsegv||||
eatmydata||||
fakeroot|hv|lsib|lib= faked= unknown-is-real|
proot||rbwvk0|rootfs= bind= cwd= |
bwrap||||opaque
firejail||||opaque
systemd-run|dGPqrtS|puHM|user system scope pty pipe wait collect quiet remain-after-exit send-sighup same-dir no-block unit= property= description= slice= uid= gid= nice= setenv= working-directory= on-active= on-calendar= shell|process
systemd-inhibit|||what= who= why= mode= |
dbus-run-session|||config-file= dbus-daemon= |
xvfb-run|al|nfsepw|auto-servernum auto-display server-num= server-args= error-file= |
tini|hsvgw|pe||
dumb-init|csrv||single-child rewrite= verbose|
catatonit|Pg|||
gosu||||skip1
su-exec||||skip1
chpst|vP012|ueUnmdopstrfC/||
setuidgid||||skip1
softlimit||admopstrcfl||
torsocks|iq|upPa||read
proxychains|q|f||read
proxychains4|q|f||read
cross-env||||assign
cross-env-shell||||assign text
env-cmd||fe|file= environments= no-override fallback verbose|
dotenv||fepv|env= |repo
dotenvx||f||repo
direnv||||repo opaque
entr|acdnprsz|||process more
cgexec||g|sticky|
rlwrap|acmiInNrRsASTuvwX|bBCDefFghHlLmMopPqQstVz||
caffeinate|disum|tw||
arch|x86_64|de||
linux32|v3BFILRSTXZ|||
linux64|v3BFILRSTXZ|||
setarch|v3BFILRSTXZ|p|addr-no-randomize|skip1
`

var wrappers = sync.OnceValue(func() map[string]*wrapper {
	bits := map[string]effect{}
	for _, r := range effectRules {
		bits[r.word] = r.bit
	}
	m := map[string]*wrapper{}
	for line := range strings.Lines(wrapperTable) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(f) != 5 {
			continue
		}
		w := &wrapper{flags: f[1], values: f[2], long: map[string]bool{}}
		for l := range strings.FieldsSeq(f[3]) {
			name, takes := strings.CutSuffix(l, "=")
			w.long[name] = w.long[name] || takes
		}
		for p := range strings.FieldsSeq(f[4]) {
			key, val, _ := strings.Cut(p, ":")
			switch key {
			case "skip1":
				w.skip = 1
			case "assign":
				w.assign = true
			case "text":
				w.text = true
			case "more":
				w.more = true
			case "shell":
				w.shell = val
			case "query":
				w.query = val
			case "optional":
				w.attach = val
			case "lone":
				w.lone = bits[val]
			default:
				w.effect |= bits[key]
			}
		}
		m[f[0]] = w
	}
	return m
})

// unwrap analyses what a wrapper starts.
func (a *analyser) unwrap(w *wrapper, ws []word) {
	name := programName(ws[0].s)
	if name == "su" || name == "runuser" && !hasLetter(ws, "-u") {
		a.switchUser(ws, name)
		return
	}
	i := 1
	replace := "" // what stands for an argument of the input
options:
	for i < len(ws) {
		o := ws[i]
		if !o.lit {
			a.opaque("an option of " + name + " is not literal")
			return
		}
		if o.s == "--" {
			i++
			break
		}
		if len(o.s) < 2 || o.s[0] != '-' {
			break
		}
		i++
		if long, ok := strings.CutPrefix(o.s, "--"); ok {
			key, val, has := strings.Cut(long, "=")
			takes, known := w.long[key]
			switch {
			case !known:
				a.opaque("an option of " + name + " that is not known")
			case key == "command" || key == "session-command":
				if has {
					a.script(val)
				} else {
					a.nested(ws, i, name)
				}
				return
			case key == "login" || key == "shell" && w.shell != "" && !takes:
				if i >= len(ws) {
					a.opaque(name + " starts a shell")
				}
			case key == "exec" && name == "watch":
				// as -x
			}
			if key == "replace" {
				if replace = val; replace == "" {
					replace = "{}"
				}
			}
			if takes && !has && key != "replace" && key != "max-lines" && key != "eof" {
				i++
			}
			continue
		}
		for j := 1; j < len(o.s); j++ {
			c := o.s[j]
			switch {
			case strings.IndexByte(w.query, c) >= 0:
				return // it says something about the command, or stops another one
			case strings.IndexByte(w.shell, c) >= 0:
				if c == 'c' {
					if j+1 < len(o.s) {
						a.script(o.s[j+1:])
					} else {
						a.nested(ws, i, name)
					}
					return
				}
				if i >= len(ws) {
					a.opaque(name + " starts a shell")
					return
				}
			case strings.IndexByte(w.attach, c) >= 0:
				if c == 'i' && w.more {
					if replace = o.s[j+1:]; replace == "" {
						replace = "{}"
					}
				}
				continue options
			case strings.IndexByte(w.values, c) >= 0:
				if c == 'I' && w.more || c == 'J' && w.more {
					if replace = o.s[j+1:]; replace == "" && i < len(ws) {
						replace = ws[i].s
					}
				}
				if j+1 == len(o.s) {
					if i < len(ws) && !ws[i].lit {
						// It may be empty, and vanish: then the next word is the value.
						a.opaque("an option's value of " + name + " is not literal")
					}
					i++
				}
				continue options
			case strings.IndexByte(w.flags, c) >= 0:
			case c >= '0' && c <= '9':
			default:
				a.opaque("an option of " + name + " that is not known")
				continue options
			}
		}
	}
	for n := 0; n < w.skip && i < len(ws); n++ {
		if !ws[i].lit {
			a.opaque("an argument of " + name + " before the command is not literal")
			return
		}
		i++
	}
	if (name == "flock" || name == "script") && i < len(ws) && ws[i].lit && (ws[i].s == "-c" || ws[i].s == "--command") {
		a.nested(ws, i+1, name)
		return
	}
	if w.assign {
		for i < len(ws) && ws[i].lit && isAssignment(ws[i].s) {
			k, v, _ := strings.Cut(ws[i].s, "=")
			a.assign(k, word{v, true})
			i++
		}
	}
	if i >= len(ws) {
		if w.lone != 0 {
			a.emit(nil, name, w.lone, name+" starts a shell")
		}
		return
	}
	rest := ws[i:]
	switch {
	case w.text:
		a.joined(rest, name, w.more)
	case w.more:
		// What comes from its input is appended, or put in its place.
		in := make([]word, len(rest), len(rest)+1)
		for n, x := range rest {
			if replace == "" || !strings.Contains(x.s, replace) {
				in[n] = x
			}
		}
		a.call(append(in, word{}))
	default:
		a.call(rest)
	}
}

// switchUser is su: the options can stand on both sides of the user's name.
func (a *analyser) switchUser(ws []word, name string) {
	for i, w := range ws[1:] {
		switch {
		case !w.lit:
		case w.s == "-c" || w.s == "--command" || w.s == "--session-command" || len(w.s) > 2 && w.s[0] == '-' && w.s[1] != '-' && strings.HasSuffix(w.s, "c"):
			a.nested(ws, i+2, name)
			return
		case strings.HasPrefix(w.s, "-c"):
			a.script(w.s[2:])
			return
		case strings.HasPrefix(w.s, "--command="):
			a.script(w.s[len("--command="):])
			return
		}
	}
	a.opaque(name + " starts a shell")
}

// joined analyses words that are given to a shell as one text.
// With more, its input adds arguments.
func (a *analyser) joined(ws []word, name string, more bool) {
	var b strings.Builder
	for i, w := range ws {
		if !w.lit {
			a.opaque("the script of " + name + " is not literal")
			return
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w.s)
		if more && strings.Contains(w.s, "{") {
			a.opaque("arguments are put into the command of " + name)
			return
		}
	}
	if more {
		b.WriteString(` "$input"`)
	}
	a.script(b.String())
}

// isAssignment reports whether a word is NAME=VALUE.
func isAssignment(s string) bool {
	i := strings.IndexByte(s, '=')
	if i <= 0 {
		return false
	}
	for j := range i {
		c := s[j]
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (j == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// commandVars hold a command that another program starts. loaderVars decide
// which code or which program a name leads to.
var (
	commandVars = lazyWords(`GIT_SSH GIT_SSH_COMMAND GIT_PAGER GIT_EDITOR GIT_SEQUENCE_EDITOR GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND GIT_ASKPASS SSH_ASKPASS SUDO_ASKPASS PAGER MANPAGER SYSTEMD_PAGER AWS_PAGER GH_PAGER EDITOR VISUAL FCEDIT
 SUDO_EDITOR BROWSER LESSOPEN LESSCLOSE RSYNC_RSH CVS_RSH SVN_SSH PROMPT_COMMAND BORG_RSH DOCKER_CREDENTIAL_HELPER RUSTC RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER CARGO_BUILD_RUSTC_WRAPPER CC CXX LD AR GOTOOLCHAIN MAKE SHELL FZF_DEFAULT_COMMAND`)
	loaderVars = lazyWords(`BASH_ALIASES BASH_CMDS PATH IFS LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH BASH_ENV ENV BASHOPTS SHELLOPTS PS4 PS0 PS1 PYTHONSTARTUP PYTHONPATH PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT NODE_OPTIONS NODE_PATH
 PERL5OPT PERL5LIB PERL5DB RUBYOPT RUBYLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH MAVEN_OPTS MAVEN_ARGS GRADLE_OPTS LUA_INIT PHPRC PHP_INI_SCAN_DIR R_PROFILE_USER R_ENVIRON_USER GOFLAGS TAR_OPTIONS MAKEFLAGS
 GIT_CONFIG GIT_CONFIG_GLOBAL GIT_CONFIG_SYSTEM GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_EXEC_PATH GIT_TEMPLATE_DIR GIT_DIR GIT_WORK_TREE ZDOTDIR HOME XDG_CONFIG_HOME VIMINIT EXINIT INPUTRC TERMINFO GCONV_PATH LOCPATH NLSPATH
 npm_config_script_shell npm_config_node_options NPM_CONFIG_SCRIPT_SHELL BUNDLE_GEMFILE EMACSLOADPATH OPENSSL_CONF RIPGREP_CONFIG_PATH PSQLRC PIP_INDEX_URL`)
)

func words(s string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		m[w] = true
	}
	return m
}

// lazyWords is words, made when they are asked for: a program that starts does
// not pay for tables it will not read.
func lazyWords(s string) func() map[string]bool {
	return sync.OnceValue(func() map[string]bool { return words(s) })
}

// assign looks at one variable that a command gets.
func (a *analyser) assign(name string, v word) {
	switch {
	case v.lit && v.s == "":
	case commandVars()[name]:
		if !v.lit {
			a.opaque("the command in " + name + " is not literal")
			return
		}
		a.opaque(name + " names a command that another program starts")
		a.script(v.s)
	case loaderVars()[name], strings.HasPrefix(name, "GIT_CONFIG_"), strings.HasPrefix(name, "BASH_FUNC_"):
		a.opaque(name + " decides what a name leads to, or which code is loaded")
	case strings.HasPrefix(name, "DOCKER_HOST"), name == "CONTAINER_HOST", name == "KUBECONFIG":
		a.emit(nil, name+"=", effRuntime, "")
	}
}
