//! What a host is and what of ours is on it: the read-only script, beside the reader of its answer.
//!
//! Every action observes these facts; none asks a host by itself whether there is anything to do.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::exit::Exit;
use crate::model::log_file::LogFile;
pub use crate::plan::labeled_resources::{ContainerFacts, OrphanFacts};
use crate::plan::logind::{LogindSettings, SystemdScope};
use crate::plan::process_status::{LauncherStatus, TaskStatus, TimedExit, parse_exit};
use crate::plan::protocol::lock_record::LockRecord;
use crate::plan::protocol::nvidia_smi;
use crate::plan::protocol::run_follower::RunFollower;
use crate::plan::protocol::run_record::RunRecord;

/// Docker as the host's user finds it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DockerStatus {
    #[default]
    NotQueried,
    Usable(String),
    /// The message of docker or the shell.
    Unusable(String),
}

/// The facts of one host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostFacts {
    /// Host clock when the script began and ended, seconds.
    pub clock_range: (f64, f64),
    /// `Linux x86_64`.
    pub system: String,
    pub user: String,
    /// Of the ssh user; `None`: unknown.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub home: String,
    /// `<run_dir>`, absolute.
    pub run_dir: String,
    /// The nearest directory that exists.
    pub nearest_dir: String,
    /// Whether that can be written.
    pub is_writable: bool,
    /// KiB free and in all under it.
    pub disk_kib: (u64, u64),
    /// What happens at log-out.
    pub logind: LogindSettings,
    /// Addresses of the interfaces.
    pub addresses: Vec<String>,
    /// The interface of each address.
    pub interfaces: BTreeMap<String, String>,
    /// The source address of the route to each other host, where requested and known.
    pub route_sources: BTreeMap<String, String>,
    /// A free port, where requested.
    pub free_port: Option<u16>,
    /// The address at which our connection arrived.
    pub ssh_address: Option<String>,
    /// One line of `nvidia-smi -L` a GPU.
    pub gpu_lines: Vec<String>,
    /// UUIDs of the GPUs on which processes compute, if that was requested.
    pub busy_gpus: BTreeSet<String>,
    /// Why there are none.
    pub gpu_error: Option<String>,
    pub docker: DockerStatus,
    /// Containers of this name and host, but for those of checks.
    pub containers: Vec<ContainerFacts>,
    /// Resources of this name elsewhere on the host.
    pub orphans: OrphanFacts,
    /// The host's name in the request.
    pub host: String,
    /// `name/host` labels of the container that has our container's name; `/`: a container that is not ours.
    pub container_name_holder: Option<String>,
    /// Id of the requested image.
    pub image_id: Option<String>,
    /// Which of the requested paths exist.
    pub existing_mounts: BTreeMap<String, bool>,
    /// Requested ports on which a process listens.
    pub busy_ports: BTreeSet<u16>,
    /// Whether a killed login at a registry left its folder in memory.
    pub has_leftover_login: bool,
    /// Whether a directory of this name and host exists.
    pub has_host_dir: bool,
    /// Whether a smoke of this name left something.
    pub has_leftover_smoke: bool,
    pub lock: Option<LockRecord>,
    /// Whether the container is to stay.
    pub keep_container: bool,
    /// Pid of a bare host's keeper, if it lives.
    pub keeper_pid: Option<u32>,
    /// The live or last run.
    pub current_run: Option<String>,
    /// Whether an order has stopped it, before it ended by itself.
    pub stop_requested: bool,
    /// Its followers on laptops.
    pub followers: Vec<RunFollower>,
    pub run_ids: Vec<String>,
    pub launcher: LauncherStatus,
    /// Its workers: rank, restart, and the exit if it ended.
    pub ranks: Vec<(u32, u32, Option<TimedExit>)>,
    /// The tasks of `prepare` that were started in it, by number.
    pub tasks: BTreeMap<u32, TaskStatus>,
    /// Whether the run has tasks on the host beside its container.
    pub has_host_tasks: bool,
    /// Those of `tasks` that run there.
    pub host_task_numbers: BTreeSet<u32>,
    /// Size of each log.
    pub log_sizes: Vec<(LogFile, u64)>,
    /// What the run says of itself; an error where the file is damaged.
    pub run_record: Option<Result<RunRecord, String>>,
}

impl HostFacts {
    /// Whether a rank of the current run has failed here.
    pub(crate) fn has_failed_rank(&self) -> bool {
        self.ranks.iter().any(|(_, _, end)| end.is_some_and(|(exit, _)| !exit.is_success()))
    }

