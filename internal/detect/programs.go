package detect

import (
	"strings"
	"sync"
)

// program says what one program does, by its verb.
type program struct {
	always effect            // whatever its arguments
	verbs  map[string]effect // by the first word that is no option, or the first two
	other  effect            // a verb that is not listed
	none   effect            // no verb at all
	values map[string]bool   // options whose value is the next word
}

// Table lines: names, then "|" and the options that take the next word as their
// value. Below, indented: verbs, ":" and effects. "=" is always, "*" every verb
// that is not listed, "-" no verb. To install is no access to an external system
// by itself: registries are what "install" is about. A program of nameTable
// does what it does with the task's files: nothing that a boundary must cover.
// What git does is told elsewhere; its verbs stand here for their names.
const programTable = `
npm pnpm yarn bun cnpm | --prefix -C --dir --cwd --filter -F -w --workspace --userconfig --registry --cache --loglevel
  i,install,ci,add,update,up,upgrade,dedupe,rebuild,link,import,install-test,it,clean-install,in: install repo
  -: install repo
  uninstall,remove,rm,prune,unlink: install repo
  test,t,tst,run,run-script,rum,urn,start,stop,restart,exec,x,dlx,create,init,build,pack: repo
  publish,unpublish,deprecate,dist-tag,owner,access,deploy: visible mutate dev repo
  login,adduser,logout,token,whoami,profile,team,org: read dev
  view,info,show,search,outdated,audit,ping,why,ls,list,ll,la,explain,fund,doctor: -
  config,get,set,bin,root,prefix,cache,help,version,store,licenses,help-search,completion,query,env: -
  *: repo
npx bunx pnpx | -p --package
  *: install repo
corepack volta nvm fnm n nodenv pyenv rbenv rustup sdk asdf mise rtx jabba gvm goenv tfenv
  *: install
pip pip3 pipx easy_install
  install,download,wheel,run,inject,upgrade,upgrade-all,reinstall: install repo
  list,freeze,show,check,config,cache,help,debug,hash,inspect,index: -
  uninstall: install
  *: install repo
uv | --directory --project
  add,remove,sync,lock,tool,venv,python,self,tree,export: install repo
  pip: install repo
  build: repo
  publish: visible mutate dev
  *: install repo
poetry pdm hatch rye pipenv conda mamba micromamba pixi flit | -C --directory -n --name -p
  install,add,update,lock,sync,remove,create,init,env,upgrade,self,plugin: install repo
  publish: visible mutate dev repo
  show,search,version,check,list,info,config,about,export,tree: -
  *: repo
gem
  install,update,fetch: install
  push,yank,owner,signin: visible mutate dev
  list,search,info,query,env,which: -
  *: install repo
bundle bundler
  install,update,add,lock,cache,package,-: install repo
  show,list,info,outdated,check,config,platform: repo
  *: repo
composer
  install,i,update,u,upgrade,require,r,remove,create-project,global,-: install repo
  show,info,search,outdated,validate,licenses,why,depends,diagnose,about: -
  *: repo
cargo | --manifest-path -C --config --color -Z
  build,b,check,c,test,t,run,r,bench,doc,d,rustc,clippy,fix,expand,nextest,miri,watch,tarpaulin,llvm-cov,leptos,tauri,xtask,hack: repo
  install,add,fetch,update,vendor,generate-lockfile,binstall,upgrade: install repo
  publish,yank,owner,login,logout: visible mutate dev repo
  fmt,tree,metadata,clean,search,version,locate-project,pkgid,remove,deny,audit,machete,sort: -
  *: opaque
go | -C
  test,run,generate: repo
  get,install,mod,work: install
  build,vet,list,fmt,doc,env,version,clean,fix,help,bug,telemetry: -
  tool: repo
  *: opaque
dotnet
  restore,add,tool,workload,new: install repo
  build,run,test,publish,pack,msbuild,watch,vstest,format: repo
  nuget: visible mutate dev
  ef: migschema db repo
  *: repo
nuget
  push,delete: visible mutate dev
  *: install
mvn mvnw maven | -f --file -pl -P -s -D
  deploy,release:perform,site-deploy: visible mutate dev repo install
  spring-boot:run,jetty:run,tomcat7:run,quarkus:dev: process port repo install
  flyway:migrate,liquibase:update: migschema db repo install
  *: repo install
gradle gradlew | -p --project-dir -b -I --init-script -c
  publish,uploadArchives,publishPlugins: visible mutate dev repo install
  bootRun,run,appRun,quarkusDev: process port repo install
  flywayMigrate,update,liquibaseUpdate: migschema db repo install
  *: repo install
sbt lein clj clojure mill bazel bazelisk buck buck2 pants ant b2 scons waf xmake meson swift mix rebar3 cabal stack opam dune zig nim nimble dub shards crystal elm spago purs luarocks cpan cpanm perlbrew raco julia R Rscript cmake ctest conan vcpkg ninja xcodebuild pod fastlane flutter dart
  *: repo
make gmake bmake just task rake invoke inv fab tox nox mage earthly dagger doit ./configure configure | -C -f -j -d --justfile --working-directory -c --directory --file
  *: repo
  -: repo
pytest py.test unittest nose2 behave jest vitest mocha ava tap cypress playwright karma jasmine rspec cucumber minitest phpunit pest bats ginkgo gotestsum cargo-nextest hurl wtr testcafe webdriver
  *: repo
  -: repo
eslint prettier stylelint xo standard webpack rollup esbuild parcel babel postcss tailwindcss tsc-watch tsx ts-node swc turbo nx lerna rush gulp grunt mypy pylint flake8 rubocop pre-commit lint-staged husky lefthook commitlint semantic-release changeset release-it sphinx-build nyc c8 metro markdownlint-cli2 import-linter dmypy pyre bandit gitlint phpstan psalm rector php-cs-fixer credo dialyzer
  *: repo
  -: repo
vite next nuxt nuxi remix astro gatsby ng vue-cli-service react-scripts expo docusaurus vitepress vuepress webpack-dev-server eleventy svelte-kit storybook start-storybook
  build,export,generate,test,lint,check,info,telemetry,sync,typegen: repo
  *: repo process port
  -: repo process port
nodemon air reflex watchexec entr ts-node-dev supervisor forever pm2 concurrently npm-run-all run-p run-s foreman overmind honcho hivemind goreman process-compose tilt skaffold devspace wait-on start-server-and-test
  *: repo process
  -: repo process
serve http-server live-server browser-sync uvicorn gunicorn hypercorn daphne waitress-serve flask rails puma unicorn thin rackup php-fpm jekyll hugo mkdocs mdbook nginx caddy httpd apache2 apachectl lighttpd haproxy envoy traefik jupyter jupyter-lab jupyter-notebook streamlit gradio json-server ngrok cloudflared code-server ttyd sshd vsftpd dnsmasq socat ncat nc netcat
  build: repo
  test,new,generate,g,console,c,routes,shell: repo
  db: repo migschema db
  db:migrate,db:setup,db:schema:load,db:prepare,db:rollback,db:create: repo migschema db
  db:seed: repo migdata db
  db:drop,db:reset: repo migschema db destroy
  *: repo process port
  -: process port
celery rq sidekiq resque dramatiq
  *: repo process queue
redis-server valkey-server memcached keydb-server dragonfly
  *: process port cache state
  -: process port cache state
postgres pg_ctl pg_ctlcluster mysqld mysqld_safe mariadbd mongod cockroach etcd clickhouse-server influxd elasticsearch opensearch neo4j arangod surreal rethinkdb couchdb tidb-server
  *: process port db state
  -: process port db state
initdb pg_createcluster mysql_install_db
  *: db state
rabbitmq-server nats-server kafka-server-start.sh zookeeper-server-start.sh mosquitto pulsar redpanda nsqd activemq
  *: process port queue state
  -: process port queue state
minio azurite localstack dynamodb-local fake-gcs-server moto_server elasticmq kinesalite
  *: process port emulator state
  -: process port emulator state
firebase
  emulators:start,emulators:exec: process port emulator repo
  deploy,hosting:channel:deploy,functions:delete: visible mutate prod stateout
  *: read dev
supabase
  start,stop: container runtime emulator db process port
  db: migschema db
  migration: migschema db
  *: read mutate dev stateout
psql pgcli mysql mycli mariadb sqlplus sqlcmd mongo mongosh clickhouse-client clickhouse influx cqlsh cypher-shell usql duckdb-client
  *: db
  -: db
pg_dump pg_dumpall mysqldump mongodump
  *: db
pg_restore mysqlimport mongorestore mongoimport pgbench
  *: db migdata
createdb
  *: db migschema
dropdb
  *: db migschema destroy
createuser dropuser
  *: db migroles
mysqladmin
  drop: db migschema destroy
  *: db migschema
redis-cli valkey-cli
  FLUSHALL,FLUSHDB,flushall,flushdb: cache destroy
  *: cache
  -: cache
rabbitmqctl rabbitmqadmin kafka-topics.sh kafka-console-producer.sh kafka-console-consumer.sh kcat kafkacat nats mosquitto_pub mosquitto_sub
  *: queue
mc
  rb,rm: bucket destroy
  *: bucket
prisma
  generate,format,validate,version: repo
  migrate,db: repo migschema db
  studio: repo process port db
  *: repo
alembic flyway liquibase goose migrate dbmate atlas sqitch sqlx diesel sea-orm-cli knex typeorm sequelize sequelize-cli drizzle-kit mikro-orm yoyo-migrate refinery tern skeema dbm golang-migrate migra umzug node-pg-migrate db-migrate graphile-migrate bytebase pgroll rel | -c -x -n --config -path -database -dir -source -url
  status,validate,history,current,heads,show,version,lint,info,generate,revision,new,create,prepare,--version,help,introspect,check: repo db
  clean,drop,reset,down,database,undo: repo migschema db destroy
  seed,seed:run,db:seed,db:seed:all: repo migdata db
  *: repo migschema db
  -: repo migschema db
manage.py django-admin
  migrate: repo migschema db
  loaddata: repo migdata db
  flush: repo migdata db destroy
  runserver,runserver_plus: repo process port db
  *: repo
artisan
  migrate,migrate:fresh,migrate:refresh: repo migschema db
  db:seed: repo migdata db
  serve: repo process port
  *: repo
docker podman nerdctl | -H --host -c --context --config -l --log-level --url --root --namespace -n --connection
  run,create,start,restart,exec,container,play,kube,pod,stack,service,swarm,machine: container runtime
  build,buildx,image build,builder: container runtime
  compose: container runtime
  compose up,compose run,compose start,compose watch: container runtime process port
  compose down,compose rm,compose stop,compose kill: runtime
  pull,search: runtime
  push,manifest,image push: runtime visible mutate dev
  login,logout: runtime dev read
  system,volume,network,prune: runtime
  system prune,volume rm,volume prune,image prune,container prune,network prune: runtime destroy
  ps,images,image,logs,inspect,stats,top,port,version,info,events,history,diff,context,cp,rm,rmi,stop,kill,tag,wait,pause,unpause,rename,update,commit,save,load,import,export,attach: runtime
  *: runtime opaque
  -: -
docker-compose podman-compose | -f --file -p --project-name --env-file --profile --project-directory
  up,run,start,watch,create: container runtime process port
  build: container runtime
  *: runtime
buildah kaniko img crun runc youki ctr crictl lxc lxc-start incus lxd multipass vagrant colima lima limactl firecracker singularity apptainer systemd-nspawn devcontainer devpod pack ko
  *: container runtime
  -: container runtime
skopeo crane oras regctl cosign notation
  copy,push,delete,sync,attach,sign,tag: visible mutate dev
  *: read
kind minikube k3d k3s microk8s
  delete: runtime destroy
  *: container runtime process
kubectl oc k9s kustomize | -n --namespace --context --kubeconfig -s --server --cluster --user --as
  get,describe,logs,top,explain,api-resources,api-versions,diff,auth,wait,events: runtime read prod
  version,config,completion,kustomize,build,options,help: -
  port-forward,proxy: runtime read prod process port
  delete,drain: runtime mutate prod stateout visible destroy
  apply,create,replace,patch,edit,set,scale,rollout,label,annotate,expose,run,cordon,uncordon,taint,exec,cp,attach,debug,autoscale,new-app,start-build,certificate: runtime mutate prod stateout visible
  *: runtime mutate prod stateout visible opaque
helm helmfile | -n --namespace --kube-context --kubeconfig -f
  template,lint,show,create,package,version,env,dependency,repo,search,pull,verify,plugin,completion: -
  list,ls,status,history,get,test: runtime read prod
  uninstall,delete,un,destroy: runtime mutate prod stateout visible destroy
  push: visible mutate dev
  *: runtime mutate prod stateout visible
argocd flux istioctl linkerd velero eksctl kops rancher nomad consul vault boundary
  *: mutate prod stateout visible
terraform tofu terragrunt | -chdir
  fmt,validate,version,graph,console,providers,get,metadata: -
  init: install repo
  plan,show,output,refresh,test: read prod repo
  destroy: mutate prod stateout visible destroy repo
  *: mutate prod stateout visible repo
pulumi cdk cdktf sst serverless sls sam chalice zappa copilot amplify wing encore crossplane packer ansible ansible-playbook ansible-pull salt chef-client puppet bolt nixops colmena deploy-rs kamal cap capistrano mina dokku waypoint
  destroy,remove,delete,down,rm: mutate prod stateout visible destroy repo
  local,invoke,synth,build,validate,lint,preview,diff,plan,list,ls: read prod repo
  offline: process port emulator repo
  *: mutate prod stateout visible repo
aws gcloud az bq gsutil s5cmd s3cmd rclone doctl linode-cli hcloud ibmcloud oci aliyun tencentcli eb ecs-cli awslocal azcopy exo scw | --profile --region --project --output -o --subscription --endpoint-url --format --query --account
  s3,storage,s3api,cp,sync,mb,ls: mutate prod bucket stateout
  s3 ls,s3api list-objects,s3api list-objects-v2,s3api list-buckets: read prod bucket
  s3 rm,s3 rb,rm,rb: mutate prod bucket stateout destroy
  sts,configure,help,version,config,auth,login,account,sso,info,components: read prod
  *: mutate prod stateout
vercel netlify heroku fly flyctl railway render wrangler surge now gh-pages cf dotcloud platform upsun appcenter eas balena shopify clever scalingo koyeb deno-deploy
  dev,local,start,serve: process port repo
  logs,ls,list,whoami,info,status,inspect,ps,open,login,auth,env,link,config,config:get,version,help: read prod
  destroy,delete,remove,rm,apps:destroy: mutate prod stateout visible destroy
  pg:reset,pg:push: mutate prod stateout visible destroy migdata
  *: mutate prod stateout visible
stripe twilio slack sendgrid sentry-cli datadog-ci newrelic launchdarkly auth0 okta snyk codecov coveralls sonar-scanner buildkite-agent circleci travis drone jenkins-cli woodpecker-cli
  *: mutate dev visible
gh glab hub tea | -R --repo --hostname
  repo delete,release delete,secret delete,repo archive: mutate dev visible destroy
  pr list,pr view,pr status,pr diff,pr checks,pr checkout,issue list,issue view,issue status,run list,run view,run watch,release list,release view,repo view,repo list,repo clone,search,browse,status,auth,config,gist list,gist view,workflow list,workflow view,label list,variable list,ruleset: read dev
  version,help,completion,alias list: -
  alias,extension,ext: opaque
  *: mutate dev visible
twine
  *: visible mutate dev
goreleaser jreleaser np release-please standard-version ghr
  *: visible mutate dev repo
ssh mosh sftp scp sshpass autossh telnet rsh rlogin
  *: mutate dev stateout
curl wget http https xh httpie aria2c lftp ftp grpcurl websocat curlie
  *: read
rsync
  *: -
mail mailx sendmail mutt msmtp swaks
  *: mutate visible
ssh-add ssh-agent gpg gpg2 gpg-agent pass op bw lpass security secret-tool aws-vault chamber sops age age-keygen keyring doppler infisical berglas kinit credstash
  *: dev
ssh-keygen openssl
  *: -
apt apt-get aptitude dpkg yum dnf microdnf rpm zypper pacman yay apk emerge portage xbps-install brew port snap flatpak choco winget scoop nix nix-env nix-build nix-shell nixos-rebuild guix pkg pkg_add installer softwareupdate tlmgr
  list,search,show,info,policy,help,--version,leaves,-l,-L,-qa: -
  *: install
modprobe insmod rmmod depmod kexec bpftool bpftrace bcc kmod dkms sysctl mount umount losetup mkfs mkfs.ext4 mkfs.xfs mkfs.btrfs mkswap swapon swapoff fdisk parted sfdisk gdisk cryptsetup lvm lvcreate pvcreate vgcreate mdadm zpool zfs btrfs qemu-system-x86_64 qemu-system-aarch64 qemu-system-arm kvm virsh virt-install VBoxManage vmrun iptables ip6tables nft ipset tc tcpdump tshark wireshark dumpcap hciconfig rfkill setcap chroot pivot_root unshare nsenter perf strace ltrace gdbserver systemtap stap trace-cmd ftrace criu usbreset lsusb flashrom dfu-util esptool esptool.py avrdude openocd adb fastboot nvidia-smi rocm-smi intel_gpu_top i2cset i2cget gpioset setterm systemctl service launchctl update-rc.d loginctl machinectl reboot shutdown poweroff halt init telinit useradd userdel usermod groupadd passwd chpasswd visudo crontab at batch
  *: kernel
  -: kernel
gdb lldb rr delve dlv
  *: kernel opaque
  -: kernel opaque
ip ifconfig route brctl ethtool iw wpa_supplicant openvpn wg wg-quick tailscale
  netns: kernel opaque
  *: kernel
  -: -
dd
  *: -
shred wipefs blkdiscard hdparm
  *: destroy kernel
caisson
  *: -
  -: -
git | -C -c --git-dir --work-tree --namespace --super-prefix --config-env --attr-source
  push,fetch,pull,clone,ls-remote,submodule,send-email,rebase,bisect,grep,difftool,mergetool,filter-branch,config,commit,archive,daemon,lfs,svn: -
  *: -
  -: -
`

