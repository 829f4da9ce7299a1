//! Preflight as `check` and `up` share it: who is asked what and in which order, and the judgement.

use crate::engine::probes::{ConnectivityProbe, HostPair, HostProbes};
use crate::event::{EventKind, Phase};
use crate::inventory::{Inventory, Job};
use crate::lifecycle::random::random_hex;
use crate::lifecycle::session::Session;
use crate::model::remote_command::RemoteCommand;
use crate::plan::action::container::format_gpus_flag;
use crate::plan::build::facts_request;
use crate::plan::existing_run::{HostRunState, host_run_state};
use crate::plan::facts::{self, DockerStatus, HostFacts};
use crate::plan::host_context::HostContext;
use crate::plan::rank_layout::resolve_fabric_address;
use crate::preflight::context::{CheckContext, CheckedHost};
use crate::preflight::probe;
use crate::preflight::probe::{EnvironmentProbe, Probe};
use crate::preflight::probe_output::ProbeOutput;
use crate::preflight::{CheckReport, PreflightCheck, evaluate_checks};
use crate::remote::RemoteError;
use crate::report::preflight_report;

/// What the hosts answered, a host each.
pub(crate) struct HostAnswers {
    /// `None`: it could not be reached.
    pub(crate) facts: Vec<Option<HostFacts>>,
    pub(crate) probes: Vec<ProbeOutput>,
}

/// Whether any of the checks needs an answer to this.
pub(crate) fn needs_probe(checks: &[PreflightCheck], probe: Probe) -> bool {
    checks.iter().any(|check| check.probes.contains(&probe))
}

/// Asks every host for its facts, and side by side whatever the checks need of it alone.
pub(crate) async fn gather_facts_and_probes(
    session: &Session,
    job: &Job,
    checks: &[PreflightCheck],
) -> Vec<(Result<HostFacts, RemoteError>, ProbeOutput)> {
    let inventory = &session.inventory;
    if !checks.is_empty() {
        session.engine.emitter().send(EventKind::PhaseStarted { phase: Phase::Preflight });
    }
    let alone: Vec<Probe> = probe::INDEPENDENT_PROBES.into_iter().filter(|probe| needs_probe(checks, *probe)).collect();
    let (mut commands, mut questions) = (Vec::new(), Vec::new());
    for (index, host) in inventory.hosts.iter().enumerate() {
        let site = HostContext::from_inventory(inventory, host, &inventory.run_dir);
        commands.push(facts::facts_command(&site, &facts_request(inventory, Some(job), index)));
        questions.push(HostProbes {
            host_command: probe::host_probe_command(&site, job, index, &alone),
            probes: alone.clone(),
            clock_command: needs_probe(checks, Probe::Clock).then(|| probe::clock_probe_command(&site)),
        });
    }
    session.engine.gather_facts_and_probes(commands, questions).await
}

/// The fabric address of each host; empty where it cannot be told.
pub(crate) fn fabric_addresses(inventory: &Inventory, facts: &[Option<HostFacts>]) -> Vec<String> {
    let address =
        |(host, facts): (_, &Option<HostFacts>)| facts.as_ref().and_then(|f| resolve_fabric_address(host, f).ok()).unwrap_or_default();
    inventory.hosts.iter().zip(facts).map(address).collect()
}

/// Where on each host.
pub(crate) fn host_contexts(inventory: &Inventory, facts: &[Option<HostFacts>]) -> Vec<HostContext> {
    let place = |facts: &Option<HostFacts>| facts.as_ref().map_or_else(|| inventory.run_dir.clone(), |f| f.run_dir.clone());
    inventory.hosts.iter().zip(facts).map(|(host, facts)| HostContext::from_inventory(inventory, host, &place(facts))).collect()
}

/// Asks what needs the facts of all: names and ways between the hosts, and the inside of the image.
pub(crate) async fn cross_host_probes(session: &Session, job: &Job, checks: &[PreflightCheck], answers: &mut HostAnswers) {
    let HostAnswers { facts, probes: told } = answers;
    let facts = facts.as_slice();
    let inventory = &session.inventory;
    let addresses = fabric_addresses(inventory, facts);
    let sites = host_contexts(inventory, facts);
    let there: Vec<usize> = facts.iter().enumerate().filter(|(_, f)| f.is_some()).map(|(i, _)| i).collect();
    let fresh = || vec![ProbeOutput::default(); told.len()];
    let (mut net, mut reach, mut inside) = (fresh(), fresh(), fresh());
    tokio::join!(
        async {
            if needs_probe(checks, Probe::Network) {
                session.engine.run_extra_probe(net_probes(&sites, &addresses, &there), Probe::Network, &mut net).await;
            }
        },
        async {
            if needs_probe(checks, Probe::Connectivity) {
                let master = facts.first().and_then(Option::as_ref);
                let live = master.is_some_and(|f| host_run_state(f) == HostRunState::Running);
                let port = job.launch.master_port.filter(|p| !live && master.is_some_and(|f| !f.busy_ports.contains(p))).unwrap_or(0);
                let known: Vec<usize> = there.iter().copied().filter(|h| addresses.get(*h).is_some_and(|a| !a.is_empty())).collect();
                let asked =
                    ConnectivityProbe { contexts: &sites, addresses: &addresses, master_port: port, pairs: &connection_pairs(&known) };
                session.engine.probe_connectivity(asked, &mut reach).await;
            }
        },
        async {
            if needs_probe(checks, Probe::Environment) {
                let commands = image_probes(inventory, job, &sites, facts, &mut inside);
                session.engine.run_extra_probe(commands, Probe::Environment, &mut inside).await;
            }
        },
    );
    for (told, more) in told.iter_mut().zip(net.into_iter().zip(reach).zip(inside)) {
        let ((net, reach), inside) = more;
        [net, reach, inside].into_iter().for_each(|more| told.merge(more));
    }
}

