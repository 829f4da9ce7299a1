//! What a host has beside the directories of this name and host: containers, and what the name has left under other names of the host.
//!
//! A host says it, so each name passes the inventory's grammar before it is used.

use std::collections::BTreeMap;

use crate::inventory::{is_valid_host_name, is_valid_run_id};
use crate::plan::protocol::run_record::RunRecord;

/// A container that carries our labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerFacts {
    pub id: String,
    /// `running`, `exited`, `created`, `paused`, `dead`…
    pub status: String,
    /// Whether the kernel ended it for its memory.
    pub oom_killed: bool,
    /// Id of the image it was made from.
    pub image: String,
    /// Its name, without the slash.
    pub name: String,
    /// The label `orchestrate.container_hash`.
    pub container_hash: String,
    /// The label `orchestrate.host`.
    pub host: String,
    /// Whether it belongs to a preflight check.
    pub is_check: bool,
    /// The label `orchestrate.owner`.
    pub owner: String,
    /// The label `orchestrate.run_dir`; may be missing.
    pub run_dir: String,
}

impl ContainerFacts {
    pub(super) fn parse(value: &str) -> Option<ContainerFacts> {
        // Docker's words for a label that is not there.
        let value = value.replace("<no value>", "");
        let mut words = value.splitn(11, ' ');
        let mut next = || words.next().map(str::to_owned);
        let (id, status, _pid, _exit_code, oom, image, name) = (next()?, next()?, next()?, next()?, next()?, next()?, next()?);
        let (_, host, hash) = (next(), next().unwrap_or_default(), next().unwrap_or_default());
        let rest = next().unwrap_or_default();
        let (check, rest) = rest.split_once(' ').unwrap_or_default();
        let (owner, run_dir) = rest.split_once('|').unwrap_or((rest, ""));
        Some(ContainerFacts {
            id,
            status,
            oom_killed: oom == "true",
            image,
            name: name.trim_start_matches('/').to_owned(),
            container_hash: hash,
            host,
            is_check: !check.is_empty(),
            owner: owner.to_owned(),
            run_dir: run_dir.to_owned(),
        })
    }

    /// `name (status)`.
    pub fn name_and_status(&self) -> String {
        format!("{} ({})", self.name, self.status)
    }
}

/// A process that carries the directory of one of this name's runs in its environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunProcess {
    pub run_id: String,
    /// The name that the host had in that run.
    pub host: String,
}

/// What of this name is elsewhere on a host than in the directories of this name and host.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OrphanFacts {
    /// Containers of preflight checks of this host.
    pub check_containers: Vec<ContainerFacts>,
    /// Containers of other hosts' names, or whose files are in another place.
    pub containers: Vec<ContainerFacts>,
    /// Other hosts' names that have directories of ours here.
    pub host_names: Vec<String>,
    /// The records of the runs that are current there, each once.
    pub run_records: Vec<RunRecord>,
    /// Processes of this user.
    pub processes: Vec<RunProcess>,
    /// Live runs of other names, as a person reads them; asked only where the master's port is in use.
    pub other_live_runs: Vec<String>,
    /// Whether a launch left the file that hands over its secrets in memory.
    pub has_secret_file: bool,
    /// The user who owns a directory at our path, and the path: `li /scratch/train`.
    pub foreign_dir: Option<String>,
    /// What the host's note of the current run says instead of a run's id.
    pub invalid_current_run: Option<String>,
    record_texts: BTreeMap<String, String>,
}

impl OrphanFacts {
    /// Takes a line of the facts script.
    pub(super) fn apply_line(&mut self, key: &str, value: &str) {
        match key {
            "secret" => self.has_secret_file = true,
            "foreign" => self.foreign_dir = Some(value.to_owned()),
            "bad_current" => self.invalid_current_run = Some(value.to_owned()),
            "other_dir" if is_valid_host_name(value) => self.host_names.push(value.to_owned()),
            "other_record" => {
                let (run, line) = value.split_once(' ').unwrap_or((value, ""));
                if self.record_texts.len() < 4 || self.record_texts.contains_key(run) {
                    let text = self.record_texts.entry(run.to_owned()).or_default();
                    text.push_str(line);
                    text.push('\n');
                }
            }
            "process" => {
                if let [pid, run, host] = value.split(' ').collect::<Vec<_>>()[..]
                    && pid.parse::<u32>().is_ok()
                    && is_valid_run_id(run)
                    && is_valid_host_name(host)
                {
                    self.processes.push(RunProcess { run_id: run.to_owned(), host: host.to_owned() });
                }
            }
            _ => {}
        }
    }

    /// What is known when all lines have been read: the containers of this host and place, out of all of this name.
    pub(super) fn take_own_containers(&mut self, all: Vec<ContainerFacts>, host: &str, run_dir: &str) -> Vec<ContainerFacts> {
        let texts = std::mem::take(&mut self.record_texts);
        self.run_records = texts.iter().filter_map(|(run, text)| RunRecord::parse(text, run).ok()).collect();
        let foreign = self.foreign_dir.is_some();
        // One without the label says nothing of its place.
        let here = |c: &ContainerFacts| c.run_dir.is_empty() || c.run_dir == run_dir && !foreign;
        let (own, others) = all.into_iter().partition::<Vec<_>, _>(|c| (host.is_empty() || c.host == host) && here(c));
        self.containers = others;
        let (checks, own) = own.into_iter().partition(|c| c.is_check);
        self.check_containers = checks;
        own
    }

