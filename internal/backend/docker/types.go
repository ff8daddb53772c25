package docker

// What is asked of an engine and read of its answers: the part of the API that is
// needed, under the API's own names.

type versionInfo struct {
	Version       string
	APIVersion    string `json:"ApiVersion"`
	MinAPIVersion string `json:"MinAPIVersion"`
	Components    []struct{ Name, Version string }
}

// podman reports whether the engine is Podman's.
func (v *versionInfo) podman() bool {
	for _, c := range v.Components {
		if c.Name == "Podman Engine" {
			return true
		}
	}
	return false
}

type systemInfo struct {
	ServerVersion   string
	Driver          string
	SecurityOptions []string
	CgroupVersion   string
	CgroupDriver    string
	MemoryLimit     bool
	SwapLimit       bool
	PidsLimit       bool
	CPUCfsQuota     bool `json:"CpuCfsQuota"`
	MemTotal        int64
	NCPU            int
	OSType          string
	OperatingSystem string
	DefaultRuntime  string
	Rootless        bool // Podman's
	Name            string
}

type imageInfo struct {
	ID          string `json:"Id"`
	Os          string
	RepoDigests []string
	Config      *struct {
		Volumes map[string]struct{}
	}
}

type containerConfig struct {
	Hostname        string
	User            string
	AttachStdin     bool
	AttachStdout    bool
	AttachStderr    bool
	OpenStdin       bool
	StdinOnce       bool
	Env             []string
	Cmd             []string
	Entrypoint      []string
	Image           string
	WorkingDir      string
	Labels          map[string]string
	NetworkDisabled bool
	StopSignal      string
	Healthcheck     *healthcheck `json:",omitempty"`
	HostConfig      *hostConfig  `json:",omitempty"`
}

type healthcheck struct{ Test []string }

type hostConfig struct {
	NetworkMode    string
	IpcMode        string
	PidMode        string
	UTSMode        string
	UsernsMode     string
	CgroupnsMode   string `json:",omitempty"`
	Privileged     bool
	ReadonlyRootfs bool
	CapAdd         []string
	CapDrop        []string
	SecurityOpt    []string
	Tmpfs          map[string]string
	Mounts         []mount
	Memory         int64
	MemorySwap     int64
	NanoCpus       int64
	PidsLimit      int64
	ShmSize        int64
	Ulimits        []ulimit
	LogConfig      logConfig
	RestartPolicy  restartPolicy
	Binds          []string
	MaskedPaths    []string
	ReadonlyPaths  []string
	Devices        []struct{} `json:",omitempty"`
}

type mount struct {
	Type        string
	Source      string
	Target      string
	ReadOnly    bool
	BindOptions *bindOptions `json:",omitempty"`
}

type bindOptions struct{ Propagation string }
type ulimit struct {
	Name       string
	Soft, Hard int64
}
type logConfig struct{ Type string }
type restartPolicy struct{ Name string }

type containerInfo struct {
	ID      string `json:"Id"`
	Created string
	Name    string
	Image   string
	State   struct {
		Status    string
		Running   bool
		Paused    bool
		OOMKilled bool
		Dead      bool
		Pid       int
		ExitCode  int
		Error     string
	}
	Config     *containerConfig
	HostConfig *hostConfig
	Mounts     []struct {
		Type, Source, Destination string
		RW                        bool
	}
}

type containerSummary struct {
	ID     string `json:"Id"`
	Names  []string
	Labels map[string]string
	State  string
}
