//! The cluster as a test sees it: the hosts' script, what is on each host, the payloads, the inventories.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::laptop::{Laptop, until};

const HOSTS: [&str; 4] = ["gpu01", "gpu02", "gpu03", "bastion"];
const PAYLOADS: [(&str, &str); 13] = [
    ("train.py", include_str!("payload/train.py")),
    ("leave.py", include_str!("payload/leave.py")),
    ("dump.sh", include_str!("payload/dump.sh")),
    ("rank.sh", include_str!("payload/rank.sh")),
    ("flood.sh", include_str!("payload/flood.sh")),
    ("world.py", include_str!("payload/world.py")),
    ("psum.py", include_str!("payload/psum.py")),
    ("elastic.py", include_str!("payload/elastic.py")),
    ("zero.py", include_str!("payload/zero.py")),
    ("train.sh", include_str!("payload/train.sh")),
    ("fail.py", include_str!("payload/fail.py")),
    ("late.py", include_str!("payload/late.py")),
    ("fail-jax.py", include_str!("payload/fail-jax.py")),
];

/// There is one set of hosts: one test at a time in this process, one process at a time on this machine.
static SERIAL: Mutex<()> = Mutex::new(());

/// The hosts, as they were before the test.
pub(crate) struct Cluster {
    dir: PathBuf,
    script: PathBuf,
    before: RefCell<BTreeMap<&'static str, String>>,
    broken: RefCell<Vec<String>>,
    _lock: std::fs::File,
    _serial: MutexGuard<'static, ()>,
}

/// Whether the suite runs, or what is said instead.
fn wanted() -> bool {
    if std::env::var("ORCH_CLUSTER").is_ok_and(|v| v == "1") {
        return true;
    }
    let off = std::env::var_os("ORCH_CLUSTER").is_some();
    assert!(off || std::env::var_os("CI").is_none_or(|v| v != "true"), "CI must run the suite on real hosts: start them with `tests/run`");
    eprintln!(
        "not run: it needs the test hosts; as root on Debian: tests/cluster/hosts up && eval \"$(tests/cluster/hosts env)\" && cargo test --test cluster -- --test-threads=1"
    );
    false
}

impl Cluster {
    /// Takes the hosts; none where the suite does not run here.
    pub(crate) fn take() -> Option<Cluster> {
        if !wanted() {
            return None;
        }
        let serial = SERIAL.lock().unwrap_or_else(PoisonError::into_inner);
        let path = |name: &str| {
            PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: see `tests/cluster/hosts env`")))
        };
        let (dir, script) = (path("ORCH_CLUSTER_DIR"), path("ORCH_CLUSTER_HOSTS"));
        let lock = std::fs::File::create(dir.join("suite.lock")).expect("a lock file");
        lock.lock().expect("locked");
        let cluster = Cluster { dir, script, before: RefCell::default(), broken: RefCell::default(), _lock: lock, _serial: serial };
        cluster.begin();
        Some(cluster)
    }

    /// Clears away what a failed test left, brings the payloads, and notes what is there once nothing of a test runs any more.
    #[track_caller]
    fn begin(&self) {
        let payloads = PAYLOADS.map(|(name, text)| format!("cat >/srv/suite/{name} <<'END_OF_PAYLOAD'\n{text}END_OF_PAYLOAD\n")).concat();
        self.registry_login(false);
        for host in HOSTS {
            if host != "bastion" {
                self.on(host, &format!("{SWEEP}\nrm -rf /srv/suite/ctl; mkdir -p /srv/suite\n{payloads}"));
            }
            let quiet = until(&format!("nothing of an earlier test runs on {host}"), || {
                let listing = self.listing(host);
                // The bastion's registry always runs.
                (host == "bastion" || listing.contains("# containers\n# volumes\n# processes\n# listening\n")).then_some(listing)
            });
            self.before.borrow_mut().insert(host, quiet);
        }
    }

