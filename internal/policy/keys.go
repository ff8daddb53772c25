package policy

import (
	"slices"

	"github.com/caisson-dev/caisson/internal/task"
)

// Join is how a key's values of several sources become one.
type Join string

// The joins. A key that nobody sets has no effect.
const (
	JoinMax       Join = "highest"      // of levels and times
	JoinMin       Join = "lowest"       // of limits
	JoinUnion     Join = "all together" // of what is denied, demanded or listed
	JoinStrictest Join = "strictest"    // of words that have an order
	JoinOr        Join = "or"           // true when one says so
	JoinAnd       Join = "and"          // true when nobody says otherwise
	JoinIntersect Join = "what all allow"
	JoinRequest   Join = "asked for"       // counts inside a ceiling only
	JoinRisk      Join = "riskiest"        // of characteristics
	JoinOnce      Join = "one file only"   // set in two files of one source it is an error
	JoinFirst     Join = "most trusted"    // source that says something
	JoinNone      Join = "each file's own" // not joined
)

// Key says all there is to know about one key of a policy file.
type Key struct {
	Path  string // with {} for a key of a mapping that the writer chooses and [] for an item of a list
	From  []task.Source
	Join  Join
	Doc   string // one or two sentences
	Words string // the values, where Doc does not say them
}

// May says whether the source may set the key.
func (k Key) May(s task.Source) bool { return slices.Contains(k.From, s) }

var (
	operators = []task.Source{task.SourceDefault, task.SourceOperator, task.SourceUser}
	anybody   = []task.Source{task.SourceDefault, task.SourceOperator, task.SourceUser, task.SourceEnv, task.SourceFlag, task.SourceAgent, task.SourceProject, task.SourceTask, task.SourceModel}
	askers    = []task.Source{task.SourceUser, task.SourceEnv, task.SourceFlag, task.SourceAgent, task.SourceProject, task.SourceTask, task.SourceModel}
	files     = []task.Source{task.SourceDefault, task.SourceOperator, task.SourceUser, task.SourceProject, task.SourceTask}
	persons   = []task.Source{task.SourceDefault, task.SourceOperator, task.SourceUser, task.SourceEnv, task.SourceFlag}
)