// nameTable is what has no effect of its own beyond the task's files, and loads no code of
// the repository.
const nameTable = `
[ : true false echo printf test ls dir vdir pwd cat tac nl head tail wc sort uniq cut paste join comm tr fold fmt expand unexpand pr column
grep egrep fgrep zgrep rg ag ack cmp diff diff3 sdiff colordiff patch file stat du df tree basename dirname realpath readlink
cp mv ln mkdir rmdir touch chmod chown chgrp install mktemp truncate split csplit rm tee seq yes date cal sleep uname hostname whoami id groups who
arch nproc uptime free ps pgrep top htop kill pkill killall jobs fg bg wait cd pushd popd dirs exit return break continue shift getopts umask ulimit times
set shopt hash type which whereis command builtin help history fc disown suspend caller local unset read readarray mapfile let export declare typeset readonly
md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum cksum sum base32 base64 basenc xxd od hexdump strings
gzip gunzip zcat bzip2 bunzip2 xz unxz zstd unzstd lz4 brotli zip unzip 7z 7za ar cpio tar jq yq xq fx gron dasel mlr xsv csvcut xmllint xsltproc
gofmt goimports gofumpt golines staticcheck golangci-lint govulncheck shellcheck shfmt black ruff isort autopep8 yapf pyflakes pycodestyle vulture rustfmt clang-format clang-tidy cppcheck
hadolint yamllint actionlint markdownlint mdl vale codespell typos biome oxlint dprint taplo tflint tfsec checkov trivy grype syft gitleaks trufflehog semgrep cloc scc tokei
tsc gcc g++ cc c++ clang clang++ ld as nm objdump objcopy strip size ranlib javac rustc ghc ocamlfind gfortran protoc buf sqlc swag mockgen stringer flatc thrift
less more most bat man info whatis apropos nano pico env printenv tput clear reset stty tty locale iconv dos2unix unix2dos envsubst gettext msgfmt
fd locate lsof ss netstat ping ping6 traceroute dig nslookup host whois convert magick ffmpeg ffprobe exiftool pandoc dot pdftotext qpdf gs sqlite3 duckdb
rev shuf factor bc dc expr numfmt logger getent getconf ldd pkg-config pidof sync logname tsort ptx mkfifo
`

var programs = sync.OnceValue(func() map[string]*program {
	words := map[string]effect{"-": 0}
	for _, r := range effectRules {
		words[r.word] = r.bit
	}
	m := make(map[string]*program, 1500)
	plain := &program{}
	for n := range strings.FieldsSeq(nameTable) {
		m[n] = plain
	}
	var cur *program
	for line := range strings.Lines(programTable) {
		if line == "\n" {
			continue
		}
		if !strings.HasPrefix(line, " ") {
			names, opts, _ := strings.Cut(line, "|")
			cur = &program{verbs: map[string]effect{}, other: effUnknown, values: map[string]bool{}}
			for o := range strings.FieldsSeq(opts) {
				cur.values[o] = true
			}
			for n := range strings.FieldsSeq(names) {
				m[n] = cur
			}
			continue
		}
		i := strings.LastIndex(line, ": ")
		var e effect
		for w := range strings.FieldsSeq(line[i+2:]) {
			e |= words[w]
		}
		for v := range strings.SplitSeq(strings.TrimSpace(line[:i]), ",") {
			switch v {
			case "=":
				cur.always = e
			case "*":
				cur.other = e
			case "-":
				cur.none = e
			default:
				cur.verbs[v] = e
			}
		}
	}
	return m
})