    /// Runs the hosts' script.
    #[track_caller]
    pub(crate) fn hosts(&self, words: &[&str]) -> String {
        let out = Command::new(&self.script).args(words).stdin(Stdio::null()).output().expect("the hosts' script runs");
        assert!(out.status.success(), "hosts {}: {}\n{}", words.join(" "), out.status, String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Runs a shell script as root on a host, past SSH.
    #[track_caller]
    pub(crate) fn on(&self, host: &str, script: &str) -> String {
        self.hosts(&["exec", host, "sh", "-c", script])
    }

    /// Breaks a host in one way; it is mended at the end.
    #[track_caller]
    pub(crate) fn fault(&self, host: &str, words: &[&str]) {
        self.mend(host);
        let mut all = vec!["fault", host];
        all.extend_from_slice(words);
        self.hosts(&all);
    }

    /// Notes that a host is to be mended at the end.
    pub(crate) fn mend(&self, host: &str) {
        self.broken.borrow_mut().push(host.to_owned());
    }

    /// Undoes every fault.
    pub(crate) fn heal(&self) {
        let mut broken = self.broken.take();
        broken.sort();
        broken.dedup();
        if !broken.is_empty() {
            let words: Vec<&str> = std::iter::once("heal").chain(broken.iter().map(String::as_str)).collect();
            self.hosts(&words);
        }
    }

    /// What a run could have left on a host.
    pub(crate) fn listing(&self, host: &str) -> String {
        self.hosts(&["listing", host])
    }

    /// Everything is as it was before the test, on every host. What ends by itself gets a moment.
    #[track_caller]
    pub(crate) fn as_before(&self) {
        self.heal();
        for host in HOSTS.iter().filter(|h| **h != "bastion") {
            self.on(host, "rm -rf /srv/suite/ctl");
        }
        for (host, before) in self.before.borrow().iter() {
            let mut now = String::new();
            for _ in 0..160 {
                now = self.listing(host);
                if now == *before {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(250));
            }
            assert_eq!(now, *before, "what is on {host} now, and what was there before");
        }
    }

    /// Whether a host looks as it did before the test.
    pub(crate) fn clean(&self, host: &str) -> Result<(), String> {
        let now = self.listing(host);
        let before = &self.before.borrow()[host];
        if now == *before {
            return Ok(());
        }
        let more: Vec<&str> = now.lines().filter(|l| !before.lines().any(|b| b == *l)).collect();
        let less: Vec<&str> = before.lines().filter(|l| !now.lines().any(|b| b == *l)).collect();
        Err(format!("{host}: more: {more:?}, less: {less:?}"))
    }

    /// The bastion's registry wants a login from now on (`li`, with a password that is hard to quote), or none any more.
    #[track_caller]
    pub(crate) fn registry_login(&self, wanted: bool) {
        self.on("bastion", if wanted { REGISTRY_LOGIN } else { REGISTRY_OPEN });
    }

    /// A path in the folder of keys and client files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A host's shared folder of the counting shell.
    pub(crate) fn shell(&self, host: &str) -> PathBuf {
        self.dir.join("hosts").join(host).join("shell")
    }

    /// Orders the ranks of a name on some hosts: writes `text` to the control file.
    #[track_caller]
    pub(crate) fn order(&self, hosts: &[&str], name: &str, file: &str, text: &str) {
        for host in hosts {
            self.on(host, &format!("d=/srv/suite/ctl/{name}; mkdir -p $d && echo {text} >$d/.new && mv $d/.new $d/{file}"));
        }
    }

    /// The digest of a file on a host.
    #[track_caller]
    pub(crate) fn sha256(&self, host: &str, file: &str) -> String {
        self.on(host, &format!("sha256sum <{file}")).split(' ').next().expect("a digest").to_owned()
    }

    /// The inventory of a job.
    pub(crate) fn inventory(&self, laptop: &Laptop, job: &Job) -> PathBuf {
        laptop.write(&format!("{}.yaml", job.name), &job.yaml(&self.dir))
    }

    /// How the paths of the files begin that the current run writes on a host.
    #[track_caller]
    pub(crate) fn run_dir(&self, host: &str, user: &str, name: &str) -> String {
        let here = format!("/home/{user}/.orchestrate/{name}/{host}");
        let run = until("there is a current run", || {
            let run = self.on(host, &format!("cat {here}.private/current 2>/dev/null || true")).trim().to_owned();
            (!run.is_empty()).then_some(run)
        });
        format!("{here}.out/{run}.")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.broken.borrow().is_empty(), "a test ends with `as_before`");
        } else if !self.broken.borrow().is_empty() {
            // What it says is of no use beside the failure that is being told.
            drop(Command::new(&self.script).arg("heal").args(self.broken.borrow().iter()).output());
        }
    }
}

/// The password is `open $esame 'now'`.
const REGISTRY_LOGIN: &str = r#"
sed '/^http:/d; /^auth:/d' /etc/registry.yml >/etc/registry-login.yml
echo 'http: { addr: ":5000" }' >>/etc/registry-login.yml
echo 'auth: { htpasswd: { realm: tests, path: /etc/registry.htpasswd } }' >>/etc/registry-login.yml
echo 'li:$2b$04$DzncorEbDuWxjsk0iBz.ceitpcoc33AfKQJItFfPdGUWL6B5uBBFq' >/etc/registry.htpasswd
pkill -x docker-registry; while nc -z 127.0.0.1 5000; do sleep 0.05; done
setsid docker-registry serve /etc/registry-login.yml >/var/log/registry.log 2>&1 </dev/null &
until nc -z 127.0.0.1 5000; do sleep 0.05; done
"#;
const REGISTRY_OPEN: &str = r#"
pgrep -fx '.*registry-login.yml' >/dev/null || exit 0
pkill -x docker-registry; while nc -z 127.0.0.1 5000; do sleep 0.05; done
setsid docker-registry serve /etc/registry.yml >/var/log/registry.log 2>&1 </dev/null &
until nc -z 127.0.0.1 5000; do sleep 0.05; done
rm -f /etc/registry-login.yml /etc/registry.htpasswd
"#;

