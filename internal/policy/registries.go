package policy

import "strings"

// Registries are the hosts of the usual package registries.
var Registries = []Host{
	"registry.npmjs.org", "registry.yarnpkg.com", "pypi.org", "files.pythonhosted.org", "proxy.golang.org", "sum.golang.org",
	"static.crates.io", "index.crates.io", "crates.io", "rubygems.org", "index.rubygems.org", "repo.maven.apache.org", "repo1.maven.org",
	"plugins.gradle.org", "api.nuget.org", "repo.packagist.org", "hex.pm", "repo.hex.pm",
}

// offering are further hosts where what is written is offered to others.
var offering = []Host{"npm.pkg.github.com", "uploads.github.com", "www.nuget.org", "jsr.io", "pub.dev", "central.sonatype.com", "oss.sonatype.org", "s01.oss.sonatype.org"}

// TakesPackages says whether a host, or one above it, is a package registry.
func TakesPackages(host string) bool {
	for _, l := range [][]Host{Registries, offering} {
		for _, h := range l {
			if host == string(h) || strings.HasSuffix(host, "."+string(h)) {
				return true
			}
		}
	}
	return false
}
