package git

import (
	"os"
	"strconv"
	"strings"
)

// neutral is the configuration every call runs under. It comes last, so it
// wins over the configuration file of the repository at hand.
var neutral = []string{
	"core.hooksPath=" + os.DevNull,
	"core.fsmonitor=false",
	"core.untrackedCache=false",
	"core.pager=cat",
	"core.editor=false",
	"sequence.editor=false",
	"core.askPass=false",
	"core.sshCommand=false",
	"core.gitProxy=",
	"core.alternateRefsCommand=:",
	"core.attributesFile=" + os.DevNull,
	"core.excludesFile=" + os.DevNull,
	"core.quotePath=false",
	"core.logAllRefUpdates=false",
	"core.warnAmbiguousRefs=false",
	"core.commitGraph=true",
	"core.protectHFS=true",
	"core.protectNTFS=true",
	"core.filesRefLockTimeout=10000",
	"core.packedRefsTimeout=20000",
	"credential.helper=",
	"credential.interactive=false",
	"diff.external=",
	"diff.ignoreSubmodules=all",
	"diff.mnemonicPrefix=false",
	"diff.noprefix=false",
	"gc.auto=0",
	"gc.autoDetach=false",
	"maintenance.auto=false",
	"submodule.recurse=false",
	"fetch.recurseSubmodules=false",
	"protocol.allow=never",
	"safe.directory=*",
	"safe.bareRepository=explicit",
	"commit.gpgSign=false",
	"tag.gpgSign=false",
	"gpg.program=false",
	"gpg.ssh.program=false",
	"gpg.x509.program=false",
	"log.showSignature=false",
	"log.mailmap=false",
	"uploadpack.packObjectsHook=",
	"transfer.fsckObjects=true",
	"transfer.bundleURI=false",
	"index.sparse=false",
	"core.sparseCheckout=false",
	"advice.graftFileDeprecated=false",
}

// environment returns the complete environment of a call. Nothing of the
// calling process's own environment is inherited.
func environment(c Cmd) []string {
	env := []string{
		"LC_ALL=C",
		"PATH=" + os.DevNull, // git finds its own programs by its built-in exec path
		"GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_ALLOW_PROTOCOL=none",
		"GIT_PROTOCOL_FROM_USER=0",
		"GIT_PROGRESS_DELAY=1",
		"GIT_ASKPASS=false",
		"SSH_ASKPASS=false",
		"GIT_SSH_COMMAND=false",
		"GIT_PAGER=cat",
		"GIT_EDITOR=false",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_ADVICE=0",
		"GIT_TRACE2=0", "GIT_TRACE2_EVENT=0", "GIT_TRACE2_PERF=0",
	}
	if c.UserConfig == nil {
		env = append(env, "HOME="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM="+os.DevNull, "GIT_CONFIG_GLOBAL="+os.DevNull)
	} else {
		env = append(env, c.UserConfig...)
	}
	pairs := make([]string, 0, len(neutral)+len(c.Config))
	pairs = append(pairs, neutral...)
	pairs = append(pairs, c.Config...)
	env = append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(pairs)))
	for i, kv := range pairs {
		k, v, _ := strings.Cut(kv, "=")
		n := strconv.Itoa(i)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+k, "GIT_CONFIG_VALUE_"+n+"="+v)
	}
	return append(env, c.Env...)
}
