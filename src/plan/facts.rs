//! What a host is and what of ours is on it: the read-only script, beside the reader of its answer.
//!
//! Uses `shell`. Every action observes these facts; none asks a host by itself whether there is anything to do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::gpu;
use crate::inventory::smoke;
pub use crate::plan::found::{Elsewhere, Found};
use crate::plan::lock_record::Lock;
use crate::plan::logind::{Logind, SystemdScope};
use crate::plan::run::RunFile;
use crate::plan::site::{READ, Site};
use crate::plan::words::{Exit, LogFile};
use crate::shell::{Command, join, quote};

/// What the script is asked to look for beyond what is always of interest.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Whether docker is asked.
    pub docker: bool,
    /// The image whose id is wanted.
    pub image: Option<String>,
    /// Host paths whose existence is wanted.
    pub mounts: Vec<String>,
    /// Ports that should be free.
    pub ports: Vec<u16>,
    /// Whether idle GPUs are looked for.
    pub idle: bool,
    /// Whether a free port is looked for.
    pub free_port: bool,
    /// Addresses of the other hosts to which the routes are wanted.
    pub peers: Vec<String>,
    /// Whether what this name left under other names of the host, and processes without a directory, are looked for.
    pub left: bool,
}

/// The facts script of one host.
pub fn command(site: &Site, wanted: &Wanted) -> Command {
    let ports: Vec<String> = wanted.ports.iter().map(u16::to_string).collect();
    let script = format!(
        "{}docker={}\nname={} smoke={} host={} run_dir={}\nwant_docker={} container={} image={}\nmounts={}\nports={}\nwant_idle={}\nwant_port={} want_left={}\npeers={}\n{}{}",
        site.preamble(),
        quote(&site.docker()),
        quote(&site.name),
        quote(&smoke::name(&site.name)),
        quote(&site.host),
        quote(&site.base),
        if wanted.docker { "1" } else { "''" },
        quote(&site.container()),
        quote(wanted.image.as_deref().unwrap_or_default()),
        quote(&join(&wanted.mounts)),
        quote(&ports.join(" ")),
        if wanted.idle { "1" } else { "''" },
        if wanted.free_port { "1" } else { "''" },
        if wanted.left { "1" } else { "''" },
        quote(&wanted.peers.join(" ")),
        READ,
        include_str!("../../assets/facts.sh"),
    );
    Command::sh("gather facts", script, Duration::from_secs(90))
}

/// Docker as the host's user finds it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Docker {
    /// Nobody asked.
    #[default]
    NotAsked,
    /// The engine's version.
    Usable(String),
    /// What docker or the shell said.
    Unusable(String),
}

/// The launcher of the current run on this host.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Node {
    /// No current run, or it was not started.
    #[default]
    None,
    /// Its wrapper was recorded, with this pid in its own pid namespace, and left no status; `seen`: the host itself sees it alive.
    Started {
        /// Pid.
        pid: u32,
        /// Alive in the host's own view.
        seen: bool,
    },
    /// It ended.
    Ended {
        /// How.
        exit: Exit,
        /// Seconds on the host's clock, as written.
        at: f64,
    },
}

