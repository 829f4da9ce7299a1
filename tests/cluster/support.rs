//! Access to the cluster for tests: the hosts' script, the state of each host, the payloads, the inventories.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::host_sets::{self, HostSet};
use crate::laptop::{Laptop, wait_until};

const CLUSTER_HOSTS: [&str; 4] = ["gpu01", "gpu02", "gpu03", "bastion"];
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

/// A set of hosts; the test leaves them unchanged.
pub(crate) struct Cluster {
    /// `None` only while the set is returned.
    host_set: RefCell<Option<HostSet>>,
    hosts_script: PathBuf,
    dir: PathBuf,
    /// The state of each host before the test first used it.
    baseline_listings: RefCell<BTreeMap<&'static str, String>>,
    faulted_hosts: RefCell<Vec<String>>,
    registry_login_required: Cell<bool>,
}

impl Cluster {
    /// Waits for a set of hosts that no other test uses, and takes it.
    #[track_caller]
    pub(crate) fn acquire() -> Cluster {
        let set = HostSet::acquire();
        let cluster = Cluster {
            dir: set.dir.clone(),
            host_set: RefCell::new(Some(set)),
            hosts_script: host_sets::hosts_script(),
            baseline_listings: RefCell::default(),
            faulted_hosts: RefCell::default(),
            registry_login_required: Cell::new(false),
        };
        cluster.prepare_hosts(&["gpu01", "gpu02"]);
        cluster
    }

    fn with_set<T>(&self, of: impl FnOnce(&mut HostSet) -> T) -> T {
        of(self.host_set.borrow_mut().as_mut().expect("the test has its set"))
    }

    /// Prepares hosts before the test first uses them: removes what a failed test left, copies the payloads, waits until nothing of an
    /// earlier test runs, and records the state.
    #[track_caller]
    fn prepare_hosts(&self, hosts: &[&'static str]) {
        let new: Vec<&'static str> = hosts.iter().filter(|h| !self.baseline_listings.borrow().contains_key(*h)).copied().collect();
        if new.is_empty() {
            return;
        }
        let prepared = self.with_set(|set| set.hosts_with_payloads.clone());
        let (script, number) = (self.hosts_script.as_path(), self.with_set(|set| set.orch_set_value()));
        let begin = |host: &'static str| {
            let text = match (host, prepared.contains(host)) {
                ("bastion", _) => format!("({DISABLE_REGISTRY_LOGIN})\nlisting"),
                (_, true) => format!("{FORCE_CLEANUP}listing"),
                (_, false) => format!("{FORCE_CLEANUP}{}listing", payload_script()),
            };
            let mut listing = call_hosts_script(script, &number, &["exec", host, "sh", "-c", &text]);
            wait_until(&format!("nothing of an earlier test runs on {host}"), || {
                // The bastion's registry always runs.
                let quiet = host == "bastion" || listing.contains("# containers\n# volumes\n# processes\n# listening\n");
                if !quiet {
                    listing = call_hosts_script(script, &number, &["listing", host]);
                }
                quiet.then(|| (host, listing.clone()))
            })
        };
        let listings = map_hosts_in_parallel(&new, begin);
        self.with_set(|set| set.hosts_with_payloads.extend(new.iter().filter(|h| **h != "bastion")));
        self.baseline_listings.borrow_mut().extend(listings);
    }

    #[track_caller]
    pub(crate) fn run_hosts_script(&self, words: &[&str]) -> String {
        for word in words {
            self.prepare_named_hosts(word);
        }
        call_hosts_script(&self.hosts_script, &self.with_set(|set| set.orch_set_value()), words)
    }

    /// Prepares the hosts that an inventory or a command names.
    #[track_caller]
    fn prepare_named_hosts(&self, text: &str) {
        let named: Vec<&'static str> = CLUSTER_HOSTS.into_iter().filter(|host| text.contains(host)).collect();
        self.prepare_hosts(&named);
    }

    /// Runs a shell script as root on a host, without SSH.
    #[track_caller]
    pub(crate) fn exec_on(&self, host: &str, script: &str) -> String {
        self.prepare_named_hosts(host);
        call_hosts_script(&self.hosts_script, &self.with_set(|set| set.orch_set_value()), &["exec", host, "sh", "-c", script])
    }

    /// Injects a fault into a host; `heal_faults` undoes it.
    #[track_caller]
    pub(crate) fn inject_fault(&self, host: &str, words: &[&str]) {
        self.mark_for_healing(host);
        let mut all = vec!["fault", host];
        all.extend_from_slice(words);
        self.run_hosts_script(&all);
    }

