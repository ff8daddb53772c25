package source

import (
	"strings"

	"github.com/caisson-dev/caisson/internal/task"
)

// Shim is a program called git for a boundary whose source has its git masked.
// In the task's source it says where git runs instead of letting the real one
// fail at the empty mask; everywhere else, and for what needs no repository,
// it becomes the next git on PATH.
func Shim(o ShimOptions) string {
	why := "git runs on the host"
	hint := "on the host, caisson diff " + string(o.Task) + " shows the changes; a task opened with --source clone has a git of its own"
	if !o.Repo {
		why = "the folder is in no repository"
		hint = "on the host, caisson diff " + string(o.Task) + " shows the changes"
	}
	return strings.NewReplacer("@DIR@", shellQuote(o.Dir), "@SOURCE@", shellQuote(o.Target), "@TASK@", string(o.Task), "@WHY@", why, "@HINT@", hint).Replace(shim)
}

// ShimOptions says for which boundary the program is.
type ShimOptions struct {
	Dir    string // the folder inside that it is put into
	Target string // the source's path inside
	Task   task.ID
	Repo   bool // the source is of a repository
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

const shim = `#!/bin/sh
# Written by caisson: the source of this task has no git inside.
self=@DIR@ source=@SOURCE@
real=
unset CDPATH
set -f
IFS=:
for d in $PATH; do
	[ "$d" = "$self" ] && continue
	if [ -f "$d/git" ] && [ -x "$d/git" ]; then
		real=$d/git
		break
	fi
done
unset IFS
if [ -z "$real" ]; then
	echo "git: not found" >&2
	exit 127
fi
# The command word, and the folder that git would start in.
word= dir=$PWD skip= own=${GIT_DIR-}
for a do
	case $skip in
	dir)
		case $a in /*) dir=$a ;; *) dir=$dir/$a ;; esac
		skip=
		continue
		;;
	git) own=$a skip= ; continue ;;
	any) skip= ; continue ;;
	esac
	case $a in
	-C) skip=dir ;;
	--git-dir) skip=git ;;
	--git-dir=*) own=${a#--git-dir=} ;;
	-c | --work-tree | --namespace | --exec-path | --config-env | --attr-source) skip=any ;;
	--version | -v | --help | -h | --exec-path* | --html-path | --man-path | --info-path) exec "$real" "$@" ;;
	-*) ;;
	*)
		word=$a
		break
		;;
	esac
done
[ -n "$own" ] && exec "$real" "$@"
dir=$(cd -P -- "$dir" 2>/dev/null && pwd -P) || exec "$real" "$@"
case $dir/ in
"$source"/*) ;;
*) exec "$real" "$@" ;;
esac
# A repository made inside the source is nearer than the mask.
up=$dir
while [ "$up" != "$source" ]; do
	[ -e "$up/.git" ] && exec "$real" "$@"
	up=${up%/*}
done
case $word in
'' | help | version | clone | ls-remote) exec "$real" "$@" ;;
init)
	for a do last=$a; done
	case $last in init | . | -*) ;; *) exec "$real" "$@" ;; esac
	[ "$dir" != "$source" ] && exec "$real" "$@"
	;;
apply | hash-object | stripspace | check-ref-format | interpret-trailers | mailinfo | mailsplit | patch-id | column | credential*)
	GIT_DIR=$self/none exec "$real" "$@"
	;;
config | diff | grep)
	for a do
		case $a in
		--global | --system | --file | --file=* | -f | --no-index) GIT_DIR=$self/none exec "$real" "$@" ;;
		esac
	done
	;;
esac
echo "git: the source of task @TASK@ has no git inside: @WHY@" >&2
echo "hint: @HINT@" >&2
exit 128
`
