package docker

// The words that a person types after --backend.
const (
	Docker = "docker"
	Podman = "podman"
)

// OwnVariable names the engine for this program alone, before all that the engines'
// own command lines look at.
const OwnVariable = "CAISSON_ENGINE"

// Config is what a driver needs to know of this installation.
type Config struct {
	// Worker returns the path of the static worker program for trials; it is asked
	// only when one is made.
	Worker func() (string, error)
	// Dir is where the generated parts of roots lie, a folder per boundary. The
	// engine must see it.
	Dir string
	// Getenv reads the person's environment: where their engine is.
	Getenv func(string) string
}