    /// Marks a host to be healed at the end of the test.
    pub(crate) fn mark_for_healing(&self, host: &str) {
        self.faulted_hosts.borrow_mut().push(host.to_owned());
    }

    /// Undoes every fault.
    pub(crate) fn heal_faults(&self) {
        let mut broken = self.faulted_hosts.take();
        broken.sort();
        broken.dedup();
        if !broken.is_empty() {
            let words: Vec<&str> = std::iter::once("heal").chain(broken.iter().map(String::as_str)).collect();
            self.run_hosts_script(&words);
        }
    }

    /// Asserts that every prepared host has its state from before the test. Processes that end by themselves get some time.
    #[track_caller]
    pub(crate) fn assert_hosts_unchanged(&self) {
        self.heal_faults();
        let before = self.baseline_listings.borrow().clone();
        let hosts: Vec<&'static str> = before.keys().copied().collect();
        let (script, number) = (self.hosts_script.as_path(), self.with_set(|set| set.orch_set_value()));
        let now = map_hosts_in_parallel(&hosts, |host| {
            let mut now = String::new();
            for _ in 0..160 {
                now = call_hosts_script(script, &number, &["exec", host, "sh", "-c", "rm -rf /srv/suite/ctl; listing"]);
                if now == before[host] {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(250));
            }
            (host, now)
        });
        for (host, now) in now {
            assert_eq!(now, before[host], "what is on {host} now, and what was there before");
        }
    }

    /// Whether a host has its state from before the test.
    pub(crate) fn compare_with_baseline(&self, host: &str) -> Result<(), String> {
        let now = self.run_hosts_script(&["listing", host]);
        let before = &self.baseline_listings.borrow()[host];
        if now == *before {
            return Ok(());
        }
        let more: Vec<&str> = now.lines().filter(|l| !before.lines().any(|b| b == *l)).collect();
        let less: Vec<&str> = before.lines().filter(|l| !now.lines().any(|b| b == *l)).collect();
        Err(format!("{host}: more: {more:?}, less: {less:?}"))
    }

    /// Makes the bastion's registry require a login (`li`, with a password that is hard to quote), or not.
    #[track_caller]
    pub(crate) fn set_registry_login(&self, wanted: bool) {
        self.registry_login_required.set(wanted);
        self.exec_on("bastion", if wanted { ENABLE_REGISTRY_LOGIN } else { DISABLE_REGISTRY_LOGIN });
    }

    /// A host's address.
    pub(crate) fn host_address(&self, host: &str) -> String {
        let last = match host {
            "bastion" => 10,
            "gpu01" => 11,
            "gpu02" => 12,
            "gpu03" => 13,
            _ => panic!("no host is called {host}"),
        };
        self.network_address(last)
    }

    /// An address of the hosts' network, by its last number.
    pub(crate) fn network_address(&self, last: u8) -> String {
        self.with_set(|set| set.address(last))
    }

    /// The bastion's registry, with an image that no host has.
    pub(crate) fn registry_image(&self) -> String {
        format!("{}:5000/orchestrate/pulled:test", self.host_address("bastion"))
    }

    /// A path in the directory of keys and client files.
    pub(crate) fn client_file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The directory that a host's counting shell shares with the test.
    pub(crate) fn counting_shell_dir(&self, host: &str) -> PathBuf {
        self.dir.join("hosts").join(host).join("shell")
    }

    /// Writes `text` to a control file of a run's ranks on some hosts.
    #[track_caller]
    pub(crate) fn write_control_file(&self, hosts: &[&str], name: &str, file: &str, text: &str) {
        for host in hosts {
            self.exec_on(host, &format!("d=/srv/suite/ctl/{name}; mkdir -p $d && echo {text} >$d/.new && mv $d/.new $d/{file}"));
        }
    }

    /// The digest of a file on a host.
    #[track_caller]
    pub(crate) fn remote_sha256(&self, host: &str, file: &str) -> String {
        self.exec_on(host, &format!("sha256sum <{file}")).split(' ').next().expect("a digest").to_owned()
    }

    /// The inventory of a job.
    pub(crate) fn write_inventory(&self, laptop: &Laptop, job: &JobSpec) -> PathBuf {
        for host in &job.hosts {
            self.prepare_named_hosts(host);
        }
        laptop.write_file(&format!("{}.yaml", job.name), &job.to_yaml(&self.dir))
    }

    /// The common path prefix of the current run's files on a host.
    #[track_caller]
    pub(crate) fn run_file_prefix(&self, host: &str, user: &str, name: &str) -> String {
        let here = format!("/home/{user}/.orchestrate/{name}/{host}");
        let run = wait_until("there is a current run", || {
            let run = self.exec_on(host, &format!("cat {here}.private/current 2>/dev/null || true")).trim().to_owned();
            (!run.is_empty()).then_some(run)
        });
        format!("{here}.out/{run}.")
    }
}

