package source

// buildRules are files by which package managers and build tools are told what
// to fetch and what to run.
var buildRules = []riskRule{
	{
		id: "package-scripts", why: "a package manager runs programs that it names, or fetches packages from where it says",
		names: []string{"package.json"}, look: lookPackageJSON,
		doc: "Only when something changed that is run or fetched: scripts, bin, hooks, overrides, the package manager, a dependency that is new or does not come from the registry. A file that cannot be parsed counts. A new version of a known dependency does not.",
	},
	{
		id: "package-scripts", why: "a package manager or test runner runs what it names",
		names: []string{"pyproject.toml"}, look: lookPyproject,
		doc: "Only when a section changed that can name something to run or fetch; sections of formatters and plain metadata do not count.",
	},
	{
		id: "package-scripts", why: "it redirects modules, or names tools and toolchains that go fetches and runs",
		names: []string{"go.mod"}, look: lookGoMod,
		doc: "Only when a replace, tool, toolchain or ignore directive changed, or it cannot be read.",
	},
	{
		id: "package-scripts", why: "a package manager installs packages from an address that it names",
		names: []string{"requirements*.txt", "*requirements.txt", "constraints*.txt", "requirements/*.txt", "requirements*.in"}, look: lookAddresses,
		doc: "Only when the addresses or options in it changed.",
	},
	{
		id: "lock-file", why: "packages come from another address than before, or a package runs code when it is installed",
		names: []string{
			"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "deno.lock", "cargo.lock", "poetry.lock", "pdm.lock", "uv.lock", "pipfile.lock", "pylock.toml", "pylock.*.toml", "gemfile.lock", "gems.locked", "composer.lock", "mix.lock", "pubspec.lock", "podfile.lock", "package.resolved", "flake.lock", "conan.lock", "packages.lock.json", "module.bazel.lock", "chart.lock", ".terraform.lock.hcl", "pixi.lock", "rebar.lock", "gradle.lockfile", "verification-metadata.xml", "manifest.toml", "cabal.project.freeze", "stack.yaml.lock",
		},
		look: lookLock,
		doc:  "Only when a host appears that the file did not name before, or when npm's hasInstallScript or pnpm's requiresBuild appears more often. The versions and hashes themselves are not judged.",
	},
	{
		id: "package-manager", why: "it configures a package manager: registries, credentials, plug-ins or hooks that run on install",
		names: []string{
			".npmrc", "npmrc", ".yarnrc", ".yarnrc.yml", ".yarnrc.yaml", ".yarn/plugins/**", ".yarn/releases/**", ".yarn/patches/**", ".yarn/sdks/**", ".pnp.cjs", ".pnp.js", ".pnp.loader.mjs", ".pnpmfile.cjs", ".pnpmfile.mjs", "pnpmfile.js", "pnpm-workspace.yaml", "package.yaml", "package.json5", "bunfig.toml", ".bunfig.toml", "lerna.json", "deno.json", "deno.jsonc", ".noderc", "corepack.json", ".bowerrc", "jsr.json",
			"pip.conf", "pip.ini", ".pip/**", ".pypirc", ".pydistutils.cfg", "pydistutils.cfg", "uv.toml", "poetry.toml", "pdm.toml", ".pdm.toml", "pipfile", "hatch.toml", ".condarc", "condarc", "environment.yml", "environment.yaml", "conda-build.yml", "meta.yaml", "pixi.toml",
			".cargo/**", "rust-toolchain", "rust-toolchain.toml", "go.work", ".goreleaser.yml", ".goreleaser.yaml", ".bundle/**", ".gemrc", "gemrc", ".gem/**", "composer.json", "auth.json", "nuget.config", "paket.dependencies", "paket.references", ".paket/**", "global.json", "dotnet-tools.json", ".config/dotnet-tools.json", "pubspec.yaml", "pubspec_overrides.yaml", "cpanfile", ".mvn/**", "settings.xml", "conanfile.py", "conanfile.txt", ".conan/**", "vcpkg.json", "vcpkg-configuration.json", "podfile", "cartfile", "package.swift", "mix.exs", "rebar.config", "rebar.config.script", "shard.yml", "dub.json", "dub.sdl", "opam", "*.opam", "stack.yaml", "cabal.project", "cabal.project.local", "elm.json", "bower.json", "brewfile", "chart.yaml", "helmfile.yaml", "helmfile.d/**", "galaxy.yml", "manifest.scm", "channels.scm", "guix.scm",
		},
	},
	{
		id: "build-script", why: "a build, install or test command that a person starts runs it",
		names: []string{
			"makefile", "makefile.*", "gnumakefile", "bsdmakefile", "*.mk", "*.mak", "justfile", ".justfile", "*.just", "taskfile.yml", "taskfile.yaml", "taskfile.dist.yml", "taskfile.dist.yaml", "taskfile.*.yml", "magefile.go", "magefiles/**", "earthfile", "doit.cfg", "dodo.py", "fabfile.py", "invoke.y*ml", "noxfile.py", "tox.ini", "pavement.py", "sconstruct", "sconscript", "wscript", "waf", "build.ninja", "meson.build", "meson.options", "meson_options.txt", "tup.config", "tupfile", "xmake.lua", "premake*.lua", "configure", "configure.ac", "configure.in", "autogen.sh", "bootstrap.sh", "makefile.am", "makefile.in", "aclocal.m4",
			"build.rs", "build.zig", "build.zig.zon", "build.sbt", "project/*.sbt", "project/*.scala", "project/build.properties", "build.sc", "build.mill", "project.clj", "deps.edn", "shadow-cljs.edn", "bb.edn", "build.boot", "setup.py", "setup.cfg", "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", "sitecustomize.py", "usercustomize.py", "manage.py", "*.pth", "_manylinux.py", "hatch_build.py", "pdm_build.py", "cibuildwheel.toml", "gemfile", "gems.rb", "*.gemspec", "rakefile", "rakefile.rb", "*.rake", "guardfile", "capfile", "dangerfile*", "fastfile", "fastlane/**", ".rspec", "spec_helper.rb", "binding.gyp", "*.gyp", "*.gypi",
			"build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "*.gradle", "*.gradle.kts", "gradle.properties", "gradlew", "gradlew.bat", "gradle/wrapper/**", "buildsrc/**", "init.gradle*", "libs.versions.toml", "pom.xml", "mvnw", "mvnw.cmd", "build.xml", "ivy.xml", "ivysettings.xml", ".sbtopts", ".jvmopts",
			"directory.build.*", "directory.packages.props", "*.csproj", "*.fsproj", "*.vbproj", "*.vcxproj", "*.targets", "*.props", "msbuild.rsp", "directory.build.rsp", "build.cake", "build.fsx", "nuke/**", ".nuke/**",
			"workspace", "workspace.bazel", "workspace.bzlmod", "module.bazel", "build.bazel", "*.bzl", ".bazelrc", "*.bazelrc", ".bazelversion", ".bazeliskrc", "tools/bazel", ".buckconfig", "buck", "*.bxl", "pants.toml", "please.build", ".plzconfig", "build.plz",
			"cmakepresets.json", "cmakeuserpresets.json", "cmakelists.txt", "*.cmake", "toolchain.cmake", "dune", "dune-project", "dune-workspace", "setup.hs", "setup.lhs", "makefile.pl", "build.pl", "ext/extconf.rb", "extconf.rb", "config.m4", "config.w32",
			"flake.nix", "shell.nix", "default.nix", "*.nix", "tiltfile", "garden.y*ml", "nx.json", "project.json", "turbo.json", "rush.json", "workspace.json", "angular.json", "wireit.json", "moon.yml", ".moon/**", "ava.config.*", "lage.config.*",
		},
	},
	{
		id: "build-script", why: "invoke or fabric, which look for this name, run it",
		names: []string{"tasks.py"}, look: lookTasks,
		doc: "Only when its text mentions one of them: the name is common.",
	},
	{
		id: "tool-config", why: "it is a program, or names plug-ins, that a development tool loads when it starts",
		names: []string{
			"*.config.js", "*.config.cjs", "*.config.mjs", "*.config.ts", "*.config.mts", "*.config.cts", "*.conf.js", "*.conf.cjs", "*.conf.ts", "gulpfile.*", "gulpfile.babel.*", "gruntfile.*", "jakefile", "jakefile.js", "webpack.*.js", "webpack.*.ts", "vite.*.ts", "vitest.setup.*", "jest.setup.*", "jest.preset.*", "karma.*.js",
			".eslintrc", ".eslintrc.*", ".prettierrc.js", ".prettierrc.cjs", ".prettierrc.mjs", ".prettierrc.ts", ".babelrc", ".babelrc.*", "babel.config.json", ".swcrc", ".mocharc.*", ".nycrc*", ".c8rc*", ".taprc", ".stylelintrc*", ".postcssrc*", ".releaserc*", ".commitlintrc*", ".czrc", ".cz.json", ".storybook/**", ".ladle/**", ".size-limit.*", ".dependency-cruiser.*", ".lintr", "tslint.json", "biome.json", "biome.jsonc", ".oxlintrc.json", "nodemon.json", ".nodemonrc", "pm2.config.*", "ecosystem.config.*", "metro.config.*", ".detoxrc*", ".puppeteerrc*", ".playwright/**", "wrangler.toml", "wrangler.json", "wrangler.jsonc", "firebase.json", ".firebaserc", "serverless.y*ml", "serverless.ts",
			"mypy.ini", ".mypy.ini", ".pylintrc", "pylintrc", ".flake8", ".coveragerc", "bandit.yaml", "alembic.ini", "gunicorn.conf.py", "gunicorn_config.py", "uwsgi.ini", "celeryconfig.py", "jupyter_*_config.py", "ipython_config.py", "ipython_kernel_config.py", ".ipython/**", ".jupyter/**", ".streamlit/**", "kernel.json", ".rubocop.yml", ".solargraph.yml", "sorbet/config", "phpunit.xml", "phpunit.xml.dist", "phpstan.neon", "phpstan.neon.dist", ".php-cs-fixer.php", ".php-cs-fixer.dist.php", "psalm.xml", "rector.php", ".phan/**", ".user.ini", ".htaccess", "php.ini", ".perltidyrc", ".perlcriticrc", ".proverc", ".credo.exs", ".formatter.exs", ".golangci.yml", ".golangci.yaml", ".golangci.toml", ".golangci.json", ".custom-gcl.yml", ".air.toml", ".mockery.yaml", "buf.gen.yaml", "sqlc.yaml", "gqlgen.yml", "clippy.toml", ".clippy.toml", "nextest.toml", ".config/nextest.toml", ".swiftlint.yml", ".sourcery.yml", "checkstyle.xml", "lombok.config",
		},
	},
	{
		id: "containers", why: "it defines containers, machines or infrastructure that a person's own tools build and start, with what they may reach",
		names: []string{
			"dockerfile", "dockerfile.*", "*.dockerfile", "containerfile", "containerfile.*", "docker-compose.yml", "docker-compose.yaml", "docker-compose.*.yml", "docker-compose.*.yaml", "compose.yml", "compose.yaml", "compose.*.yml", "compose.*.yaml", "docker-bake.hcl", "docker-bake.json", "docker-bake.override.*", "buildkitd.toml", ".docker/**", ".dockercfg", "podman-compose.y*ml", "*.container", "*.quadlet", "registries.conf", "mkosi.conf",
			".terraformrc", "terraform.rc", "*.tf", "*.tf.json", "*.tfvars", "*.tofu", "terragrunt.hcl", ".tflint.hcl", ".opentofu/**", "pulumi.yaml", "pulumi.*.yaml", "cdk.json", "cdktf.json", "samconfig.toml", "ansible.cfg", ".ansible/**", "inventory.yml", ".kube/**", "kubeconfig", "kustomization.yaml", "kustomization.yml", "packer.json", "*.pkr.hcl", "nomad.hcl", "cloud-init.y*ml", "user-data", ".aws/**", ".boto", ".s3cfg", ".gcloud/**",
		},
	},
	{
		id: "system", why: "a desktop, a service manager or a remote login trusts it where it lies, and people copy it there",
		names: []string{
			"authorized_keys", "authorized_keys2", ".ssh/**", "ssh_config", "sshd_config", "known_hosts", ".shosts", ".rhosts", "*.desktop", ".directory", "autostart/**", "*.service", "*.socket", "*.timer", "*.automount", "*.mount", "systemd/**", ".config/systemd/**", "*.plist", "launchagents/**", "launchdaemons/**", "crontab", "*.crontab", "cron.d/**", "cron.daily/**", "cron.hourly/**", "*.cron", "init.d/**", "rc.local", "sudoers", "sudoers.d/**", "polkit-1/**", "rules.d/**", "udev/**", "profile.d/**", "pam.d/**", ".gnupg/**", "gpg.conf", "gpg-agent.conf", "autorun.inf", "desktop.ini", "*.lnk", "*.url", "*.scf", "*.reg", "*.webloc", "*.inetloc", "*.fileloc", "*.terminal", "*.command", "*.scpt", "*.workflow/**",
		},
	},
}

// installedRules are places of installed or built code: it runs, and nobody
// reads it.
var installedRules = []riskRule{
	{
		id: "installed-code", why: "it lies where installed or built programs are taken from; they run without being read",
		names: []string{
			"node_modules/**", "bower_components/**", "jspm_packages/**", ".yarn/cache/**", ".yarn/unplugged/**", ".pnpm-store/**", ".venv/**", "venv/**", "virtualenv/**", "pyvenv.cfg", "site-packages/**", "dist-packages/**", "__pypackages__/**", "__pycache__/**", "*.pyc", "*.pyo", "*.egg", "*.egg-info/**", "*.egg-link", "*.whl", "*.pyz", "*.pex", ".tox/**", ".nox/**", ".eggs/**", "target/debug/**", "target/release/**", "target/classes/**", "vendor/bundle/**", "vendor/bin/**", "vendor/autoload.php", "vendor/composer/**", ".gradle/**", ".m2/**", ".ivy2/**", ".next/**", ".nuxt/**", ".svelte-kit/**", ".turbo/**", ".parcel-cache/**", ".angular/**", ".nx/**", ".ccache/**", ".sccache/**", ".bazel/**", "bazel-bin/**", "bazel-out/**", ".mypy_cache/**", ".ruff_cache/**", ".pytest_cache/**", ".eslintcache", ".terraform/**", ".dart_tool/**", ".pub-cache/**", ".stack-work/**", "dist-newstyle/**", ".mix/**", "_build/**", ".elixir_ls/**", ".zig-cache/**", "zig-out/**", ".build/**", "deriveddata/**",
			"*.jar", "*.war", "*.ear", "*.class", "*.dex", "*.apk", "*.aab", "*.ipa", "*.dll", "*.exe", "*.msi", "*.scr", "*.sys", "*.so", "*.so.*", "*.dylib", "*.node", "*.pyd", "*.wasm", "*.beam", "*.gem", "*.nupkg", "*.vsix", "*.xpi", "*.crx", "*.deb", "*.rpm", "*.pkg", "*.dmg", "*.appimage", "*.snap", "*.flatpak", "*.phar", "*.o", "*.a", "*.lib", "*.ko", "*.luac", "*.elc",
		},
		doc: "Everything below such a folder counts. Code in folders that a project commits and reviews, as vendor in Go, does not.",
	},
}

// codeRules are judged by code, for every changed path.
var codeRules = []riskRule{
	{id: ruleName, why: "the name is made to be read as another one, or another system takes it for one",
		doc: "Controls, characters that turn or hide text, spaces other than the space, look-alikes of the slash, letters of two alphabets in one word, bytes that are not UTF-8, trailing dots and spaces, backslash and colon, names that Windows reserves. A name that is a risky name but for such characters is listed under that rule as well."},
	{id: ruleTwin, why: "the result has another path that is the same where case or the form of accents does not count",
		doc: "On such a file system one of the two replaces the other. Folders count as well."},
	{id: ruleLink, why: "the link leads out of the tree, into the repository's own folder, or through another link",
		doc: "Links that stay inside, and pass no other link, do not count."},
	{id: ruleGitlink, why: "it makes git expect another repository at this place, or another commit of it"},
	{id: ruleExecutable, why: "a program: a binary, or a script that is new or newly executable",
		doc: "By content: ELF, Mach-O, PE, WebAssembly, compiled Java, and \"#!\" at the beginning. A change of a script that was executable before does not count."},
	{id: ruleMode, why: "the task's file has mode bits that give it the rights of another, or that let everybody write it",
		doc: "Git does not carry these bits, so they do not reach a checkout; who sets them has something in mind."},
	{id: ruleBareRepo, why: "the folder looks like a bare repository, whose configuration git obeys when it is entered"},
	{id: ruleUnread, why: "it could not be examined: it is too large, or too much changed",
		doc: "One file above 64 MiB, or everything after the first GiB of changed content. Names are judged anyway."},
	{id: rulePolicy, why: "the policy names it under risky_files: a reviewer must see it",
		doc: "Patterns of the policy that held when the task was opened, in either case, also for a file that is gone and for a link in the place of a folder."},
	{id: ruleTooMany, why: "there are more risky files than are listed",
		doc: "The list ends after 10,000 entries; this one has no path."},
}
