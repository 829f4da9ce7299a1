//! What every name and owner has on a host: containers with our labels, and the current run of each name below the run directory of this user.
//!
//! A host says it, so each name passes the inventory's grammar before it is shown.

use std::time::Duration;

use crate::inventory::{is_valid_host_name, is_valid_inventory_name};
use crate::model::remote_command::RemoteCommand;
use crate::plan::host_context::{HostContext, SAFE_READ_SH};
use crate::plan::protocol::run_record::RunRecord;
use crate::text::shell_quote::quote;

/// Rows of a host that are kept.
const MAX_ROWS: usize = 512;

/// The state of a run whose container docker does not list.
const NO_CONTAINER: &str = "no container";

/// One name on a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NamedRun {
    pub(crate) name: String,
    /// What the host is called in that run's inventory.
    pub(crate) host: String,
    /// `None`: it is in the run directory of another user.
    pub(crate) run_id: Option<String>,
    /// RFC 3339: of the run, else of its container.
    pub(crate) started_at: String,
    /// `running`, `exited`, `ended`, `no container`, `unknown`: docker did not answer.
    pub(crate) state: String,
    pub(crate) world_size: Option<u32>,
    pub(crate) owner: String,
}

/// What a host answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AllRuns {
    pub(crate) runs: Vec<NamedRun>,
    /// Why docker listed not every container.
    pub(crate) docker_error: Option<String>,
}

pub(crate) fn all_runs_command(context: &HostContext) -> RemoteCommand {
    let script = format!(
        "{}docker={}\nrun_dir={}\n{SAFE_READ_SH}\n{}",
        context.script_preamble(),
        quote(&context.docker_command()),
        quote(&context.run_dir_root),
        include_str!("../../../assets/all_runs.sh"),
    );
    // An answer beyond the output limit lacks its last line and is refused.
    RemoteCommand::from_script("list all runs", script, Duration::from_secs(60))
}

/// A container, with the run directory of its label.
struct LabeledContainer {
    run: NamedRun,
    run_dir: String,
}

/// `None`: the answer is not whole.
pub(crate) fn parse_all_runs(answer: &str) -> Option<AllRuns> {
    let (mut found, mut containers, mut run_dir) = (AllRuns::default(), Vec::new(), "");
    let mut is_whole = false;
    for line in answer.lines() {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("run_dir", dir) => run_dir = dir,
            ("docker_error", error) => found.docker_error = Some(error.trim().to_owned()),
            ("container", value) => containers.extend(parse_container(value)),
            ("run", value) if found.runs.len() < MAX_ROWS => {
                let own = parse_run(value).map(|run| with_container(run, &mut containers, run_dir));
                found.runs.extend(own);
            }
            ("looked", _) => is_whole = true,
            _ => {}
        }
    }
    if found.docker_error.is_some() {
        found.runs.iter_mut().filter(|run| run.state == NO_CONTAINER).for_each(|run| run.state = "unknown".to_owned());
    }
    // What is left belongs to other users, or has lost its directory.
    found.runs.extend(containers.into_iter().take(MAX_ROWS).map(|container| container.run));
    found.runs.sort_by(|a, b| (&a.name, &a.host, &a.owner).cmp(&(&b.name, &b.host, &b.owner)));
    is_whole.then_some(found)
}

fn parse_container(value: &str) -> Option<LabeledContainer> {
    let value = value.replace("<no value>", "");
    let mut words = value.trim().splitn(6, '|').map(str::to_owned);
    let (state, started_at, name, host) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (owner, run_dir) = (words.next()?, words.next()?);
    let is_valid = is_valid_inventory_name(&name) && is_valid_host_name(&host);
    let run = NamedRun { name, host, started_at, state, owner, ..NamedRun::default() };
    is_valid.then_some(LabeledContainer { run, run_dir })
}

/// The run, and whether its ranks are in a container.
fn parse_run(value: &str) -> Option<(NamedRun, bool)> {
    let mut words = value.splitn(4, ' ');
    let (state, host, run_id, record) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let record = RunRecord::parse(record.trim(), run_id).ok()?;
    let run = NamedRun {
        name: record.name,
        host: host.to_owned(),
        run_id: Some(record.run_id),
        started_at: record.started_at,
        state: state.to_owned(),
        world_size: Some(record.world_size).filter(|_| !record.tasks_only),
        owner: record.owner,
    };
    is_valid_host_name(host).then_some((run, record.in_container))
}