/// What a host answered.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostFacts {
    /// Host clock when the script began and ended, seconds.
    pub clock: (f64, f64),
    /// `Linux x86_64`.
    pub system: String,
    /// The ssh user.
    pub user: String,
    /// Its uid.
    pub uid: u32,
    /// Its gid.
    pub gid: u32,
    /// Its home.
    pub home: String,
    /// `<run_dir>`, absolute.
    pub run_dir: String,
    /// The nearest directory that exists.
    pub nearest: String,
    /// Whether that can be written.
    pub writable: bool,
    /// KiB free and in all under it.
    pub disk: (u64, u64),
    /// Whether `setsid` is there.
    pub setsid: bool,
    /// What happens at log-out.
    pub logind: Logind,
    /// Addresses of the interfaces.
    pub addresses: Vec<String>,
    /// The interface of each address.
    pub interfaces: BTreeMap<String, String>,
    /// The source address of the route to each other host, where that was wanted and is known.
    pub routes: BTreeMap<String, String>,
    /// A port on which nothing listened, where one was wanted.
    pub free_port: Option<u16>,
    /// The address at which our connection arrived.
    pub arrived_at: Option<String>,
    /// One line of `nvidia-smi -L` a GPU.
    pub gpus: Vec<String>,
    /// UUIDs of those on which somebody computes, where that was wanted.
    pub gpus_busy: BTreeSet<String>,
    /// Why there are none.
    pub gpu_error: Option<String>,
    /// Docker.
    pub docker: Docker,
    /// Containers of this name and host, but for those of checks.
    pub containers: Vec<Found>,
    /// What of this name is elsewhere on the host.
    pub elsewhere: Elsewhere,
    /// The name by which the host was asked.
    pub host: String,
    /// `name/host` labels of whatever holds our container's name; `/`: a container that is not ours.
    pub taken: Option<String>,
    /// Id of the wanted image.
    pub image: Option<String>,
    /// Which of the wanted paths exist.
    pub mounts: BTreeMap<String, bool>,
    /// Wanted ports that something listens on.
    pub busy: BTreeSet<u16>,
    /// Whether a killed login at a registry left its folder in memory.
    pub login: bool,
    /// Whether a directory of this name and host exists.
    pub host_dir: bool,
    /// Whether the current run was left by a version whose record lies where ranks can write: it is believed for this host alone.
    pub old: bool,
    /// Whether a smoke of this name left something.
    pub smoke: bool,
    /// The lock.
    pub lock: Option<Lock>,
    /// Whether the container is to stay.
    pub keep: bool,
    /// Pid of a bare host's keeper, if it lives.
    pub keeper: Option<u32>,
    /// The live or last run.
    pub current: Option<String>,
    /// Whether an order has stopped it, before it ended by itself.
    pub stopped: bool,
    /// Every run directory.
    pub runs: Vec<String>,
    /// Its launcher.
    pub node: Node,
    /// Its workers: rank, restart, and the exit if it ended.
    pub ranks: Vec<(u32, u32, Option<Ended>)>,
    /// Size of each log.
    pub logs: Vec<(LogFile, u64)>,
    /// What the run says of itself; an error where the file is damaged.
    pub run_file: Option<Result<RunFile, String>>,
}

/// How a process ended, and the second on the host's clock.
pub type Ended = (Exit, f64);

/// Reads a status as a wrapper wrote it: `0 1795251815.3`, `killed 1795251815`.
pub fn read_exit(text: &str) -> Option<Ended> {
    let mut words = text.split_whitespace();
    let exit = match words.next()? {
        "killed" | "gone" => Exit::Killed,
        status => Exit::from_status(status.parse().ok()?),
    };
    Some((exit, words.next().and_then(|t| t.parse().ok()).unwrap_or(0.0)))
}