/// Ends what a failed test left on a host. Nothing of it runs after a test that passed.
const SWEEP: &str = r#"
for c in $(docker ps -aq 2>/dev/null); do docker rm -f "$c" >/dev/null; done
for e in $(grep -lsF ORCH_RUN_ID= /proc/[0-9]*/environ); do p=${e#/proc/}; kill -9 "${p%/environ}" 2>/dev/null; done
for p in $(pgrep -f '/[.]orchestrate/.*/keeper$'); do kill -9 "$p"; done
[ ! -e /srv/suite/extra/pid ] || kill "$(cat /srv/suite/extra/pid)"
rm -rf /srv/suite/extra /srv/suite/cert /usr/local/bin/date /root/.orchestrate /home/*/.orchestrate /tmp/torchelastic_*
"#;

/// What an inventory says.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    pub(crate) hosts: Vec<&'static str>,
    pub(crate) user: &'static str,
    /// Further lines under `ssh:`.
    pub(crate) ssh: String,
    /// The image; none: a bare host.
    pub(crate) image: Option<&'static str>,
    /// Further lines under `container:`.
    pub(crate) container: String,
    pub(crate) nproc: u32,
    pub(crate) port: u16,
    /// `torchrun` or `script`.
    pub(crate) with: &'static str,
    /// The command's words.
    pub(crate) command: Vec<String>,
    /// Further lines under `launch:`.
    pub(crate) launch: String,
    /// Further lines under `env:`.
    pub(crate) env: String,
    pub(crate) grace: &'static str,
    /// Further lines at the top.
    pub(crate) top: String,
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|w| (*w).to_owned()).collect()
}

/// A scalar that means exactly this text.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            ' '..='~' | '\u{4e00}'..='\u{9fff}' => out.push(c),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    out.push('"');
    out
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

impl Job {
    /// The CPU config's job: two hosts, two processes each, torchrun in the torch image.
    pub(crate) fn torch(name: &'static str) -> Job {
        let mut job = Job::quick(name);
        job.image = Some("orchestrate-torch:test");
        job.nproc = 2;
        job.with = "torchrun";
        job.command = words(&["/mnt/train.py"]);
        job
    }

    /// A job that starts at once: one process a host in the busybox image, doing what files tell it.
    pub(crate) fn quick(name: &'static str) -> Job {
        Job {
            name,
            hosts: vec!["gpu01", "gpu02"],
            user: "dev",
            ssh: String::new(),
            image: Some("orchestrate-busybox:test"),
            container: String::new(),
            nproc: 1,
            port: 29500,
            with: "script",
            command: words(&["/bin/sh", "/mnt/rank.sh"]),
            launch: String::new(),
            env: String::new(),
            grace: "10s",
            top: String::new(),
        }
    }

    /// The same without a container.
    pub(crate) fn bare(mut self) -> Job {
        self.image = None;
        for word in &mut self.command {
            *word = word.replace("/mnt/", "/srv/suite/");
        }
        self
    }

    /// With this command.
    pub(crate) fn command(mut self, list: &[&str]) -> Job {
        self.command = words(list);
        self
    }

    /// On these hosts.
    pub(crate) fn hosts(mut self, hosts: &[&'static str]) -> Job {
        self.hosts = hosts.to_vec();
        self
    }

    /// As this user.
    pub(crate) fn user(mut self, user: &'static str) -> Job {
        self.user = user;
        self
    }

    fn yaml(&self, dir: &Path) -> String {
        let container = self.image.map_or(String::new(), |image| {
            let pull = if self.container.contains("pull:") { "" } else { "  pull: never\n" };
            let shm = if self.container.contains("shm_size:") { "" } else { "  shm_size: 64m\n" };
            format!(
                "container:\n  image: {image}\n  gpus: all\n{shm}  mounts: [\"/srv/suite:/mnt:ro\"]\n{pull}{}",
                indented(&self.container)
            )
        });
        let suite = if self.image.is_some() { "/mnt" } else { "/srv/suite" };
        let command: Vec<String> = self.command.iter().map(|w| quoted(w)).collect();
        format!(
            "name: {}\nhosts: [{}]\nssh:\n  config: {}\n  user: {}\n{}{container}env:\n  OMP_NUM_THREADS: 1\n  SUITE: {suite}\n{}\
             launch:\n  with: {}\n  nproc_per_node: {}\n  master_port: {}\n  command: [{}]\n  stop_grace: {}\n{}{}",
            self.name,
            self.hosts.join(", "),
            dir.join("ssh_config").display(),
            self.user,
            indented(&self.ssh),
            indented(&self.env),
            self.with,
            self.nproc,
            self.port,
            command.join(", "),
            self.grace,
            indented(&self.launch),
            self.top
        )
    }
}
