package source

// trustedRules are files that git, agents, shells, editors and services take
// orders from.
var trustedRules = []riskRule{
	{
		id: "git-directory", why: "git takes it for a repository's own folder, whose configuration and hooks it runs",
		names: []string{".git", ".git/**", "git~1", "git~1/**", ".bare/**"},
	},
	{
		id: "git-hooks", why: "git or a hook manager runs it on commit, checkout, merge or push",
		names: append([]string{
			".githooks/**", ".git-hooks/**", "githooks/**", "git-hooks/**", ".husky/**", ".husky.json", ".huskyrc", ".huskyrc.*", "husky.config.*",
			".pre-commit-config.yaml", ".pre-commit-config.yml", ".pre-commit-hooks.yaml", "prek.toml", ".overcommit.yml",
			"lefthook.*", ".lefthook.*", "lefthook-local.*", ".lefthook-local.*", ".lefthook/**", ".lefthook-local/**", ".config/lefthook*",
			".lintstagedrc", ".lintstagedrc.*", "lint-staged.config.*", ".simple-git-hooks.*", "simple-git-hooks.*", ".captain-hook/**", "captainhook.json", "grumphp.yml", "grumphp.yml.dist", ".cargo-husky/**", ".hooks/**",
		}, hooksIn("hooks")...),
		lost: "a check that ran before commits or pushes is gone",
	},
	{
		id: "git-attributes", why: "it tells git how to convert, compare or merge files, also by programs that the user's configuration names",
		names: []string{".gitattributes", "gitatt~1", "gitatt~2", "gitatt~3", "gitatt~4", "gi7d29*", "info/attributes"},
		lost:  "the rules by which git converts, compares or merges files are gone",
		look:  lookAttributes,
		doc:   "The reason names the attributes whose lines changed. A filter, diff or merge driver starts a program that the user's own configuration defines.",
	},
	{
		id: "git-modules", why: "it says from where git fetches other repositories into the checkout",
		names: []string{".gitmodules", "gitmod~1", "gitmod~2", "gitmod~3", "gitmod~4", "gi7eba*"},
		lost:  "the list of the repositories below this one is gone",
	},
	{
		id: "git-config", why: "it is configuration that git or an extension of it follows, or that a person includes",
		names: []string{".gitconfig", ".gitconfig.*", "gitconfig", ".config/git/**", ".lfsconfig", ".gitreview", ".git-credentials", ".gitproxy"},
	},
	{
		id: "caisson-policy", why: "it is a request to caisson's policy, or instructions about it",
		names: []string{".caisson.yaml", ".caisson.yml", ".caisson/**"},
		lost:  "what the project demanded of its boundaries is gone",
	},
	{
		id: "agent-settings", why: "a coding agent takes settings, tools, hooks or commands from it and may start programs it names",
		names: []string{
			".mcp.json", "mcp.json", ".mcp/**", "mcp.*.json", ".mcp.*.json", "mcp_config.json", "mcp_settings.json", "cline_mcp_settings.json", "mcp-servers.json",
			".claude/**", ".claude.json", ".claude-plugin/**", "claude_desktop_config.json", ".cursor/**", ".gemini/**", "gemini-extension.json", ".codex/**", ".qwen/**", "qwen-extension.json",
			".aider*", ".continue/**", ".continuerc.json", ".windsurf/**", ".codeium/**", ".opencode/**", "opencode.json", "opencode.jsonc", ".crush.json", "crush.json", ".crush/**",
			".goose/**", ".goosehints", ".amp/**", ".factory/**", ".droid/**", ".kiro/**", ".amazonq/**", ".roo/**", ".roomodes", ".kilocode/**", ".kilocodemodes", ".cline/**", ".augment/**",
			".trae/**", ".junie/**", ".zed/**", ".copilot/**", ".openhands/**", ".agents/**", ".agent/**", ".warp/**", ".tabnine/**", ".pi/**", ".plandex*/**", ".devin/**", ".jules/**", ".firebender/**", "firebender.json",
			".rovodev/**", ".forge/**", "forge.yaml", ".swe-agent/**", ".sourcegraph/**", ".cody/**", ".iflow/**", ".kimi/**", ".auggie/**", ".serena/**", ".taskmaster/**", ".superdesign/**", ".subagents/**", ".tool-env",
			".github/hooks/**", ".github/agents/**", ".github/chatmodes/**", ".github/prompts/**", ".github/skills/**",
		},
		lost: "settings that may have restricted a coding agent are gone",
	},
	{
		id: "agent-instructions", why: "a coding agent reads it as instructions",
		names: []string{
			"agents.md", "agents.override.md", "agent.md", "claude.md", "claude.local.md", "gemini.md", "qwen.md", "codex.md", "crush.md", "goose.md", "warp.md", "copilot.md", "junie.md", "opencode.md", "iflow.md", "replit.md",
			".cursorrules", ".cursorignore", ".cursorindexingignore", ".windsurfrules", ".clinerules", ".clinerules/**", ".clineignore", ".roorules", ".roorules*", ".rooignore", ".kilocoderules", ".rules", ".ai-rules", ".junierules",
			".github/copilot-instructions.md", ".github/instructions/**", "*.instructions.md", "*.prompt.md", "*.chatmode.md", "*.agent.md", "skill.md", ".geminiignore", ".qwenignore", ".aiexclude", ".aiignore", ".codeiumignore", ".augment-guidelines",
		},
		lost: "instructions that may have restricted a coding agent are gone",
	},
	{
		id: "shell-environment", why: "a shell, direnv or a version manager loads it when a person enters the folder or starts a program there",
		names: []string{
			".envrc", ".envrc.*", ".env", ".env.*", "*.env", ".direnv/**", ".direnvrc", "direnvrc", "direnv.toml", ".autoenv.zsh", ".autoenv", ".localrc", ".flaskenv",
			"mise.toml", ".mise.toml", "mise.*.toml", ".mise.*.toml", ".mise/**", ".config/mise/**", ".config/mise.toml", ".mise-tasks/**", "mise-tasks/**", "mise/config.toml", ".rtx.toml", ".tool-versions", ".asdfrc", ".sdkmanrc",
			".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".mkshrc", ".cshrc", ".tcshrc", ".login", ".logout", ".inputrc", ".shrc",
			"config.fish", ".config/fish/**", ".config/nushell/**", "microsoft.powershell_profile.ps1", "profile.ps1", ".psqlrc", ".sqliterc", ".my.cnf", ".mylogin.cnf", ".irbrc", ".pryrc", ".pdbrc", ".gdbinit", ".lldbinit", "lldbinit", ".pythonrc", ".pythonstartup", ".iex.exs", ".ghci", ".rprofile", ".renviron", ".octaverc", ".screenrc", ".tmux.conf", ".config/tmux/**", ".byobu/**",
			".wgetrc", ".curlrc", "_curlrc", ".netrc", "_netrc", ".pam_environment", ".xinitrc", ".xsession", ".xprofile", ".config/environment.d/**", "devbox.json", ".devbox/**", "devenv.nix", "devenv.yaml", "devenv.lock", ".hermit/**", ".flox/**", ".proto/**", ".prototools", ".oprc",
		},
	},
	{
		id: "editor-settings", why: "an editor takes tasks, programs or settings from it when the folder is opened",
		names: []string{
			".vscode/**", "*.code-workspace", ".vscode-test.*", ".vscodeignore", ".idea/**", "*.iml", "*.ipr", "*.iws", ".run/*", ".fleet/**", ".vs/**", "*.sublime-project", "*.sublime-workspace", "*.sublime-build", ".nova/**",
			".vimrc", "_vimrc", ".gvimrc", "_gvimrc", ".nvimrc", ".nvim.lua", ".exrc", "_exrc", ".lvimrc", ".local.vimrc", ".vim/**", ".nvim/**", ".neoconf.json", ".vimspector.json", ".projections.json", "coc-settings.json", ".dir-locals.el", ".dir-locals-2.el", ".emacs", ".emacs.d/**", ".helix/**", ".kakrc", ".kak/**", ".lite_project.lua", ".kateconfig", ".kateproject", ".kateproject.build",
			".project", ".classpath", ".factorypath", ".externaltoolbuilders/**", ".settings/**", ".netbeans*", "nbproject/**", "nbactions.xml", "*.xcscheme", "*.xcworkspace/**", "*.pbxproj", "*.csproj.user", "*.suo", ".theia/**", ".lapce/**", ".bloop/**", ".metals/**", ".ensime*", "pyrightconfig.json", ".luarc.json", ".clangd", ".ccls", ".replit", "replit.nix", ".stackblitzrc", ".codesandbox/**", ".idx/**", ".project.el",
		},
	},
	{
		id: "dev-container", why: "it defines a container or workspace that an editor builds and starts, with commands that may run on the host",
		names: []string{".devcontainer/**", ".devcontainer.json", "devcontainer.json", ".devcontainer.*.json", "devcontainer-feature.json", ".gitpod.yml", ".gitpod.yaml", ".gitpod.dockerfile", ".gitpod/**", ".ona/**", "devfile.yaml", ".devfile.yaml", ".coder/**", ".daytona/**", "vagrantfile", ".envbuilder/**"},
	},
	{
		id: "ci", why: "a build service runs it, often with credentials, once it is pushed",
		names: []string{
			".github/workflows/**", ".github/actions/**", ".github/scripts/**", "action.yml", "action.yaml", ".github/dependabot.yml", ".github/dependabot.yaml", ".github/renovate*", ".gitea/workflows/**", ".forgejo/workflows/**", ".gitea/actions/**", ".forgejo/actions/**",
			".gitlab-ci.yml", ".gitlab-ci.yaml", "*.gitlab-ci.yml", ".gitlab/ci/**", ".gitlab-ci/**", ".gitlab/*.yml", "jenkinsfile", "jenkinsfile.*", "*.jenkinsfile", ".circleci/**", "azure-pipelines.yml", "azure-pipelines.yaml", "azure-pipelines-*.yml", "azure-pipelines.*.yml", ".azure-pipelines/**", ".azuredevops/**", ".azure/**",
			".drone.yml", ".drone.yaml", ".drone.star", ".drone.jsonnet", ".woodpecker.yml", ".woodpecker.yaml", ".woodpecker/**", ".buildkite/**", "buildkite.yml", ".travis.yml", ".travis/**", "appveyor.yml", ".appveyor.yml", "bitbucket-pipelines.yml", ".semaphore/**", ".cirrus.yml", ".cirrus.star", ".teamcity/**", "cloudbuild.yaml", "cloudbuild.yml", "cloudbuild.json", "buildspec.yml", "buildspec.yaml", "codefresh.yml", ".codefresh/**", "wercker.yml", "bitrise.yml", ".space.kts", ".builds/*.yml", ".build.yml", ".tekton/**", ".zuul.yaml", "zuul.yaml", "zuul.d/**", ".zuul.d/**", ".evergreen.yml", "netlify.toml", "vercel.json", "now.json", ".harness/**", ".earthly/**", ".dagger/**", "dagger.json", ".werft/**", ".prow.yaml", "codemagic.yaml", ".screwdriver.yaml", "screwdriver.yaml", "renovate.json", "renovate.json5", ".renovaterc", ".renovaterc.json", "amplify.yml", "app.yaml", "fly.toml", "render.yaml", "procfile", "railway.toml", "railway.json", ".kokoro/**", "skaffold.yaml",
		},
		lost: "a check that a build service ran is gone",
	},
	{
		id: "review-rules", why: "it says who must agree to a change, or which changes are looked at",
		names: []string{"codeowners", ".github/settings.yml", ".github/labeler.yml", "owners", "owners_aliases", ".mergify.yml", ".mergify/**", ".kodiak.toml", ".bulldozer.yml", ".policy.yml", "security-insights.yml", ".gitleaks.toml", ".gitleaksignore", ".semgrepignore", ".semgrep.yml", ".semgrep/**", ".trivyignore", ".snyk", ".coderabbit.yaml", ".secrets.baseline", "sonar-project.properties"},
		lost:  "a rule about who must agree to a change, or a check of changes, is gone",
	},
}