impl HostFacts {
    /// Reads the script's answer. Lines it does not know are skipped: the host's shell is not ours.
    pub fn read(text: &str) -> HostFacts {
        let mut facts = HostFacts::default();
        let mut run_file = String::new();
        let (mut lock_beat, mut uptime) = ("", "");
        for line in text.lines() {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "record" => {
                    run_file.push_str(value);
                    run_file.push('\n');
                }
                "lock_beat" => lock_beat = value,
                "uptime" => uptime = value,
                "logind" => facts.logind.take(value),
                _ => facts.take(key, value),
            }
        }
        // When the lock was made is told by a laptop's clock, and counts only until the first beat.
        if let (Some(lock), Some(age)) = (&mut facts.lock, Lock::since(lock_beat, uptime, facts.clock.0)) {
            lock.age = age;
        }
        let all = std::mem::take(&mut facts.containers);
        facts.containers = facts.elsewhere.sort(all, &facts.host, &facts.run_dir);
        if !run_file.is_empty() {
            facts.run_file = Some(RunFile::read(&run_file, facts.current.as_deref().unwrap_or_default()));
        }
        facts
    }

    fn take(&mut self, key: &str, value: &str) {
        let text = value.to_owned();
        match key {
            "now" => self.clock.0 = value.parse().unwrap_or(0.0),
            "now_end" => self.clock.1 = value.parse().unwrap_or(0.0),
            "system" => self.system = text,
            "user" => self.user = text,
            "uid" => self.uid = value.parse().unwrap_or_default(),
            "gid" => self.gid = value.parse().unwrap_or_default(),
            "home" => self.home = text,
            "run_dir" => self.run_dir = text,
            "host" => self.host = text,
            "nearest" => self.nearest = text,
            "writable" => self.writable = value == "yes",
            "disk" => self.disk = pair(value),
            "setsid" => self.setsid = true,
            "address" => {
                let (address, interface) = value.split_once(' ').unwrap_or((value, ""));
                if !interface.is_empty() {
                    self.interfaces.insert(address.to_owned(), interface.to_owned());
                }
                self.addresses.push(address.to_owned());
            }
            "route" => self.routes.extend(route(value)),
            "free_port" => self.free_port = value.parse().ok(),
            "connection" => self.arrived_at = value.split_whitespace().nth(2).map(str::to_owned),
            "gpu" if value.starts_with("GPU ") => self.gpus.push(text),
            // A MIG device is listed beneath its GPU; anything else is a complaint.
            "gpu" if !value.trim_start().starts_with("MIG ") => self.gpu_error = Some(text),
            "gpu_busy" => {
                self.gpus_busy.insert(text.trim().to_owned());
            }
            "gpus" => self.gpu_error = Some(text),
            "docker" => self.docker = Docker::Usable(text),
            "docker_error" => self.docker = Docker::Unusable(text),
            "container" => self.containers.extend(Found::read(value)),
            "taken" => self.taken = Some(text),
            "image" => self.image = Some(text),
            "mount" => {
                let (there, path) = value.split_once(' ').unwrap_or((value, ""));
                self.mounts.insert(path.to_owned(), there == "yes");
            }
            "busy" => self.busy.extend(value.parse::<u16>()),
            "login" => self.login = true,
            "smoke" => self.smoke = true,
            "host_dir" => self.host_dir = true,
            "old" => self.old = true,
            "lock" => self.lock = Lock::read(value, self.clock.0),
            _ => self.take_run(key, value),
        }
    }

    /// The same for what the current run says of itself, and for what is elsewhere.
    fn take_run(&mut self, key: &str, value: &str) {
        let text = value.to_owned();
        match key {
            "keep" => self.keep = true,
            "keeper" => self.keeper = value.parse().ok(),
            "current" if text.is_empty() => self.current = None,
            // What a host says becomes a folder here.
            "current" if !valid_run(value) => self.elsewhere.bad_current = Some("what is no run's id".to_owned()),
            "current" => self.current = Some(text),
            "stopped" => self.stopped = true,
            "run" if valid_run(value) && self.runs.len() < RUNS => self.runs.push(text),
            "node" => self.node = Node::read(value),
            "rank" => {
                let (file, rest) = value.split_once(' ').unwrap_or((value, ""));
                if let Ok(LogFile::Rank { rank, restart }) = file.parse() {
                    self.ranks.push((rank, restart, read_exit(rest)));
                }
            }
            "log" => {
                if let Some((file, size)) = value.split_once(' ')
                    && let (Ok(file), Ok(size)) = (file.parse(), size.parse())
                {
                    self.logs.push((file, size));
                }
            }
            _ => self.elsewhere.take(key, value),
        }
    }

    /// The scope in which ranks outlive the connection; `None`: there is none.
    pub fn scope(&self) -> Option<SystemdScope> {
        self.logind.scope(&self.user, self.uid)
    }

    /// The name of the interface that has an address.
    pub fn interface(&self, address: &str) -> Option<&str> {
        self.interfaces.get(address).map(String::as_str)
    }

    /// Indexes of the GPUs on which nobody computes; `None` where the host was not asked.
    pub fn idle_gpus(&self) -> Option<Vec<u32>> {
        let listed = gpu::parse_list(&self.gpus.join("\n"));
        let idle = listed.iter().filter(|g| !self.gpus_busy.contains(&g.uuid)).map(|g| g.index).collect();
        (!listed.is_empty()).then_some(idle)
    }

    /// The container of this name and host, the running one if there are several.
    pub fn container(&self) -> Option<&Found> {
        self.containers.iter().find(|c| c.status == "running").or_else(|| self.containers.first())
    }

    /// The run's own description, where it is sound.
    pub fn run_file(&self) -> Option<&RunFile> {
        self.run_file.as_ref().and_then(|r| r.as_ref().ok())
    }

    /// Whether the current run's ranks are in a container. Docker's word counts, and the record's; an earlier version's record could be a rank's,
    /// and to believe it would run a rank's files on the host. `asked`: what the inventory says.
    pub fn contained(&self, asked: bool) -> bool {
        !self.containers.is_empty() || self.run_file().filter(|_| !self.old).map_or(asked, |file| file.contained)
    }

    /// Whether anything of this name and host is there.
    pub fn has_something(&self) -> bool {
        let Elsewhere { checks, secret, .. } = &self.elsewhere;
        self.host_dir
            || self.login
            || *secret
            || !checks.is_empty()
            || !self.containers.is_empty()
            || self.keeper.is_some()
            || !self.marked_runs().is_empty()
    }

    /// The runs that have files here beside the current one. Of an earlier version there is only the current one.
    pub fn earlier_runs(&self) -> Vec<String> {
        self.runs.iter().filter(|run| !self.old && self.current.as_ref() != Some(run)).cloned().collect()
    }

    /// The facts as if this earlier run were the current one; `None` where the host does not have it.
    pub fn as_of_earlier(&self, run: &String) -> Option<HostFacts> {
        let (node, ranks, logs) = (Node::None, Vec::new(), Vec::new());
        let has = self.earlier_runs().contains(run);
        has.then(|| HostFacts { current: Some(run.clone()), node, ranks, logs, run_file: None, stopped: false, ..self.clone() })
    }

    /// Runs whose processes live on this host outside of containers, though no directory may tell of them.
    pub fn marked_runs(&self) -> Vec<String> {
        let mut runs = self.elsewhere.marked_runs(&self.host);
        runs.retain(|run| self.containers.is_empty() && self.current.as_ref() != Some(run));
        runs
    }
}

