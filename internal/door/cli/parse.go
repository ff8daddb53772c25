package cli

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-dev/caisson/internal/task"
)

// invalid is the usage error of one flag's value.
func invalid(flag, value, why, example string) error {
	return task.Errorf(task.CodeUsage, "cli", "--%s %q: %s", flag, value, why).WithHint("for example --%s %s", flag, example)
}

// parseSize reads a number of bytes with an optional unit; units count in 1024.
func parseSize(flag, s string) (int64, error) {
	const example = "512m, 2g or 1.5g"
	low := strings.ToLower(strings.TrimSpace(s))
	num := strings.TrimRight(low, "abcdefghijklmnopqrstuvwxyz")
	unit := low[len(num):]
	shift, ok := map[string]int{"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30, "t": 40, "tb": 40, "tib": 40}[unit]
	if !ok {
		return 0, invalid(flag, s, "no such unit", example)
	}
	if !plainNumber(num) {
		return 0, invalid(flag, s, "not a size", example)
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil {
		return 0, invalid(flag, s, "not a size", example)
	}
	f *= float64(int64(1) << shift)
	switch {
	case f < 1:
		return 0, invalid(flag, s, "must be above zero; zero would not mean \"no limit\"", example)
	case f >= math.MaxInt64:
		return 0, invalid(flag, s, "too large", example)
	}
	return int64(f), nil
}

// plainNumber admits digits with one decimal point, so no "inf", "1e9", "0x1".
func plainNumber(s string) bool {
	digits, points := 0, 0
	for _, c := range s {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c == '.':
			points++
		default:
			return false
		}
	}
	return digits > 0 && points <= 1
}

func parseCPUs(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !plainNumber(s) {
		return 0, invalid("cpus", s, "not a number of processors", "1.5")
	}
	if f <= 0 {
		return 0, invalid("cpus", s, "must be above zero", "0.5")
	}
	if f > 65536 {
		return 0, invalid("cpus", s, "too large", "1.5")
	}
	return f, nil
}

func parsePids(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strings.HasPrefix(s, "+") {
		return 0, invalid("pids", s, "not a number of processes", "512")
	}
	if n < 1 || n > 1<<22 {
		return 0, invalid("pids", s, "must be between 1 and 4194304", "512")
	}
	return n, nil
}

func parseTimeout(s string) (time.Duration, error) {
	const example = "90s, 30m or 2h30m"
	if days, ok := strings.CutSuffix(s, "d"); ok && plainNumber(days) {
		if f, err := strconv.ParseFloat(days, 64); err == nil && f > 0 && f <= 3650 {
			return time.Duration(f * 24 * float64(time.Hour)), nil
		}
	}
	if plainNumber(s) {
		return 0, invalid("timeout", s, "a unit is missing", example)
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, invalid("timeout", s, "not a duration", example)
	}
	if d <= 0 {
		return 0, invalid("timeout", s, "must be above zero", example)
	}
	return d, nil
}

// parseRO checks DIR[:DIR]; whether it exists is the engine's to say.
func parseRO(s string) error {
	src, dst, two := strings.Cut(s, ":")
	if src == "" {
		return invalid("ro", s, "the folder is missing", "/home/me/go/pkg/mod or /data:/opt/data")
	}
	if two && !strings.HasPrefix(dst, "/") {
		return invalid("ro", s, "the place inside must be an absolute path", src+":/opt/data")
	}
	return nil
}

// parseEnv returns K=V for "K=V", or for "K" with the value K has in env.
func parseEnv(s string, env []string) (string, error) {
	name, _, given := strings.Cut(s, "=")
	if name == "" || strings.ContainsAny(name, " \t\n\x00") {
		return "", task.Errorf(task.CodeUsage, "cli", "--env %q: not a variable name", name).WithHint("for example --env MODE=test, or --env MODE to pass yours on")
	}
	if strings.ContainsRune(s, 0) {
		return "", task.Errorf(task.CodeUsage, "cli", "--env %s: the value contains a NUL byte", name)
	}
	if given {
		return s, nil
	}
	v, ok := lookup(env, name)
	if !ok {
		return "", task.Errorf(task.CodeUsage, "cli", "--env %s: there is no such variable in your environment", name).WithHint("give a value: --env %s=VALUE", name)
	}
	return name + "=" + v, nil
}

// lookup finds the last definition of name, as the C library's first would be
// another: programs that start us with duplicates get what a shell would give.
func lookup(env []string, name string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(env[i], "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// parseNeeds joins several AXIS=LEVEL.
func parseNeeds(into task.Vector, list []string) error {
	for _, s := range list {
		a, l, err := task.ParseNeed(s)
		if err != nil {
			return err
		}
		into[a] = max(into[a], l)
	}
	return nil
}