/// How each host sees the master and the host after it.
pub(crate) fn net_probes(contexts: &[HostContext], addresses: &[String], there: &[usize]) -> Vec<(usize, RemoteCommand)> {
    let master = addresses.first().cloned().unwrap_or_default();
    let command = |host: &usize| {
        let next = addresses.get((host + 1) % addresses.len().max(1)).cloned().unwrap_or_default();
        let mut peers: Vec<String> = [&master, &next].into_iter().filter(|a| !a.is_empty()).cloned().collect();
        peers.dedup();
        let names: Vec<String> = peers.iter().filter(|a| a.parse::<std::net::IpAddr>().is_err()).cloned().collect();
        let peers: Vec<String> = peers.into_iter().filter(|a| !names.contains(a)).collect();
        Some((*host, probe::network_probe_command(contexts.get(*host)?, &names, &peers)))
    };
    there.iter().filter_map(command).collect()
}

/// Every worker to the master and back, and each host to the next, once each.
fn connection_pairs(hosts: &[usize]) -> Vec<HostPair> {
    let mut pairs = Vec::new();
    let mut add = |from: usize, to: usize| {
        let pair = HostPair { from, to };
        if from != to && !pairs.contains(&pair) {
            pairs.push(pair);
        }
    };
    for (at, host) in hosts.iter().enumerate() {
        if let Some(master) = hosts.first() {
            add(*host, *master);
            add(*master, *host);
        }
        if let Some(next) = hosts.get((at + 1) % hosts.len()) {
            add(*host, *next);
        }
    }
    pairs
}

/// What looks into the image on each host that has it.
fn image_probes(
    inventory: &Inventory,
    job: &Job,
    contexts: &[HostContext],
    facts: &[Option<HostFacts>],
    probe_outputs: &mut [ProbeOutput],
) -> Vec<(usize, RemoteCommand)> {
    let mut commands = Vec::new();
    let nonce = random_hex(8);
    for (index, (site, facts)) in contexts.iter().zip(facts).enumerate() {
        let (Some(facts), Some(told), Some(host)) = (facts, probe_outputs.get_mut(index), inventory.hosts.get(index)) else { continue };
        let spec = job.hosts.get(index).and_then(|h| h.container.as_ref());
        let mut flag = None;
        if let Some(spec) = spec {
            if let DockerStatus::Unusable(says) = &facts.docker {
                told.set_missing_reason(Probe::Environment, format!("docker is not usable: {says}"));
                continue;
            }
            if facts.image_id.is_none() {
                told.set_missing_reason(Probe::Environment, "the image is not there yet: `up` pulls it");
                continue;
            }
            flag = format_gpus_flag(&spec.gpus, &host.gpus, facts.idle_gpus().as_deref());
        }
        let asked = EnvironmentProbe { context: site, job, host: index, facts, gpus_flag: flag.as_deref(), nonce: &nonce };
        commands.push((index, probe::environment_probe_command(&asked)));
    }
    commands
}

/// Judges what the hosts told.
pub(crate) fn evaluate_preflight(
    inventory: &Inventory,
    job: &Job,
    answers: &HostAnswers,
    checks: &[PreflightCheck],
    launching: bool,
) -> Vec<CheckReport> {
    let HostAnswers { facts, probes: told } = answers;
    let addresses = fabric_addresses(inventory, facts);
    let hosts = (inventory.hosts.iter().zip(facts).zip(told).zip(&job.hosts).zip(&addresses)).enumerate();
    let place = |(index, ((((host, facts), told), part_of), address))| {
        let facts: &HostFacts = Option::as_ref(facts)?;
        let address = Some(String::as_str(address)).filter(|a| !a.is_empty());
        Some(CheckedHost {
            index,
            host,
            job_host: part_of,
            facts,
            probe_output: told,
            fabric_address: address,
            has_live_run: host_run_state(facts) == HostRunState::Running,
        })
    };
    let scene = CheckContext {
        inventory,
        job,
        hosts: hosts.filter_map(place).collect(),
        fabric_addresses: addresses.clone(),
        before_launch: launching,
    };
    evaluate_checks(&scene, checks)
}

/// Tells what a check found, once for all hosts of which it is the same.
pub(crate) fn emit_check_report(session: &Session, report: &CheckReport) {
    for group in report.groups() {
        session.engine.emitter().send(EventKind::CheckFinished {
            check: report.check.name.to_owned(),
            level: group.result.level,
            hosts: group.hosts.iter().map(|h| u32::try_from(*h).unwrap_or(u32::MAX)).collect(),
            message: preflight_report::result_text(&group.result),
            hint: group.result.hint,
        });
    }
}