/// A line of `ip -o route get`: where to, and the source. One's own address (`local …`) is no way to another host.
fn route(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    let to = words.next().filter(|first| first.parse::<std::net::IpAddr>().is_ok())?;
    let source = words.skip_while(|word| *word != "src").nth(1)?;
    Some((to.to_owned(), source.to_owned()))
}

/// How many runs of one host are read.
const RUNS: usize = 64;

/// Whether a text can be the name of a run's files, here and there. The ids of tests are shorter than real ones.
fn valid_run(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    plain && !text.is_empty() && !text.starts_with('-') && text.len() <= 40
}

fn pair(value: &str) -> (u64, u64) {
    let mut words = value.split_whitespace().map(|w| w.parse().unwrap_or(0));
    (words.next().unwrap_or(0), words.next().unwrap_or(0))
}

impl Node {
    fn read(value: &str) -> Node {
        let mut words = value.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some("ended"), Some(_), _) => match read_exit(value.trim_start_matches("ended ")) {
                Some((exit, at)) => Node::Ended { exit, at },
                None => Node::Ended { exit: Exit::Killed, at: 0.0 },
            },
            (Some("pid"), Some(pid), seen) => Node::Started { pid: pid.parse().unwrap_or(0), seen: seen == Some("alive") },
            _ => Node::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_beat_is_the_age_of_a_lock_whatever_the_laptops_clock_says() {
        let age = |lines: &str| HostFacts::read(&format!("now 1000\n{lines}")).lock.map(|lock| lock.age);
        assert_eq!(age("lock tok:1600:12:lap:me@lap\nlock_beat 900\n"), Some(100), "ahead");
        assert_eq!(age("lock tok:400:12:lap:me@lap\nlock_beat 998\n"), Some(2), "behind");
        assert_eq!(age("lock tok:990:12:lap:me@lap\nlock_beat 0\n"), Some(10), "no beat was made");
        assert_eq!(age("lock tok:990:12:lap:me@lap\nlock_beat \n"), Some(10), "it cannot be read");
        // The wall clock was set an hour forward or back: the boot's own clock decides.
        for now in ["4600", "1000", "-2600"] {
            let facts = HostFacts::read(&format!("now {now}\nuptime 70 b-1\nlock tok:990:12:lap:me@lap\nlock_beat 66 b-1\n"));
            assert_eq!(facts.lock.map(|lock| lock.age), Some(4), "{now}");
        }
        assert_eq!(age("uptime 70 b-2\nlock tok:990:12:lap:me@lap\nlock_beat 900 b-1\n"), Some(70), "the host was restarted since");
    }

