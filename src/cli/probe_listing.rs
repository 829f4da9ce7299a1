//! Lists the probes that `up` sends to the hosts before a launch, for `plan`. Equal probes of several hosts are grouped.

use serde_json::{Value, json};

use crate::inventory::{Inventory, Job};
use crate::lifecycle::preflight::{fabric_addresses, needs_probe, net_probes, probe_contexts, single_host_probes};
use crate::model::remote_command::RemoteCommand;
use crate::plan::facts::HostFacts;
use crate::plan::facts_request::{facts_command, facts_request};
use crate::plan::host_context::HostContext;
use crate::preflight::launch_checks;
use crate::preflight::probe;
use crate::preflight::probe::Probe;
use crate::text::hostlist::fold_names;

pub(crate) struct ListedProbe {
    hosts: Vec<usize>,
    command: RemoteCommand,
    /// Without the preamble that every script has.
    script: String,
}

/// The probes of `up --preflight fast`.
pub(crate) fn launch_probes(inventory: &Inventory, job: &Job, facts: &[HostFacts]) -> Vec<ListedProbe> {
    let checks = launch_checks(job);
    let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(Some).collect();
    let (contexts, addresses) = (probe_contexts(inventory, &known), fabric_addresses(inventory, &known));
    let hosts: Vec<usize> = (0..contexts.len()).collect();
    let mut found: Vec<ListedProbe> = Vec::new();
    for (host, context) in contexts.iter().enumerate() {
        add_probe(&mut found, context, host, facts_command(context, &facts_request(inventory, Some(job), host)));
        let probes = single_host_probes(context, job, host, &checks);
        for command in probes.host_command.into_iter().chain(probes.clock_command) {
            add_probe(&mut found, context, host, command);
        }
    }
    if needs_probe(&checks, Probe::Network) {
        for (host, command) in net_probes(&contexts, &addresses, &hosts) {
            add_probe(&mut found, &contexts[host], host, command);
        }
    }
    if needs_probe(&checks, Probe::Connectivity) && contexts.len() > 1 {
        for (host, context) in contexts.iter().enumerate() {
            let port = job.launch.master_port.filter(|_| host == 0).unwrap_or(0);
            let ipv6 = addresses.get(host).is_some_and(|address| address.contains(':') && !address.contains('<'));
            add_probe(&mut found, context, host, probe::listener_command(context, ipv6, port));
        }
    }
    // Group equal titles, in the order in which they first run.
    let mut titles: Vec<String> = Vec::new();
    for probe in &found {
        if !titles.contains(&probe.command.title) {
            titles.push(probe.command.title.clone());
        }
    }
    found.sort_by_key(|probe| titles.iter().position(|title| *title == probe.command.title));
    found
}

fn add_probe(probes: &mut Vec<ListedProbe>, context: &HostContext, host: usize, command: RemoteCommand) {
    let masked = command.masked_script();
    let script = masked.strip_prefix(&context.script_preamble()).unwrap_or(&masked).to_owned();
    match probes.iter_mut().find(|known| known.command.title == command.title && known.script == script) {
        Some(known) => known.hosts.push(host),
        None => probes.push(ListedProbe { hosts: vec![host], command, script }),
    }
}

fn host_names(inventory: &Inventory, hosts: &[usize]) -> Vec<String> {
    hosts.iter().filter_map(|host| inventory.hosts.get(*host)).map(|host| host.name.clone()).collect()
}

/// `with_scripts`: complete scripts, not abbreviated ones.
pub(crate) fn format_text(inventory: &Inventory, probes: &[ListedProbe], with_scripts: bool) -> String {
    let mut text = "checks: run before anything changes; --preflight off skips them\n".to_owned();
    let mut push_line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    for probe in probes {
        push_line(format!("  {}: {}", fold_names(&host_names(inventory, &probe.hosts)), probe.command.title));
        let script = if with_scripts { probe.script.clone() } else { probe::abbreviate_script(&probe.script) };
        for line in script.lines() {
            push_line(format!("      | {line}"));
        }
    }
    if inventory.hosts.len() > 1 {
        push_line("  connections: each worker to the master and back, each host to the next".to_owned());
        push_line("      | (opened through the host's own sshd, to a listener on the other host)".to_owned());
    }
    text
}

pub(crate) fn to_json(inventory: &Inventory, probes: &[ListedProbe]) -> Value {
    let entry = |probe: &ListedProbe| {
        json!({
            "title": probe.command.title,
            "hosts": host_names(inventory, &probe.hosts),
            "script": probe.command.masked_script(),
            "timeout_seconds": probe.command.timeout.as_secs(),
        })
    };
    probes.iter().map(entry).collect()
}
