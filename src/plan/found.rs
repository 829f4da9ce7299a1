//! What a host has beside the directories of this name and host: containers, and what the name has left under other names of the host.
//!
//! Uses `inventory` and runs' records. A host says it, so each name passes the inventory's grammar before it is used.

use std::collections::BTreeMap;

use crate::inventory::{valid_host_name, valid_run_id};
use crate::plan::run::RunFile;

/// A container that carries our labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Full id.
    pub id: String,
    /// `running`, `exited`, `created`, `paused`, `dead`…
    pub status: String,
    /// Host pid of its first process; 0 when it does not run.
    pub pid: u32,
    /// Its exit status.
    pub code: i32,
    /// Whether the kernel ended it for its memory.
    pub oom: bool,
    /// Id of the image it was made from.
    pub image: String,
    /// Its name, without the slash.
    pub name: String,
    /// The label `orchestrate.container_hash`.
    pub hash: String,
    /// The label `orchestrate.host`.
    pub host: String,
    /// Whether it belongs to a preflight check.
    pub check: bool,
    /// The label `orchestrate.owner`.
    pub owner: String,
    /// The label `orchestrate.run_dir`; empty where a version that had none made it.
    pub run_dir: String,
}

impl Found {
    pub(super) fn read(value: &str) -> Option<Found> {
        let mut words = value.splitn(11, ' ');
        let mut next = || words.next().map(str::to_owned);
        let (id, status, pid, code, oom, image, name) = (next()?, next()?, next()?, next()?, next()?, next()?, next()?);
        let (_, host, hash) = (next(), next().unwrap_or_default(), next().unwrap_or_default());
        let rest = next().unwrap_or_default();
        let (check, rest) = rest.split_once(' ').unwrap_or_default();
        let (owner, run_dir) = rest.split_once('|').unwrap_or((rest, ""));
        Some(Found {
            id,
            status,
            pid: pid.parse().unwrap_or(0),
            code: code.parse().unwrap_or(0),
            oom: oom == "true",
            image,
            name: name.trim_start_matches('/').to_owned(),
            hash,
            host,
            check: !check.is_empty(),
            owner: owner.to_owned(),
            run_dir: run_dir.to_owned(),
        })
    }

    /// `name (status)`.
    pub fn shown(&self) -> String {
        format!("{} ({})", self.name, self.status)
    }
}

/// A process that carries the directory of one of this name's runs in its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// Its number on the host.
    pub pid: u32,
    /// The run.
    pub run: String,
    /// The name that the host had in that run.
    pub host: String,
}

/// What of this name is elsewhere on a host than in the directories of this name and host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Elsewhere {
    /// Containers of preflight checks of this host.
    pub checks: Vec<Found>,
    /// Containers of other hosts' names, or whose files are in another place.
    pub containers: Vec<Found>,
    /// Other hosts' names that have directories of ours here.
    pub dirs: Vec<String>,
    /// The records of the runs that are current there, each once.
    pub records: Vec<RunFile>,
    /// Processes of this user.
    pub processes: Vec<Marked>,
    /// Whether a launch left the file that hands over its secrets in memory.
    pub secret: bool,
    /// Who has a directory in the place of ours, and where: `li /scratch/train`.
    pub foreign: Option<String>,
    /// What the host's note of the current run says instead of a run's id.
    pub bad_current: Option<String>,
    texts: BTreeMap<String, String>,
}

impl Elsewhere {
    /// Takes a line of the facts script.
    pub(super) fn take(&mut self, key: &str, value: &str) {
        match key {
            "secret" => self.secret = true,
            "foreign" => self.foreign = Some(value.to_owned()),
            "bad_current" => self.bad_current = Some(value.to_owned()),
            "other_dir" if valid_host_name(value) => self.dirs.push(value.to_owned()),
            "other_record" => {
                let (run, line) = value.split_once(' ').unwrap_or((value, ""));
                if self.texts.len() < 4 || self.texts.contains_key(run) {
                    let text = self.texts.entry(run.to_owned()).or_default();
                    text.push_str(line);
                    text.push('\n');
                }
            }
            "process" => {
                if let [pid, run, host] = value.split(' ').collect::<Vec<_>>()[..]
                    && let Ok(pid) = pid.parse()
                    && valid_run_id(run)
                    && valid_host_name(host)
                {
                    self.processes.push(Marked { pid, run: run.to_owned(), host: host.to_owned() });
                }
            }
            _ => {}
        }
    }

    /// What is known when all lines have been read: the containers of this host and place, out of all of this name.
    pub(super) fn sort(&mut self, all: Vec<Found>, host: &str, run_dir: &str) -> Vec<Found> {
        let texts = std::mem::take(&mut self.texts);
        self.records = texts.iter().filter_map(|(run, text)| RunFile::read(text, run).ok()).collect();
        let foreign = self.foreign.is_some();
        // One of a version before this says nothing of its place.
        let here = |c: &Found| c.run_dir.is_empty() || c.run_dir == run_dir && !foreign;
        let (own, others) = all.into_iter().partition::<Vec<_>, _>(|c| (host.is_empty() || c.host == host) && here(c));
        self.containers = others;
        let (checks, own) = own.into_iter().partition(|c| c.check);
        self.checks = checks;
        own
    }

    /// The runs of this host whose processes live and whose directory may be gone.
    pub fn marked_runs(&self, host: &str) -> Vec<String> {
        let mut runs: Vec<String> = self.processes.iter().filter(|p| p.host == host).map(|p| p.run.clone()).collect();
        runs.sort();
        runs.dedup();
        runs
    }
}
