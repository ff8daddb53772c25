package linux

// Name is the word a person types after --backend.
const Name = "linux"

// Config is what a driver needs to know of this installation.
type Config struct {
	// Worker returns the path of the static worker program for trials; it is
	// asked only when one is made. The file must be executable by everybody
	// (mode 0111): as root it runs as another id.
	Worker func() (string, error)
}
