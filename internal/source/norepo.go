package source

import "errors"

// NoRepo says that an error of Inspect is that there is no repository.
func NoRepo(err error) bool { return errors.Is(err, errNoRepo) }