    /// The runs of this host whose processes live and whose directory may be gone.
    pub fn runs_with_processes(&self, host: &str) -> Vec<String> {
        let mut runs: Vec<String> = self.processes.iter().filter(|p| p.host == host).map(|p| p.run_id.clone()).collect();
        runs.sort();
        runs.dedup();
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::facts::HostFacts;
    use crate::plan::facts_request::{FactsRequest, facts_command};
    use crate::plan::host_context::HostContext;

    fn gather_facts(base: &std::path::Path) -> HostFacts {
        let context = HostContext::new("n", "gpu01", base.display().to_string());
        let command = facts_command(&context, &FactsRequest { orphans: true, ..FactsRequest::default() });
        let out = std::process::Command::new("/bin/sh").args(["-c", &command.script]).output().expect("a shell");
        HostFacts::parse(&String::from_utf8_lossy(&out.stdout))
    }

    fn write_file(file: &std::path::Path, text: &str) {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        std::fs::write(file, text).expect("written");
    }

    #[test]
    fn foreign_directory_is_reported_and_not_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let trap = dir.path().join("trap");
        write_file(&trap.join("gpu01.private/current"), "20261122-054703-04da\n");
        write_file(&trap.join("gpu01.private/20261122-054703-04da.json"), "{\"name\": \"n\"}\n");
        std::fs::create_dir(dir.path().join("base")).expect("made");
        std::os::unix::fs::symlink(&trap, dir.path().join("base/n")).expect("a link");
        let facts = gather_facts(&dir.path().join("base"));
        assert_eq!(
            (facts.has_any_resource(), &facts.current_run, facts.run_ids.len(), facts.run_record.is_some()),
            (false, &None, 0, false)
        );
        assert!(facts.orphans.foreign_dir.is_some_and(|text| text.ends_with("/base/n")));
    }

    #[test]
    fn invalid_current_run_does_not_hide_earlier_runs() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join("n").join(name);
        write_file(&at("gpu01.private/current"), "../../x\n");
        write_file(&at("gpu01.private/20261122-054703-04da.json"), "{}\n");
        write_file(&at("gpu01.in/20261122-054703-04db/settings"), "lease=0\n");
        write_file(&at("old.private/current"), "20261122-054703-04dc\n");
        write_file(&at("bad name.private/current"), "20261122-054703-04dc\n");
        let facts = gather_facts(dir.path());
        assert_eq!((&facts.current_run, facts.orphans.invalid_current_run.as_deref()), (&None, Some("..?..?x")));
        assert_eq!(facts.earlier_runs(), ["20261122-054703-04da", "20261122-054703-04db"]);
        assert_eq!(facts.orphans.host_names, ["old"]);
        let command = format!("$(touch {})", at("X").display());
        for current in ["../../home", command.as_str(), "..", ""] {
            write_file(&at("gpu01.private/current"), current);
            assert_eq!(gather_facts(dir.path()).current_run, None, "{current:?}");
        }
        assert!(!at("X").exists());
    }

    /// A host's output is untrusted, and its words become folders here and names of connections.
    #[test]
    fn host_output_is_validated_by_inventory_grammar() {
        let facts = HostFacts::parse(
            "host gpu01\nrun_dir /r\ncurrent ../../x\nrun ../y\nrun 20261122-054703-04da\nother_dir $(id)\nprocess 7 20261122-054703-04da a;b\n\
             process 8 20261122-054703-04da gpu01\ncontainer abc running 7 0 false sha256:1 /orch-n-gpu01 n gpu01 f00  li@lap|/r\n\
             container abd running 7 0 false sha256:1 /orch-check-n-gpu01 n gpu01  1 |/r\n\
             container abg running 7 0 false sha256:1 /orch-old n gpu01 f00 <no value> <no value>|<no value>\ncontainer abe exited 0 0 false sha256:1 /x n gpu01 f00  bo@lap|/home/bo\n\
             container abf exited 0 0 false sha256:1 /y n old f00  li@lap|/r\n",
        );
        assert_eq!((&facts.current_run, facts.run_ids.as_slice()), (&None, ["20261122-054703-04da".to_owned()].as_slice()));
        assert!(facts.orphans.invalid_current_run.is_some() && facts.orphans.host_names.is_empty());
        assert_eq!(facts.orphans.processes.iter().map(|p| p.host.as_str()).collect::<Vec<_>>(), ["gpu01"]);
        let names = |list: &[ContainerFacts]| list.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            (names(&facts.containers), names(&facts.orphans.check_containers)),
            (vec!["orch-n-gpu01".to_owned(), "orch-old".to_owned()], vec!["orch-check-n-gpu01".to_owned()])
        );
        assert_eq!(names(&facts.orphans.containers), ["x", "y"]);
    }
}
