package policy

// Registries are the hosts of the usual package registries.
var Registries = []Host{
	"registry.npmjs.org", "registry.yarnpkg.com", "pypi.org", "files.pythonhosted.org", "proxy.golang.org", "sum.golang.org",
	"static.crates.io", "index.crates.io", "crates.io", "rubygems.org", "index.rubygems.org", "repo.maven.apache.org", "repo1.maven.org",
	"plugins.gradle.org", "api.nuget.org", "repo.packagist.org", "hex.pm", "repo.hex.pm",
}
