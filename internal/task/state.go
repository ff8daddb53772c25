package task

// State is where a task stands in its life. One vocabulary for code, JSON and
// documents; docs/DESIGN.md draws the transitions.
type State string

// The task states.
const (
	Planned  State = "planned"  // recorded, nothing created
	Blocked  State = "blocked"  // a required layer is missing; nothing was executed
	Creating State = "creating" // resources are being made
	Probing  State = "probing"  // the boundary stands and is being measured
	Ready    State = "ready"    // commands may run
	Paused   State = "paused"   // frozen
	Closing  State = "closing"  // work is being rescued, resources removed
	Closed   State = "closed"   // everything is confirmed gone
	Kept     State = "kept"     // processes are gone, files stay until Until
	Stuck    State = "stuck"    // a cleanup failed; still ours, retried
)

// next lists the legal transitions.
var next = map[State][]State{
	Planned:  {Blocked, Creating, Closing},
	Blocked:  {Closing},
	Creating: {Blocked, Probing, Closing, Stuck},
	Probing:  {Blocked, Ready, Closing, Stuck},
	Ready:    {Paused, Closing, Stuck},
	Paused:   {Ready, Closing, Stuck},
	Closing:  {Closed, Kept, Stuck},
	Kept:     {Closing, Creating, Stuck},
	Stuck:    {Closing, Stuck},
}

// MayBecome reports whether a task in state s may go to t.
func (s State) MayBecome(t State) bool {
	for _, n := range next[s] {
		if n == t {
			return true
		}
	}
	return false
}

// Live reports whether processes may exist in this state.
func (s State) Live() bool {
	return s == Creating || s == Probing || s == Ready || s == Paused || s == Closing
}

// ResourceState is where one recorded resource stands.
type ResourceState string

// The resource states.
const (
	Intent   ResourceState = "intent"   // about to be made; may or may not exist
	Present  ResourceState = "present"  // was seen to exist
	Removing ResourceState = "removing" // is being removed; may or may not exist
	Gone     ResourceState = "gone"     // absence was observed
	RStuck   ResourceState = "stuck"    // removal failed; still ours
)