/// A run's state is its container's.
fn with_container((run, in_container): (NamedRun, bool), containers: &mut Vec<LabeledContainer>, run_dir: &str) -> NamedRun {
    if !in_container {
        return run;
    }
    let is_own = |own: &LabeledContainer| own.run.name == run.name && own.run.host == run.host && own.run_dir == run_dir;
    let state = match containers.iter().position(is_own) {
        Some(at) => containers.swap_remove(at).run.state,
        None => NO_CONTAINER.to_owned(),
    };
    NamedRun { state, ..run }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn record(name: &str, run: &str, in_container: bool) -> String {
        let record = RunRecord {
            run_id: run.to_owned(),
            name: name.to_owned(),
            owner: "li@laptop".to_owned(),
            started_at: "2026-11-25T02:00:00Z".to_owned(),
            world_size: 4,
            in_container,
            teardown: "always".to_owned(),
            ..RunRecord::default()
        };
        serde_json::to_string(&record).expect("JSON")
    }

    #[test]
    fn runs_and_containers_of_all_names_are_joined() {
        let answer = format!(
            "run_dir /home/li/.orchestrate\n\
             container running|2026-11-25T02:00:00Z|train|gpu01|li@laptop|/home/li/.orchestrate\n\
             container exited|2026-11-24T02:00:00Z|eval|gpu01|wu@desk|/home/wu/.orchestrate\n\
             container running|x|../evil|gpu01|wu@desk|/tmp\n\
             run ended gpu01 20261125-020000-0001 {}\nrun running gpu01 20261125-020000-0002 {}\nrun ended gpu01 20261125-020000-0003 {}\nrun running gpu01 20261125-020000-0009 {{}}\nlooked\n",
            record("train", "20261125-020000-0001", true),
            record("bare", "20261125-020000-0002", false),
            record("gone", "20261125-020000-0003", true),
        );
        let found = parse_all_runs(&answer).expect("whole");
        let rows: Vec<_> = found.runs.iter().map(|run| (run.name.as_str(), run.run_id.as_deref(), run.state.as_str())).collect();
        assert_eq!(
            rows,
            [
                ("bare", Some("20261125-020000-0002"), "running"),
                ("eval", None, "exited"),
                ("gone", Some("20261125-020000-0003"), "no container"),
                ("train", Some("20261125-020000-0001"), "running")
            ]
        );
        assert_eq!((found.runs[3].world_size, found.runs[1].owner.as_str()), (Some(4), "wu@desk"));
        assert_eq!(parse_all_runs("run_dir /x\n"), None, "a cut answer is no empty host");
        let answer = format!(
            "run ended gpu01 20261125-020000-0003 {}\ndocker_error permission denied\nlooked\n",
            record("gone", "20261125-020000-0003", true)
        );
        let silent = parse_all_runs(&answer).expect("whole");
        assert_eq!((silent.docker_error.as_deref(), silent.runs[0].state.as_str()), (Some("permission denied"), "unknown"));
    }

    #[test]
    fn script_reads_records_and_follows_no_link() {
        let base = tempfile::tempdir().expect("a folder");
        let context = HostContext::new("n", "gpu01", base.path().display().to_string());
        let private = |name: &str| base.path().join(name).join("gpu01.private");
        for (name, run) in [("train", "20261125-020000-0001"), ("linked", "20261125-020000-0002"), ("odd", "r$(id)")] {
            std::fs::create_dir_all(private(name)).expect("made");
            std::fs::write(private(name).join("current"), format!("{run}\n")).expect("written");
        }
        std::fs::write(private("train").join("20261125-020000-0001.json"), record("train", "20261125-020000-0001", false))
            .expect("written");
        let stat = std::fs::read_to_string("/proc/self/stat").expect("a process");
        let start = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(19)).expect("its start time");
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
        let keeper = |start: &str| format!("{} {start} {boot}", std::process::id());
        std::fs::write(private("train").join("keeper.pid"), keeper(start)).expect("written");
        std::fs::write(base.path().join("elsewhere"), record("linked", "20261125-020000-0002", false)).expect("written");
        symlink(base.path().join("elsewhere"), private("linked").join("20261125-020000-0002.json")).expect("linked");
        let command = all_runs_command(&context);
        let own = || {
            let mut shell = std::process::Command::new("/bin/sh");
            let output = shell.args(["-c", &command.script]).env("PATH", "/usr/bin:/bin").output().expect("a shell");
            let found = parse_all_runs(&String::from_utf8_lossy(&output.stdout)).expect("whole");
            let own = found.runs.into_iter().filter(|run| run.run_id.is_some());
            own.map(|run| (run.name, run.state)).collect::<Vec<_>>()
        };
        let train = |state: &str| vec![("train".to_owned(), state.to_owned())];
        assert_eq!(own(), train("running"));
        // Another process has the keeper's number.
        std::fs::write(private("train").join("keeper.pid"), keeper("1")).expect("written");
        assert_eq!(own(), train("ended"));
    }
}
