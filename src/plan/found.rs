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
        // Docker's words for a label that is not there.
        let value = value.replace("<no value>", "");
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

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the proof is a real shell")]
mod tests {
    use super::*;
    use crate::plan::facts::{self, HostFacts, Wanted};
    use crate::plan::site::Site;

    fn asked(base: &std::path::Path) -> HostFacts {
        let site = Site {
            name: "n".to_owned(),
            host: "gpu01".to_owned(),
            run: String::new(),
            base: base.display().to_string(),
            sudo: false,
            engine: None,
            contained: false,
            token: None,
            old: false,
            log_max: 0,
            ranks: 0,
        };
        let command = facts::command(&site, &Wanted { left: true, ..Wanted::default() });
        let out = std::process::Command::new("/bin/sh").args(["-c", &command.script]).output().expect("a shell");
        HostFacts::read(&String::from_utf8_lossy(&out.stdout))
    }

    fn write(file: &std::path::Path, text: &str) {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, text).expect("written");
    }

    #[test]
    fn what_another_has_put_in_the_place_of_ours_is_named_and_not_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let trap = dir.path().join("trap");
        write(&trap.join("gpu01.private/current"), "20261122-054703-04da\n");
        write(&trap.join("gpu01.private/20261122-054703-04da.json"), "{\"name\": \"n\"}\n");
        std::fs::create_dir(dir.path().join("base")).expect("made");
        std::os::unix::fs::symlink(&trap, dir.path().join("base/n")).expect("a link");
        let facts = asked(&dir.path().join("base"));
        assert_eq!((facts.has_something(), &facts.current, facts.runs.len(), facts.run_file.is_some()), (false, &None, 0, false));
        assert!(facts.elsewhere.foreign.is_some_and(|text| text.ends_with("/base/n")));
    }

    #[test]
    fn a_note_that_names_no_run_hides_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join("n").join(name);
        write(&at("gpu01.private/current"), "../../x\n");
        write(&at("gpu01.private/20261122-054703-04da.json"), "{}\n");
        write(&at("gpu01.in/20261122-054703-04db/settings"), "lease=0\n");
        write(&at("old.private/current"), "20261122-054703-04dc\n");
        write(&at("bad name.private/current"), "20261122-054703-04dc\n");
        let facts = asked(dir.path());
        assert_eq!((&facts.current, facts.elsewhere.bad_current.as_deref()), (&None, Some("..?..?x")));
        assert_eq!(facts.earlier_runs(), ["20261122-054703-04da", "20261122-054703-04db"]);
        assert_eq!(facts.elsewhere.dirs, ["old"]);
    }

    /// A host can say anything, and its words become folders here and names of connections.
    #[test]
    fn what_a_host_says_passes_the_grammar_of_an_inventory() {
        let facts = HostFacts::read(
            "host gpu01\nrun_dir /r\ncurrent ../../x\nrun ../y\nrun 20261122-054703-04da\nother_dir $(id)\nprocess 7 20261122-054703-04da a;b\n\
             process 8 20261122-054703-04da gpu01\ncontainer abc running 7 0 false sha256:1 /orch-n-gpu01 n gpu01 f00  li@lap|/r\n\
             container abd running 7 0 false sha256:1 /orch-check-n-gpu01 n gpu01  1 |/r\n\
             container abg running 7 0 false sha256:1 /orch-old n gpu01 f00 <no value> <no value>|<no value>\ncontainer abe exited 0 0 false sha256:1 /x n gpu01 f00  bo@lap|/home/bo\n\
             container abf exited 0 0 false sha256:1 /y n old f00  li@lap|/r\n",
        );
        assert_eq!((&facts.current, facts.runs.as_slice()), (&None, ["20261122-054703-04da".to_owned()].as_slice()));
        assert!(facts.elsewhere.bad_current.is_some() && facts.elsewhere.dirs.is_empty());
        assert_eq!(facts.elsewhere.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [8]);
        let names = |list: &[Found]| list.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(&facts.containers), names(&facts.elsewhere.checks)),
            (vec!["orch-n-gpu01".to_owned(), "orch-old".to_owned()], vec!["orch-check-n-gpu01".to_owned()])
        );
        assert_eq!(names(&facts.elsewhere.containers), ["x", "y"]);
    }
}
