package detect

import "testing"

// TestHides: what starts a program by an option, by its input or by code of the
// task's files is opaque, or runs code, so that a rule about commands asks; the
// same programs in their everyday use are neither.
func TestHides(t *testing.T) {
	for line, want := range map[string]bool{
		"make -f-": true, "make -f -": true, "make -f- <<X\nall: ; git push\nX": true, "make -sf-": true, "make -kf - x": true, "make --file=-": true, "make --makefile -": true, "gmake --makef=/dev/stdin": true, "bmake -f/dev/fd/3": true,
		"make -C x -f other.mk all": false, "make": false, "make -fMakefile2": false,
		`sqlite3 x.db ".shell git push"`: true, `sqlite3 x.db .system`: true, `sqlite3 x.db "SELECT 1" ".sh git push"`: true, `sqlite3 -cmd ".sy x" x.db "SELECT 1"`: true, "sqlite3 -init x.sql x.db 'SELECT 1'": true, `sqlite3 x.db "SELECT load_extension('x')"`: true, `sqlite3 x.db ".once |git push"`: true, "sqlite3 x.db": true, "sqlite3 x.db < y": true,
		"sqlite3 x.db 'SELECT 1'": false, "sqlite3 x.db .tables": false,
		"gcc -wrapper git,push x.c": true, "gcc -B. x.c": true, "gcc -fplugin=./x.so x.c": true, "gcc -specs=x x.c": true, "cc --specs=x x.c": true, "x86_64-linux-gnu-gcc-13 -wrapper a x.c": true, "clang -Xclang -load -Xclang ./x.so y.c": true, "clang-18 -fplugin=x y.c": true, "clang --config=x y.c": true, "ld -plugin ./x.so y.o": true, "gcc -Wl,-plugin,./x.so y.c": true, "gcc @args": true, "gcc $X -c y.c": true, "ar --plugin x rc y.a": true, "clang -fuse-ld=./x y.c": true,
		"gcc -O2 -Wall -c x.c -o x.o": false, "clang -fuse-ld=lld x.c -lm": false, "ld -Bstatic x.o": false, "ar rcs x.a y.o": false,
		"rustc -C linker=./x y.rs": true, "ghc -pgmF ./x -F y.hs": true, "javac -processor X Y.java": true, "protoc --plugin=x y.proto": true, "cmake -E env git push": true, "cmake -P x.cmake": true,
		"pip install .": true, "pip install -e .": true, "pip3 install ./x[y]": true, "uv pip install .": true, "pip wheel /x": true, "python -m pip install .": true, "pip install x.tar.gz": true,
		"pip install -r requirements.txt": false, "pip list": false,
		"go run .": true, "go run x.go": true, "go generate ./...": true, "go -C x run .": true, "go tool x": true, "go test -exec ./x ./...": true, "go build --toolexec=x ./...": true, "go vet -vettool=x": true, "go build -ldflags=-extld=./x": true, "cargo run": true,
		"go test ./...": false, "go vet ./...": false, "go build ./...": false, "cargo test": false,
		"tclsh x.tcl": true, "tclsh": true, `psql -c '\! git push'`: true, "psql": true, "psql -f x.sql": true, "psql -c 'SELECT 1'": false,
		`mysql -e '\! git push'`: true, "mysql -e 'system git push'": true, "mysql -e 'SELECT 1; system x'": true, "mysql x": true, "mysql -e 'SELECT 1'": false,
		"ftp x": true, "ftp": true, "vim -c '!git push'": true, "less +!x y": true, "less x": false, "man -P x ls": true, "man ls": false,
		`awk 'BEGIN{system("git push")}'`: true, "awk '{print $1}' x": false, "sed '1e git push' x": true, "sed s/a/b/ x": false, "dc -e '!git push'": true,
	} {
		hidden := false
		for _, s := range Script(line, nil).Simple {
			hidden = hidden || s.Opaque || Interprets(s)
		}
		if hidden != want {
			t.Errorf("%s: hidden %v, want %v: %+v", line, hidden, want, Script(line, nil).Simple)
		}
	}
}