/// A test that passes leaves its hosts as they were.
impl Drop for Cluster {
    fn drop(&mut self) {
        let unchanged = (!std::thread::panicking()).then(|| catch_unwind(AssertUnwindSafe(|| self.assert_hosts_unchanged())));
        let Some(set) = self.host_set.take() else { return };
        if matches!(unchanged, Some(Ok(()))) && !self.registry_login_required.get() {
            set.release();
        } else {
            // Their output would only distract from the failure that is reported.
            let hosts = |words: &[&str]| drop(Command::new(&self.hosts_script).env("ORCH_SET", set.orch_set_value()).args(words).output());
            if !self.faulted_hosts.borrow().is_empty() {
                hosts(&std::iter::once("heal").chain(self.faulted_hosts.borrow().iter().map(String::as_str)).collect::<Vec<_>>());
            }
            if self.registry_login_required.get() {
                hosts(&["exec", "bastion", "sh", "-c", DISABLE_REGISTRY_LOGIN]);
            }
            set.release();
        }
        if let Some(Err(panic)) = unchanged {
            resume_unwind(panic);
        }
    }
}

/// Runs the hosts' script for a set and returns its output.
#[track_caller]
fn call_hosts_script(script: &Path, set: &str, words: &[&str]) -> String {
    let out = Command::new(script).env("ORCH_SET", set).args(words).stdin(Stdio::null()).output().expect("the hosts' script runs");
    assert!(out.status.success(), "hosts {}: {}\n{}", words.join(" "), out.status, String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Does the same for all hosts in parallel.
fn map_hosts_in_parallel<T: Send>(hosts: &[&'static str], what: impl Fn(&'static str) -> T + Sync) -> Vec<T> {
    let what = &what;
    std::thread::scope(|scope| {
        let threads: Vec<_> = hosts.iter().map(|host| scope.spawn(move || what(host))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

/// A script that writes the payloads.
fn payload_script() -> String {
    PAYLOADS.map(|(name, text)| format!("cat >/srv/suite/{name} <<'END_OF_PAYLOAD'\n{text}END_OF_PAYLOAD\n")).concat()
}

/// The password is `open $esame 'now'`.
const ENABLE_REGISTRY_LOGIN: &str = r#"
sed '/^http:/d; /^auth:/d' /etc/registry.yml >/etc/registry-login.yml
echo 'http: { addr: ":5000" }' >>/etc/registry-login.yml
echo 'auth: { htpasswd: { realm: tests, path: /etc/registry.htpasswd } }' >>/etc/registry-login.yml
echo 'li:$2b$04$DzncorEbDuWxjsk0iBz.ceitpcoc33AfKQJItFfPdGUWL6B5uBBFq' >/etc/registry.htpasswd
pkill -x docker-registry; while nc -z 127.0.0.1 5000; do sleep 0.05; done
setsid docker-registry serve /etc/registry-login.yml >/var/log/registry.log 2>&1 </dev/null &
until nc -z 127.0.0.1 5000; do sleep 0.05; done
"#;
const DISABLE_REGISTRY_LOGIN: &str = r#"
pgrep -fx '.*registry-login.yml' >/dev/null || exit 0
pkill -x docker-registry; while nc -z 127.0.0.1 5000; do sleep 0.05; done
setsid docker-registry serve /etc/registry.yml >/var/log/registry.log 2>&1 </dev/null &
until nc -z 127.0.0.1 5000; do sleep 0.05; done
rm -f /etc/registry-login.yml /etc/registry.htpasswd
"#;

/// Ends leftovers of a failed test on a host. A test that passed leaves nothing running.
const FORCE_CLEANUP: &str = r#"
for c in $(docker ps -aq 2>/dev/null); do docker rm -f "$c" >/dev/null; done
for e in $(grep -lsF ORCH_RUN_ID= /proc/[0-9]*/environ); do p=${e#/proc/}; kill -9 "${p%/environ}" 2>/dev/null; done
for p in $(pgrep -f '/[.]orchestrate/.*/keeper$'); do kill -9 "$p"; done
[ ! -e /srv/suite/extra/pid ] || kill "$(cat /srv/suite/extra/pid)"
rm -rf /srv/suite/extra /srv/suite/cert /srv/suite/ctl /usr/local/bin/date /root/.orchestrate /home/*/.orchestrate /tmp/torchelastic_*
mkdir -p /srv/suite
"#;

/// The values of an inventory.
#[derive(Clone)]
pub(crate) struct JobSpec {
    pub(crate) name: &'static str,
    pub(crate) hosts: Vec<String>,
    pub(crate) user: &'static str,
    /// More lines under `ssh:`.
    pub(crate) ssh: String,
    /// The image; `None` for a bare host.
    pub(crate) image: Option<String>,
    /// More lines under `container:`.
    pub(crate) container: String,
    pub(crate) nproc_per_node: u32,
    pub(crate) master_port: u16,
    /// `torchrun` or `script`.
    pub(crate) launcher: &'static str,
    /// The arguments of the command.
    pub(crate) command: Vec<String>,
    /// More lines under `launch:`.
    pub(crate) launch: String,
    /// More lines under `env:`.
    pub(crate) env: String,
    pub(crate) stop_grace: &'static str,
    /// More lines at the top level.
    pub(crate) top_level: String,
}

fn to_strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|w| (*w).to_owned()).collect()
}

/// A YAML scalar with exactly this text.
pub(crate) fn yaml_quote(text: &str) -> String {
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

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

impl JobSpec {
    /// The job of the CPU config: two hosts with two processes each, torchrun in the torch image.
    pub(crate) fn torch(name: &'static str) -> JobSpec {
        let mut job = JobSpec::busybox(name);
        job.image = Some("orchestrate-torch:test".to_owned());
        job.nproc_per_node = 2;
        job.launcher = "torchrun";
        job.command = to_strings(&["/mnt/train.py"]);
        job
    }

    /// A job that starts at once: one process per host in the busybox image, steered by control files.
    pub(crate) fn busybox(name: &'static str) -> JobSpec {
        JobSpec {
            name,
            hosts: to_strings(&["gpu01", "gpu02"]),
            user: "dev",
            ssh: String::new(),
            image: Some("orchestrate-busybox:test".to_owned()),
            container: String::new(),
            nproc_per_node: 1,
            master_port: 29500,
            launcher: "script",
            command: to_strings(&["/bin/sh", "/mnt/rank.sh"]),
            launch: String::new(),
            env: String::new(),
            stop_grace: "60s",
            top_level: String::new(),
        }
    }

    /// The same job without a container.
    pub(crate) fn without_container(mut self) -> JobSpec {
        self.image = None;
        for word in &mut self.command {
            *word = word.replace("/mnt/", "/srv/suite/");
        }
        self
    }

    pub(crate) fn with_command(mut self, list: &[&str]) -> JobSpec {
        self.command = to_strings(list);
        self
    }

    pub(crate) fn with_hosts(mut self, hosts: &[&str]) -> JobSpec {
        self.hosts = to_strings(hosts);
        self
    }

    /// With the image of the bastion's registry, which requires a login.
    pub(crate) fn with_registry_image(mut self, cluster: &Cluster) -> JobSpec {
        self.image = Some(cluster.registry_image());
        let server = cluster.host_address("bastion");
        self.container = format!("pull: missing\nregistry: {{ server: \"{server}:5000\", username: li, password: REG_PASSWORD }}\n");
        self
    }

    pub(crate) fn with_user(mut self, user: &'static str) -> JobSpec {
        self.user = user;
        self
    }

    fn to_yaml(&self, dir: &Path) -> String {
        let container = self.image.as_ref().map_or(String::new(), |image| {
            let pull = if self.container.contains("pull:") { "" } else { "  pull: never\n" };
            let shm = if self.container.contains("shm_size:") { "" } else { "  shm_size: 64m\n" };
            format!("container:\n  image: {image}\n  gpus: all\n{shm}  mounts: [\"/srv/suite:/mnt:ro\"]\n{pull}{}", indent(&self.container))
        });
        let suite = if self.image.is_some() { "/mnt" } else { "/srv/suite" };
        let command: Vec<String> = self.command.iter().map(|w| yaml_quote(w)).collect();
        format!(
            "name: {}\nhosts: [{}]\nssh:\n  config: {}\n  user: {}\n{}{container}env:\n  OMP_NUM_THREADS: 1\n  SUITE: {suite}\n{}\
             launch:\n  with: {}\n  nproc_per_node: {}\n  master_port: {}\n  command: [{}]\n  stop_grace: {}\n{}{}",
            self.name,
            self.hosts.join(", "),
            dir.join("ssh_config").display(),
            self.user,
            // A busy machine may need longer than the default for one handshake.
            indent(&if self.ssh.contains("connect_timeout") { self.ssh.clone() } else { format!("connect_timeout: 60s\n{}", self.ssh) }),
            indent(&self.env),
            self.launcher,
            self.nproc_per_node,
            self.master_port,
            command.join(", "),
            self.stop_grace,
            indent(&self.launch),
            self.top_level
        )
    }
}