    /// Whether a rank that ended so was stopped, by the order that the host got or by its launcher.
    pub(crate) fn was_stopped(&self, (exit, ended_at): TimedExit) -> bool {
        let own_failures = self.ranks.iter().filter_map(|(_, _, end)| *end).filter(|(exit, at)| exit.is_own_failure() && *at > 0.0);
        let first_failure = own_failures.map(|(_, at)| at).min_by(f64::total_cmp);
        self.stop_requested && matches!(exit, Exit::KILL | Exit::TERM) || exit.is_by_launcher(ended_at, first_failure)
    }

    /// Reads the script's answer. Lines it does not know are skipped: the host's shell is not ours.
    pub fn parse(text: &str) -> HostFacts {
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
                "logind" => facts.logind.apply_line(value),
                _ => facts.apply_line(key, value),
            }
        }
        // The time of the lock is from a laptop's clock; it counts only until the first heartbeat.
        if let (Some(lock), Some(age)) = (&mut facts.lock, LockRecord::seconds_since_heartbeat(lock_beat, uptime, facts.clock_range.0)) {
            lock.heartbeat_age = age;
        }
        let all = std::mem::take(&mut facts.containers);
        facts.containers = facts.orphans.take_own_containers(all, &facts.host, &facts.run_dir);
        if !run_file.is_empty() {
            facts.run_record = Some(RunRecord::parse(&run_file, facts.current_run.as_deref().unwrap_or_default()));
        }
        facts
    }

    fn apply_line(&mut self, key: &str, value: &str) {
        let text = value.to_owned();
        match key {
            "now" => self.clock_range.0 = value.parse().unwrap_or(0.0),
            "now_end" => self.clock_range.1 = value.parse().unwrap_or(0.0),
            "system" => self.system = text,
            "user" => self.user = text,
            "uid" => self.uid = value.parse().ok(),
            "gid" => self.gid = value.parse().ok(),
            "home" => self.home = text,
            "run_dir" => self.run_dir = text,
            "host" => self.host = text,
            "nearest" => self.nearest_dir = text,
            "writable" => self.is_writable = value == "yes",
            "disk" => self.disk_kib = parse_pair(value),
            "address" => {
                let (address, interface) = value.split_once(' ').unwrap_or((value, ""));
                if !interface.is_empty() {
                    self.interfaces.insert(address.to_owned(), interface.to_owned());
                }
                self.addresses.push(address.to_owned());
            }
            "route" => self.route_sources.extend(parse_route(value)),
            "free_port" => self.free_port = value.parse().ok(),
            "connection" => self.ssh_address = value.split_whitespace().nth(2).map(str::to_owned),
            "gpu" if value.starts_with("GPU ") => self.gpu_lines.push(text),
            // A MIG device is listed beneath its GPU; anything else is a complaint.
            "gpu" if !value.trim_start().starts_with("MIG ") => self.gpu_error = Some(text),
            "gpu_busy" => {
                self.busy_gpus.insert(text.trim().to_owned());
            }
            "gpus" => self.gpu_error = Some(text),
            "docker" => self.docker = DockerStatus::Usable(text),
            "docker_error" => self.docker = DockerStatus::Unusable(text),
            "container" => self.containers.extend(ContainerFacts::parse(value)),
            "taken" => self.container_name_holder = Some(text),
            "image" => self.image_id = Some(text),
            "mount" => {
                let (there, path) = value.split_once(' ').unwrap_or((value, ""));
                self.existing_mounts.insert(path.to_owned(), there == "yes");
            }
            "busy" => self.busy_ports.extend(value.parse::<u16>()),
            "login" => self.has_leftover_login = true,
            "smoke" => self.has_leftover_smoke = true,
            "host_dir" => self.has_host_dir = true,
            "lock" => self.lock = LockRecord::parse(value, self.clock_range.0),
            _ => self.apply_run_line(key, value),
        }
    }

    /// The same for what the current run says of itself, and for what is elsewhere.
    fn apply_run_line(&mut self, key: &str, value: &str) {
        let text = value.to_owned();
        match key {
            "keep" => self.keep_container = true,
            "keeper" => self.keeper_pid = value.parse().ok(),
            "current" if text.is_empty() => self.current_run = None,
            // What a host says becomes a folder here.
            "current" if !is_safe_run_id(value) => self.orphans.invalid_current_run = Some("an invalid run id".to_owned()),
            "current" => self.current_run = Some(text),
            "stopped" => self.stop_requested = true,
            "follower" => self.followers.extend(RunFollower::parse(value).filter(|_| self.followers.len() < 16)),
            "run" if is_safe_run_id(value) && self.run_ids.len() < MAX_RUNS => self.run_ids.push(text),
            "node" => self.launcher = LauncherStatus::parse(value),
            "rank" => {
                let (file, rest) = value.split_once(' ').unwrap_or((value, ""));
                if let Some(LogFile::Rank { rank, restart }) = LogFile::parse(file) {
                    self.ranks.push((rank, restart, parse_exit(rest)));
                }
            }
            "host_tasks" => self.has_host_tasks = true,
            "task" | "host_task" => {
                let (file, rest) = value.split_once(' ').unwrap_or((value, ""));
                if let Some(LogFile::Task { number }) = LogFile::parse(file) {
                    self.tasks.insert(number, TaskStatus::parse(rest));
                    if key == "host_task" {
                        self.host_task_numbers.insert(number);
                    }
                }
            }
            "log" => {
                if let Some((file, size)) = value.split_once(' ')
                    && let (Some(file), Ok(size)) = (LogFile::parse(file), size.parse())
                {
                    self.log_sizes.push((file, size));
                }
            }
            _ => self.orphans.apply_line(key, value),
        }
    }

    /// The scope in which ranks outlive the connection; `None`: there is none.
    pub fn systemd_scope(&self) -> Option<SystemdScope> {
        self.logind.scope_for(&self.user, self.uid.unwrap_or(u32::MAX))
    }

    /// The name of the interface that has an address.
    pub fn interface_for(&self, address: &str) -> Option<&str> {
        self.interfaces.get(address).map(String::as_str)
    }

    /// Indexes of the GPUs on which no process computes; `None` if the host was not asked.
    pub fn idle_gpus(&self) -> Option<Vec<u32>> {
        let listed = nvidia_smi::parse_gpu_list(&self.gpu_lines.join("\n"));
        let idle = listed.iter().filter(|g| !self.busy_gpus.contains(&g.uuid)).map(|g| g.index).collect();
        (!listed.is_empty()).then_some(idle)
    }

    /// The container of this name and host, the running one if there are several.
    pub fn container(&self) -> Option<&ContainerFacts> {
        self.containers.iter().find(|c| c.status == "running").or_else(|| self.containers.first())
    }

    /// The run's own description, where it is sound.
    pub fn run_record(&self) -> Option<&RunRecord> {
        self.run_record.as_ref().and_then(|r| r.as_ref().ok())
    }

    /// Whether the current run's ranks are in a container: docker's word counts, then the record's. `asked`: what the inventory says.
    pub fn runs_in_container(&self, asked: bool) -> bool {
        !self.containers.is_empty() || self.run_record().map_or(asked, |record| record.in_container)
    }

    /// Whether anything of this name and host is there.
    pub fn has_any_resource(&self) -> bool {
        let OrphanFacts { check_containers: checks, has_secret_file: secret, .. } = &self.orphans;
        self.has_host_dir
            || self.has_leftover_login
            || *secret
            || !checks.is_empty()
            || !self.containers.is_empty()
            || self.keeper_pid.is_some()
            || !self.orphaned_runs().is_empty()
    }

    /// The runs that have files here beside the current one.
    pub fn earlier_runs(&self) -> Vec<String> {
        self.run_ids.iter().filter(|run| self.current_run.as_ref() != Some(run)).cloned().collect()
    }

    /// The facts as if this earlier run were the current one; `None` where the host does not have it.
    pub fn for_earlier_run(&self, run: &String) -> Option<HostFacts> {
        let has = self.earlier_runs().contains(run);
        has.then(|| HostFacts {
            current_run: Some(run.clone()),
            launcher: LauncherStatus::NotStarted,
            ranks: Vec::new(),
            tasks: BTreeMap::new(),
            log_sizes: Vec::new(),
            run_record: None,
            stop_requested: false,
            ..self.clone()
        })
    }

    /// Runs whose processes live on this host outside of containers, possibly without a run directory.
    pub fn orphaned_runs(&self) -> Vec<String> {
        let mut runs = self.orphans.runs_with_processes(&self.host);
        runs.retain(|run| self.containers.is_empty() && self.current_run.as_ref() != Some(run));
        runs
    }
}

/// A line of `ip -o route get`: where to, and the source. The host's own address (`local …`) is no route to another host.
fn parse_route(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    let to = words.next().filter(|first| first.parse::<std::net::IpAddr>().is_ok())?;
    let source = words.skip_while(|word| *word != "src").nth(1)?;
    Some((to.to_owned(), source.to_owned()))
}

/// How many runs of one host are read.
const MAX_RUNS: usize = 64;

/// Whether a text can be the name of a run's files, here and there. The ids of tests are shorter than real ones.
fn is_safe_run_id(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    plain && !text.is_empty() && !text.starts_with('-') && text.len() <= 40
}

fn parse_pair(value: &str) -> (u64, u64) {
    let mut words = value.split_whitespace().map(|w| w.parse().unwrap_or(0));
    (words.next().unwrap_or(0), words.next().unwrap_or(0))
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
