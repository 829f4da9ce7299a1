//! What the checks ask the hosts before a launch, for `plan`: equal questions of many hosts are told once.

use serde_json::{Value, json};

use crate::cli::checks::{addresses, looks, needed, sites};
use crate::inventory::{Inventory, Job};
use crate::plan::build::wanted;
use crate::plan::check::probe::{self, Probe};
use crate::plan::check::{Check, fast};
use crate::plan::facts::{self, HostFacts};
use crate::plan::site::Site;
use crate::report::fold::fold;
use crate::shell::Command;

/// One command and whom it goes to.
pub struct Question {
    hosts: Vec<usize>,
    command: Command,
    /// Its script without what begins every script.
    script: String,
}

/// Everything that `up` asks before it launches, by `--preflight fast`.
pub fn all(inventory: &Inventory, job: &Job, facts: &[HostFacts]) -> Vec<Question> {
    let checks = fast(job);
    let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(Some).collect();
    let (sites, addresses) = (sites(inventory, &known), addresses(inventory, &known));
    let hosts: Vec<usize> = (0..sites.len()).collect();
    let mut found: Vec<Question> = Vec::new();
    for (host, site) in sites.iter().enumerate() {
        add(&mut found, site, host, facts::command(site, &wanted(inventory, Some(job), host)));
        for command in alone(site, job, host, &checks) {
            add(&mut found, site, host, command);
        }
    }
    if needed(&checks, Probe::Net) {
        for (host, command) in looks(&sites, &addresses, &hosts) {
            add(&mut found, &sites[host], host, command);
        }
    }
    if needed(&checks, Probe::Reach) && sites.len() > 1 {
        for (host, site) in sites.iter().enumerate() {
            let port = job.launch.master_port.filter(|_| host == 0).unwrap_or(0);
            let six = addresses.get(host).is_some_and(|address| address.contains(':') && !address.contains('<'));
            add(&mut found, site, host, probe::listen(site, six, port));
        }
    }
    // In the order in which they are asked, the same of all hosts together.
    let mut titles: Vec<String> = Vec::new();
    for question in &found {
        if !titles.contains(&question.command.title) {
            titles.push(question.command.title.clone());
        }
    }
    found.sort_by_key(|question| titles.iter().position(|title| *title == question.command.title));
    found
}

fn alone(site: &Site, job: &Job, host: usize, checks: &[Check]) -> Vec<Command> {
    let probes: Vec<Probe> = probe::ALONE.into_iter().filter(|probe| needed(checks, *probe)).collect();
    let clock = needed(checks, Probe::Clock).then(|| probe::clock(site));
    probe::alone(site, job, host, &probes).into_iter().chain(clock).collect()
}

fn add(found: &mut Vec<Question>, site: &Site, host: usize, command: Command) {
    let shown = command.shown();
    let script = shown.strip_prefix(&site.preamble()).unwrap_or(&shown).to_owned();
    match found.iter_mut().find(|known| known.command.title == command.title && known.script == script) {
        Some(known) => known.hosts.push(host),
        None => found.push(Question { hosts: vec![host], command, script }),
    }
}

fn names(inventory: &Inventory, hosts: &[usize]) -> Vec<String> {
    hosts.iter().filter_map(|host| inventory.hosts.get(*host)).map(|host| host.name.clone()).collect()
}

/// For people; `whole`: with every script, else with their names alone.
pub fn text(inventory: &Inventory, questions: &[Question], whole: bool) -> String {
    let mut text = "checks: asked before anything changes; --preflight off leaves them out\n".to_owned();
    let mut told = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for question in questions {
        told(format!("  {}: {}", fold(&names(inventory, &question.hosts)), question.command.title));
        let script = if whole { question.script.clone() } else { probe::brief(&question.script) };
        for line in script.lines() {
            told(format!("      | {line}"));
        }
    }
    if inventory.hosts.len() > 1 {
        told("  each worker to the master and back, each host to the next: a connection".to_owned());
        told("      | (through its own sshd, to where the other listens)".to_owned());
    }
    text
}

/// For programs.
pub fn json(inventory: &Inventory, questions: &[Question]) -> Value {
    let one = |question: &Question| {
        json!({
            "title": question.command.title,
            "hosts": names(inventory, &question.hosts),
            "script": question.command.shown(),
            "timeout_seconds": question.command.timeout.as_secs(),
        })
    };
    questions.iter().map(one).collect()
}