// Keys lists every key of a Document, each before those below it.
var Keys = []Key{
	{"version", anybody, JoinNone, "The version of this syntax. Every file has it.", "1"},

	{"floors", operators, JoinMax, "The least level per axis, for every task. Nobody below can lower it, and no acceptance goes below it.", "AXIS: LEVEL"},
	{"raise", anybody, JoinMax, "A higher level per axis.", "AXIS: LEVEL"},

	{"base", operators, "all together", "What every task may reach. A user who has an operator beside them can only ask for it, inside delegate.user.", "what may be reached"},
	{"delegation", operators, JoinStrictest, "none: no request of a lower source counts, whatever the ceilings say.", "ceilings, none"},
	{"delegate", operators, JoinIntersect, "The ceilings: what each source below may ask for. A ceiling grants nothing, and a request that is not inside it as a whole is refused, never cut. Nothing of this version asks as task or model.", "SOURCE: ceiling; sources are user, agent, project, task, model"},
	{"delegate.{}.mode", operators, JoinStrictest, "How a request inside the ceiling is honoured: at once, at once in a trusted repository and else after a question, or after a question. Not given: ask.", "auto, trusted, ask"},
	{"deny", anybody, JoinUnion, "What nobody may reach. It counts before everything that grants.", "what may be reached"},
	{"request", askers, JoinRequest, "What the task may reach beside base.", "what may be reached"},

	{"characteristics", anybody, JoinRisk, "What is true of the task. Statements only add risk: of several the riskiest counts, and what a detector found stays.", "CHARACTERISTIC: VALUE, or a list; yes and no may be true and false"},
	{"lower", operators, JoinUnion, "A characteristic that is less risky than others say, for one repository and until a day.", "list"},
	{"lower[].characteristic", operators, JoinNone, "Any but concurrency, which is computed, and code_trust, which trust is about.", "a characteristic"},
	{"lower[].value", operators, JoinNone, "The value that counts instead of riskier ones.", "a value of it"},
	{"lower[].repo", operators, JoinNone, "The repositories: host and path of the remote called origin, or the absolute path of the checkout. A last /* is one more part, /** any number.", "pattern"},
	{"lower[].ref", operators, JoinNone, "The full name of the branch or tag that the task starts from. Not given: any.", "refs/heads/main"},
	{"lower[].expires", operators, JoinNone, "The last day, in UTC.", "2027-03-01"},
	{"lower[].reason", operators, JoinNone, "Why, for those who read it later.", "text"},
	{"trust", operators, JoinUnion, "Repositories whose code is known: code_trust is trusted there until a day.", "list"},
	{"trust[].repo", operators, JoinNone, "As in lower.", "pattern"},
	{"trust[].ref", operators, JoinNone, "As in lower.", "refs/heads/main"},
	{"trust[].expires", operators, JoinNone, "The last day, in UTC.", "2027-03-01"},
	{"trust[].reason", operators, JoinNone, "Why.", "text"},
	{"allow_trust", operators, JoinAnd, "false: a person cannot say with --trust or `caisson trust` that they know a repository's code; only trust above says so.", "true, false"},
	{"trusted_checks", operators, JoinUnion, "Commands that load no code of the repository, so that a task which runs nothing else needs less.", "list"},
	{"trusted_checks[].argv", operators, JoinNone, "The command, after which only names of files may follow: the program's name as found on the person's PATH, or its absolute path, and words.", "list of words"},
	{"trusted_checks[].executes", operators, JoinNone, "What they execute at most.", "none, checks"},
	{"trusted_checks[].sha256", operators, JoinNone, "Digest of the program's file, in hex. Another file of that name is no trusted check.", "64 hex digits"},
	{"suppress", operators, JoinUnion, "Rules of detectors that do not count. Each is recorded with the task.", "list"},
	{"suppress[].rule", operators, JoinNone, "The rule's id, as `caisson plan` prints it.", "MIG-02"},
	{"suppress[].repo", operators, JoinNone, "As in lower. Not given: every repository.", "pattern"},
	{"suppress[].reason", operators, JoinNone, "Why.", "text"},

	{"acceptance", operators, JoinNone, "How a person may accept that a layer is missing.", ""},
	{"acceptance.max_ttl", operators, JoinMin, "The longest time for which somebody may accept.", "8h"},
	{"acceptance.min_assurance", operators, JoinMax, "How sure it must be, per axis, that a person accepts; default is for axes that are not named.", "AXIS or default: none, tty, os-auth, hardware"},
	{"acceptance.delegable", operators, JoinIntersect, "Axes on which a user may accept what is else the operator's to accept, where the table of acceptances allows it.", "list of axes"},
	{"acceptances", operators, JoinUnion, "Gaps that are accepted beforehand, also where nobody is there.", "list"},
	{"acceptances[].axis", operators, JoinNone, "The axis.", "an axis"},
	{"acceptances[].level", operators, JoinNone, "The least level that is accepted there.", "level"},
	{"acceptances[].repo", operators, JoinNone, "As in lower.", "pattern"},
	{"acceptances[].ref", operators, JoinNone, "As in lower.", "refs/heads/main"},
	{"acceptances[].expires", operators, JoinNone, "The last day, in UTC.", "2027-03-01"},
	{"acceptances[].reason", operators, JoinNone, "Why.", "text"},

	{"decision_hook", operators, JoinUnion, "A program or a server that is asked about each decision and may answer deny or ask. It never allows what the rules do not; no answer in time is deny. Those of several files are all asked.", ""},
	{"decision_hook.exec", operators, JoinNone, "The program, by its absolute path, and its words. It reads the question as JSON on standard input.", "list of words"},
	{"decision_hook.http", operators, JoinNone, "The server that the question is posted to. Without TLS only a loopback address.", "https://…"},
	{"decision_hook.timeout", operators, JoinNone, "How long it may take; 2s when not given, 1m at most.", "2s"},

	{"tools", anybody, JoinNone, "Rules about tool calls. deny counts before ask and ask before allow.", ""},
	{"tools.default", anybody, JoinStrictest, "What becomes of a call that no rule names.", "allow, ask, deny"},
	{"tools.deny", anybody, JoinUnion, "Calls that are refused.", "list of rules"},
	{"tools.ask", anybody, JoinUnion, "Calls that a person is asked about.", "list of rules"},
	{"tools.allow", operators, JoinUnion, "Calls that tools.default does not hold for. It takes nothing from deny and ask.", "list of rules"},
	{"tools.frozen", anybody, JoinOr, "true: a command that a person allowed starts on exactly the files that were there when it was asked about.", "true, false"},
	{"tools.wait", anybody, JoinMin, "How long a question waits for its answer.", "10m"},

	{"backends", persons, JoinNone, "What may make boundaries.", ""},
	{"backends.prefer", persons, JoinFirst, "Which is taken first, of those that give what a task needs.", "list of names"},
	{"backends.allowed", persons, JoinIntersect, "All that may be taken.", "list of names"},

	{"limits", anybody, JoinNone, "The most that one task gets.", ""},
	{"limits.memory", anybody, JoinMin, "Memory.", "2g"},
	{"limits.cpus", anybody, JoinMin, "Processors.", "1.5"},
	{"limits.pids", anybody, JoinMin, "Processes and threads.", "512"},
	{"limits.disk", anybody, JoinMin, "Disk.", "10g"},
	{"limits.timeout", anybody, JoinMin, "Time from its opening to its end.", "2h"},
	{"limits.net_bytes", anybody, JoinMin, "What may leave and come in by its way out, both together and as long as it lives.", "10g"},
	{"limits.net_connections", anybody, JoinMin, "Connections that are open at a time by its way out; 1024 when not given.", "100"},
	{"limits.net_rate", anybody, JoinMin, "New connections a second, refused ones among them; 500 when not given. Who is faster waits, and after 20 seconds is refused.", "50"},
	{"budget", operators, JoinNone, "The most that all tasks of one user get together.", ""},
	{"budget.tasks", operators, JoinMin, "Open tasks.", "8"},
	{"budget.memory", operators, JoinMin, "Memory.", "16g"},
	{"budget.cpus", operators, JoinMin, "Processors.", "6"},
	{"budget.disk", operators, JoinMin, "Disk.", "100g"},
	{"budget.when_full", operators, JoinStrictest, "What happens to a task for which nothing is left.", "wait, refuse"},
	{"retention", files, JoinNone, "How long things stay.", ""},
	{"retention.evidence", files, JoinMax, "Evidence, at least. caisson removes none by itself, however old.", "90d"},
	{"retention.environments", files, JoinMin, "Files of ended tasks, at most.", "72h"},

	{"unattended", anybody, JoinOr, "true: nobody is there to answer questions.", "true, false"},
	{"unwatched_after", operators, JoinMin, "Without a person's doing for this long, a task that asks nobody counts as broad-unsupervised.", "60m"},
	{"net", anybody, JoinStrictest, "The most of the network that a task may have.", "open, registries, allowlist, none"},

	{"credentials", operators, JoinFirst, "Secrets that stay on the host, by handle, and what they may be used for. A handle grants nothing: base, delegate and --lend say who is lent it, and --net must let its destinations be reached.", "HANDLE: credential"},
	{"credentials.{}.from", operators, JoinNone, "Where it is read on the host, when it is first used: one of env, file, command, keyring, agent.", ""},
	{"credentials.{}.from.env", operators, JoinNone, "A variable of whoever starts the task. Of as: sigv4 the variable of the key's id; those of its secret and its session are looked for beside it.", "GITHUB_TOKEN"},
	{"credentials.{}.from.file", operators, JoinNone, "A file that nobody but its owner can read.", "~/.config/token"},
	{"credentials.{}.from.command", operators, JoinNone, "A program by its absolute path, and words: what it prints is the secret. It runs on the host, with an environment of a few variables and in no folder of the task's, for 30 seconds at most.", "[/usr/bin/gh, auth, token]"},
	{"credentials.{}.from.keyring", operators, JoinNone, "Attributes of an entry of the keyring (Secret Service), asked for with secret-tool.", "ATTRIBUTE: value"},
	{"credentials.{}.from.agent", operators, JoinNone, "true: the SSH agent of whoever starts the task, for as: ssh.", "true"},
	{"credentials.{}.as", operators, JoinNone, "How it is given to a request: a header field of its kind, a signature of AWS, the usual field of a model's API, what git asks for, a key of SSH.", "bearer, basic, header, sigv4, anthropic, openai, google, git, ssh"},
	{"credentials.{}.class", operators, JoinNone, "What it opens. Not given: prod, of which each use is asked about.", "dev, prod"},
	{"credentials.{}.to", operators, JoinNone, "Where it may be used. Not given: the API of as: anthropic, openai and google; of others it is an error.", "list"},
	{"credentials.{}.to[].host", operators, JoinNone, "One name or address, and a port where it is not the usual one (443, of ssh 22).", "api.example.com:8443"},
	{"credentials.{}.to[].methods", operators, JoinNone, "HTTP methods; not given: every.", "GET, POST"},
	{"credentials.{}.to[].path", operators, JoinNone, "A path of the URL and everything below it; not given: every.", "/repos/acme"},
	{"credentials.{}.env", operators, JoinNone, "Variables that hold a placeholder inside, which means nothing anywhere else.", "list of names"},
	{"credentials.{}.set", operators, JoinNone, "Variables that are set beside it and are no secret, such as where an API is.", "OPENAI_BASE_URL: https://llm.example.com/v1"},
	{"credentials.{}.form", operators, JoinNone, "How the placeholder begins, for programs that look at the form of a token.", "ghp_"},
	{"credentials.{}.inject", operators, JoinNone, "present: where the placeholder stands in its field. always: also where the field is not there.", "present, always"},
	{"credentials.{}.user", operators, JoinNone, "The name of the user, of as: basic and git; of ssh the one user that may log in (not given: any).", "x-access-token"},
	{"credentials.{}.header", operators, JoinNone, "The header field, of as: header.", "X-Api-Key"},
	{"credentials.{}.region", operators, JoinNone, "The region that is signed for, of as: sigv4.", "eu-central-1"},
	{"credentials.{}.service", operators, JoinNone, "The service that is signed for, of as: sigv4.", "s3"},
	{"credentials.{}.keys", operators, JoinNone, "Of as: ssh the keys that are lent, by fingerprint or, where one key alone has it, by comment; a certificate by the fingerprint of the whole alone. Not given: the one key that was read.", "SHA256:…, deploy@laptop"},
	{"credentials.{}.host_keys", operators, JoinNone, "Of as: ssh the public keys of its destinations. Not given: those that ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts have.", "ssh-ed25519 AAAA…"},
	{"credentials.{}.sign", operators, JoinNone, "Of as: ssh the namespaces of documents that may be signed, such as commits. Not given: no document is.", "git"},
	{"credentials.{}.lifetime", operators, JoinNone, "How long it is held in memory after it was read; then it is read again. 1h when not given, 24h at most.", "1h"},
	{"credentials.{}.uses", operators, JoinNone, "How many times one task may use it. Not given: without a bound.", "100"},
	{"credentials.{}.approve", operators, JoinNone, "Whether a person is asked: about each use, about the first in a task, never. Of class prod always each.", "each, once, never"},

	{"outward", anybody, JoinNone, "Requests on their way out that stop for a person. They are known where they are read: plain HTTP, and TLS that the gate ends.", ""},
	{"outward.verdict", anybody, JoinStrictest, "What becomes of requests that change what others see, or what nobody takes back: git push, publishing a package or an image, DELETE, mutations of GraphQL, writing to a code host's interface.", "allow, ask, deny"},
	{"outward.ask", anybody, JoinUnion, "Further requests that a person is asked about each time, as a whole: host or cidr, ports, methods, path. A connection that cannot be read is asked about where it may carry one.", "list"},
	{"outward.read", operators, JoinUnion, "Hosts whose TLS the gate ends for a task that may reach them, so that these requests are seen.", "list of hosts"},

	{"services", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinFirst, "Services that the task gets for itself, by name.", "NAME: service"},
	{"services.{}.driver", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "What makes it.", "native, builtin, compose, shared, external"},
	{"services.{}.kind", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "What it is.", "postgres, mysql, redis, s3, smtp, nats, …"},
	{"services.{}.version", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "Which version, in quotes.", `"17"`},
	{"services.{}.file", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "The Compose file, of the driver compose.", "compose.yaml"},
	{"services.{}.service", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "Its name in the Compose file; not given: the same.", "name"},
	{"services.{}.migrate", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "The command that brings the schema up; it runs inside.", "list of words"},
	{"services.{}.seed", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "A file of the repository with the first data.", "db/seed.sql"},
	{"services.{}.env", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "Variables that tell the task where it is.", "NAME: template"},
	{"services.{}.port", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "The port that it listens on inside.", "5432"},
	{"services.{}.depends_on", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "Services that come first.", "NAME: {condition: started, healthy or completed}"},
	{"services.{}.ready", []task.Source{task.SourceUser, task.SourceProject, task.SourceTask}, JoinNone, "How it is seen to be ready: one of exec, http, tcp, log, protocol, with period, timeout and failures.", ""},
	{"checks", files, JoinUnion, "Commands that verify a result, by name: `caisson check TASK NAME` runs one. The operator's and the user's come first; of one name the most trusted counts.", "list"},
	{"checks[].name", files, JoinNone, "The name.", "unit"},
	{"checks[].run", files, JoinNone, "The command; it runs inside.", "list of words"},
	{"risky_files", anybody, JoinUnion, "Further files that a reviewer must see before a result reaches a checkout: ** is any number of folders, * and ? stay in one.", "list of patterns"},
	{"tests", files, JoinNone, "Questions and the answers that are expected; `caisson policy test` runs them.", "list"},
}