    #[test]
    fn an_answer_is_read() {
        let facts = HostFacts::read(
            "now 1000.5\nhome /home/a b\nrun_dir /home/a b/.orchestrate\nwritable yes\ndisk 500 1000\naddress 10.0.0.1 bond0.7\n\
             route 10.0.0.2 via 10.0.0.254 dev eth0 src 10.0.0.1 uid 0 \\    cache\nroute local 10.0.0.1 dev lo src 10.0.0.1\n\
             connection 1.2.3.4 5 10.0.0.1 22\ngpu GPU 0: H20 (UUID: x)\ngpu   MIG 1g\ndocker 20.10\n\
             container abc running 77 0 false sha256:1 /orch-n-h n h f00\nlock tok:900:12:lap:me@lap\nlock_beat 990\n\
             node pid 5 unseen\nrank rank-3.0 7 1000.25\nrank rank-2.0 running\nlog rank-3.0 44\nmystery 1\nrecord {\nnow_end 1001",
        );
        assert_eq!(facts.home, "/home/a b");
        assert_eq!(facts.arrived_at.as_deref(), Some("10.0.0.1"));
        assert_eq!((facts.addresses.as_slice(), facts.interface("10.0.0.1")), (["10.0.0.1".to_owned()].as_slice(), Some("bond0.7")));
        assert_eq!(facts.routes, BTreeMap::from([("10.0.0.2".to_owned(), "10.0.0.1".to_owned())]));
        assert_eq!(facts.gpus.len(), 1);
        assert_eq!(facts.container().map(|c| (c.pid, c.hash.as_str())), Some((77, "f00")));
        assert_eq!(facts.lock.as_ref().map(|l| (l.age, l.owner.as_str())), Some((10, "me@lap")));
        assert_eq!(facts.node, Node::Started { pid: 5, seen: false });
        assert_eq!(facts.ranks, [(3, 0, Some((Exit::Code(7), 1000.25))), (2, 0, None)]);
        assert_eq!(facts.logs, [(LogFile::Rank { rank: 3, restart: 0 }, 44)]);
        assert!(facts.run_file.as_ref().is_some_and(Result::is_err));
    }

    /// To believe a record that a rank could have written would run a rank's files on the host.
    #[test]
    fn an_earlier_versions_record_does_not_say_where_ranks_run() {
        let bare = RunFile { contained: false, ..RunFile::default() };
        let facts = |old| HostFacts { old, run_file: Some(Ok(bare.clone())), ..HostFacts::default() };
        assert!(facts(true).contained(true), "the inventory has a container");
        assert!(!facts(false).contained(true), "a record of the private directory counts");
    }
}
