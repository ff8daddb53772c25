package linux

// Name is the word a person types after --backend.
const Name = "linux"

// Config is what a driver needs to know of this installation.
type Config struct {
	// WorkerPath is the static worker program, used for trials. It must be
	// executable by everybody (mode 0555): as root it runs as another id.
	WorkerPath string
}
