//! What the checks ask the hosts before a launch, for `plan`: equal questions of many hosts are told once.

use serde_json::{Value, json};

use crate::inventory::{Inventory, Job};
use crate::lifecycle::preflight::{fabric_addresses, host_contexts, needs_probe, net_probes};
use crate::model::remote_command::RemoteCommand;
use crate::plan::build::facts_request;
use crate::plan::facts::{self, HostFacts};
use crate::plan::host_context::HostContext;
use crate::preflight::probe;
use crate::preflight::probe::Probe;
use crate::preflight::{PreflightCheck, launch_checks};
use crate::text::hostlist::fold_names;

/// One command and whom it goes to.
pub(crate) struct ListedProbe {
    hosts: Vec<usize>,
    command: RemoteCommand,
    /// Its script without what begins every script.
    script: String,
}

/// Everything that `up` asks before it launches, by `--preflight fast`.
pub(crate) fn launch_probes(inventory: &Inventory, job: &Job, facts: &[HostFacts]) -> Vec<ListedProbe> {
    let checks = launch_checks(job);
    let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(Some).collect();
    let (sites, addresses) = (host_contexts(inventory, &known), fabric_addresses(inventory, &known));
    let hosts: Vec<usize> = (0..sites.len()).collect();
    let mut found: Vec<ListedProbe> = Vec::new();
    for (host, site) in sites.iter().enumerate() {
        add_probe(&mut found, site, host, facts::facts_command(site, &facts_request(inventory, Some(job), host)));
        for command in single_host_probes(site, job, host, &checks) {
            add_probe(&mut found, site, host, command);
        }
    }
    if needs_probe(&checks, Probe::Network) {
        for (host, command) in net_probes(&sites, &addresses, &hosts) {
            add_probe(&mut found, &sites[host], host, command);
        }
    }
    if needs_probe(&checks, Probe::Connectivity) && sites.len() > 1 {
        for (host, site) in sites.iter().enumerate() {
            let port = job.launch.master_port.filter(|_| host == 0).unwrap_or(0);
            let six = addresses.get(host).is_some_and(|address| address.contains(':') && !address.contains('<'));
            add_probe(&mut found, site, host, probe::listener_command(site, six, port));
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

fn single_host_probes(context: &HostContext, job: &Job, host: usize, checks: &[PreflightCheck]) -> Vec<RemoteCommand> {
    let probes: Vec<Probe> = probe::INDEPENDENT_PROBES.into_iter().filter(|probe| needs_probe(checks, *probe)).collect();
    let clock = needs_probe(checks, Probe::Clock).then(|| probe::clock_probe_command(context));
    probe::host_probe_command(context, job, host, &probes).into_iter().chain(clock).collect()
}

fn add_probe(probes: &mut Vec<ListedProbe>, context: &HostContext, host: usize, command: RemoteCommand) {
    let shown = command.masked_script();
    let script = shown.strip_prefix(&context.script_preamble()).unwrap_or(&shown).to_owned();
    match probes.iter_mut().find(|known| known.command.title == command.title && known.script == script) {
        Some(known) => known.hosts.push(host),
        None => probes.push(ListedProbe { hosts: vec![host], command, script }),
    }
}

fn host_names(inventory: &Inventory, hosts: &[usize]) -> Vec<String> {
    hosts.iter().filter_map(|host| inventory.hosts.get(*host)).map(|host| host.name.clone()).collect()
}

/// For people; `whole`: with every script, else with their names alone.
pub(crate) fn format_text(inventory: &Inventory, probes: &[ListedProbe], with_scripts: bool) -> String {
    let mut text = "checks: asked before anything changes; --preflight off leaves them out\n".to_owned();
    let mut told = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for question in probes {
        told(format!("  {}: {}", fold_names(&host_names(inventory, &question.hosts)), question.command.title));
        let script = if with_scripts { question.script.clone() } else { probe::abbreviate_script(&question.script) };
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

pub(crate) fn to_json(inventory: &Inventory, probes: &[ListedProbe]) -> Value {
    let one = |question: &ListedProbe| {
        json!({
            "title": question.command.title,
            "hosts": host_names(inventory, &question.hosts),
            "script": question.command.masked_script(),
            "timeout_seconds": question.command.timeout.as_secs(),
        })
    };
    probes.iter().map(one).collect()
}
