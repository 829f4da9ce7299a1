//! The preflight of `check` and `up`: sends the probes in order and evaluates the checks.

use crate::engine::probes::{ConnectivityProbe, HostPair, HostProbes};
use crate::event::{EventKind, Phase};
use crate::inventory::{Inventory, Job, PullPolicy};
use crate::lifecycle::port_users::add_other_runs;
use crate::lifecycle::random::random_hex;
use crate::lifecycle::session::Session;
use crate::model::level::Level;
use crate::model::remote_command::RemoteCommand;
use crate::plan::action::gpus_flag::format_gpus_flag;
use crate::plan::existing_run::{HostRunState, host_run_state};
use crate::plan::facts::{DockerStatus, HostFacts};
use crate::plan::facts_request::{facts_command, facts_request};
use crate::plan::host_context::HostContext;
use crate::plan::rank_layout::resolve_fabric_address;
use crate::preflight::context::{CheckContext, CheckedHost};
use crate::preflight::probe;
use crate::preflight::probe::{EnvironmentProbe, Probe};
use crate::preflight::probe_output::ProbeOutput;
use crate::preflight::{CheckReport, PreflightCheck, evaluate_checks};
use crate::remote::RemoteError;
use crate::report::preflight_report;
use crate::text::hostlist::fold_names;
use crate::text::translation::with_help;

/// Indexed by host.
pub(crate) struct HostAnswers {
    /// `None`: unreachable.
    pub(crate) facts: Vec<Option<HostFacts>>,
    pub(crate) probes: Vec<ProbeOutput>,
}

pub(crate) fn needs_probe(checks: &[PreflightCheck], probe: Probe) -> bool {
    checks.iter().any(|check| check.probes.contains(&probe))
}

/// Gathers the facts of every host and, in parallel, runs the probes that need no other host.
pub(crate) async fn gather_for_checks(
    session: &Session,
    job: &Job,
    checks: &[PreflightCheck],
) -> Vec<(Result<HostFacts, RemoteError>, ProbeOutput)> {
    let inventory = &session.inventory;
    if !checks.is_empty() {
        session.engine.emitter().send(EventKind::PhaseStarted { phase: Phase::Preflight });
    }
    let (mut commands, mut probes) = (Vec::new(), Vec::new());
    for (index, host) in inventory.hosts.iter().enumerate() {
        let context = HostContext::from_inventory(inventory, host, &inventory.run_dir);
        commands.push(facts_command(&context, &facts_request(inventory, Some(job), index)));
        probes.push(single_host_probes(&context, job, index, checks));
    }
    let mut answers = session.engine.gather_facts_and_probes(commands, probes).await;
    if let Some((Ok(master), _)) = answers.first_mut()
        && (checks.is_empty() || checks.iter().any(|check| check.name == "master-port"))
    {
        add_other_runs(session, job.launch.master_port, master).await;
    }
    for ((_, output), host) in answers.iter_mut().zip(&job.hosts) {
        if host.container.is_none() {
            output.set_missing_reason(Probe::Docker, "bare host");
        }
    }
    answers
}

/// The probes that need no other host.
pub(crate) fn single_host_probes(context: &HostContext, job: &Job, host: usize, checks: &[PreflightCheck]) -> HostProbes {
    let probes: Vec<Probe> = probe::INDEPENDENT_PROBES.into_iter().filter(|probe| needs_probe(checks, *probe)).collect();
    HostProbes {
        host_command: probe::host_probe_command(context, job, host, &probes),
        probes: probes.into_iter().filter(|probe| *probe != Probe::Docker || context.in_container).collect(),
        clock_command: needs_probe(checks, Probe::Clock).then(|| probe::clock_probe_command(context)),
    }
}

/// Per host; empty if unknown.
pub(crate) fn fabric_addresses(inventory: &Inventory, facts: &[Option<HostFacts>]) -> Vec<String> {
    let address =
        |(host, facts): (_, &Option<HostFacts>)| facts.as_ref().and_then(|f| resolve_fabric_address(host, f).ok()).unwrap_or_default();
    inventory.hosts.iter().zip(facts).map(address).collect()
}

pub(crate) fn probe_contexts(inventory: &Inventory, facts: &[Option<HostFacts>]) -> Vec<HostContext> {
    let run_dir = |facts: &Option<HostFacts>| facts.as_ref().map_or_else(|| inventory.run_dir.clone(), |f| f.run_dir.clone());
    inventory.hosts.iter().zip(facts).map(|(host, facts)| HostContext::from_inventory(inventory, host, &run_dir(facts))).collect()
}

/// Runs the probes that need the facts of all hosts: names, connections between hosts, the environment inside the image.
pub(crate) async fn cross_host_probes(session: &Session, job: &Job, checks: &[PreflightCheck], answers: &mut HostAnswers) {
    let HostAnswers { facts, probes } = answers;
    let facts = facts.as_slice();
    let inventory = &session.inventory;
    let addresses = fabric_addresses(inventory, facts);
    let contexts = probe_contexts(inventory, facts);
    let reachable: Vec<usize> = facts.iter().enumerate().filter(|(_, f)| f.is_some()).map(|(i, _)| i).collect();
    let empty = || vec![ProbeOutput::default(); probes.len()];
    let (mut network, mut connectivity, mut environment) = (empty(), empty(), empty());
    tokio::join!(
        async {
            if needs_probe(checks, Probe::Network) {
                session.engine.run_extra_probe(net_probes(&contexts, &addresses, &reachable), Probe::Network, &mut network).await;
            }
        },
        async {
            if needs_probe(checks, Probe::Connectivity) {
                let master = facts.first().and_then(Option::as_ref);
                let is_live = master.is_some_and(|f| host_run_state(f) == HostRunState::Running);
                let port = job.launch.master_port.filter(|p| !is_live && master.is_some_and(|f| !f.busy_ports.contains(p))).unwrap_or(0);
                let with_address: Vec<usize> =
                    reachable.iter().copied().filter(|h| addresses.get(*h).is_some_and(|a| !a.is_empty())).collect();
                let probe = ConnectivityProbe {
                    contexts: &contexts,
                    addresses: &addresses,
                    master_port: port,
                    pairs: &connection_pairs(&with_address),
                };
                session.engine.probe_connectivity(probe, &mut connectivity).await;
            }
        },
        async {
            if needs_probe(checks, Probe::Environment) {
                let commands = image_probes(inventory, job, &contexts, facts, &mut environment);
                session.engine.run_extra_probe(commands, Probe::Environment, &mut environment).await;
            }
        },
    );
    for outputs in [network, connectivity, environment] {
        probes.iter_mut().zip(outputs).for_each(|(probe, output)| probe.merge(output));
    }
}

/// Each host probes its path to the master and to the next host.
pub(crate) fn net_probes(contexts: &[HostContext], addresses: &[String], reachable: &[usize]) -> Vec<(usize, RemoteCommand)> {
    let master = addresses.first().cloned().unwrap_or_default();
    let command = |host: &usize| {
        let next = addresses.get((host + 1) % addresses.len().max(1)).cloned().unwrap_or_default();
        let mut peers: Vec<String> = [&master, &next].into_iter().filter(|a| !a.is_empty()).cloned().collect();
        peers.dedup();
        let names: Vec<String> = peers.iter().filter(|a| a.parse::<std::net::IpAddr>().is_err()).cloned().collect();
        let peers: Vec<String> = peers.into_iter().filter(|a| !names.contains(a)).collect();
        Some((*host, probe::network_probe_command(contexts.get(*host)?, &names, &peers)))
    };
    reachable.iter().filter_map(command).collect()
}

/// Each worker with the master in both directions, and each host to the next; no duplicates.
fn connection_pairs(hosts: &[usize]) -> Vec<HostPair> {
    let mut pairs = Vec::new();
    let mut add = |from: usize, to: usize| {
        let pair = HostPair { from, to };
        if from != to && !pairs.contains(&pair) {
            pairs.push(pair);
        }
    };
    for (index, host) in hosts.iter().enumerate() {
        if let Some(master) = hosts.first() {
            add(*host, *master);
            add(*master, *host);
        }
        if let Some(next) = hosts.get((index + 1) % hosts.len()) {
            add(*host, *next);
        }
    }
    pairs
}

/// Probes of the environment inside the image, for each host that has the image.
fn image_probes(
    inventory: &Inventory,
    job: &Job,
    contexts: &[HostContext],
    facts: &[Option<HostFacts>],
    probe_outputs: &mut [ProbeOutput],
) -> Vec<(usize, RemoteCommand)> {
    let mut commands = Vec::new();
    let nonce = random_hex(8);
    for (index, (context, facts)) in contexts.iter().zip(facts).enumerate() {
        let (Some(facts), Some(output), Some(host)) = (facts, probe_outputs.get_mut(index), inventory.hosts.get(index)) else { continue };
        let spec = job.hosts.get(index).and_then(|h| h.container.as_ref());
        let mut flag = None;
        if let Some(spec) = spec {
            if let DockerStatus::Unusable(error) = &facts.docker {
                output.set_missing_reason(Probe::Environment, format!("docker is not usable: {error}"));
                continue;
            }
            if facts.image_id.is_none() {
                let reason = match spec.pull {
                    PullPolicy::Never => "the image is missing",
                    PullPolicy::Missing | PullPolicy::Always => "the host does not have the image yet: `up` pulls it",
                };
                output.set_missing_reason(Probe::Environment, reason);
                continue;
            }
            flag = format_gpus_flag(&spec.gpus, &host.gpus, facts.idle_gpus().as_deref());
        }
        let request = EnvironmentProbe { context, job, host: index, facts, gpus_flag: flag.as_deref(), nonce: &nonce };
        commands.push((index, probe::environment_probe_command(&request)));
    }
    commands
}

pub(crate) fn evaluate_preflight(
    inventory: &Inventory,
    job: &Job,
    answers: &HostAnswers,
    checks: &[PreflightCheck],
    launching: bool,
) -> Vec<CheckReport> {
    let HostAnswers { facts, probes } = answers;
    let addresses = fabric_addresses(inventory, facts);
    let hosts = (inventory.hosts.iter().zip(facts).zip(probes).zip(&job.hosts).zip(&addresses)).enumerate();
    let checked_host = |(index, ((((host, facts), output), job_host), address))| {
        let facts: &HostFacts = Option::as_ref(facts)?;
        let address = Some(String::as_str(address)).filter(|a| !a.is_empty());
        Some(CheckedHost {
            index,
            host,
            job_host,
            facts,
            probe_output: output,
            fabric_address: address,
            has_live_run: host_run_state(facts) == HostRunState::Running,
        })
    };
    let check_context = CheckContext {
        inventory,
        job,
        hosts: hosts.filter_map(checked_host).collect(),
        fabric_addresses: addresses.clone(),
        before_launch: launching,
    };
    evaluate_checks(&check_context, checks)
}

/// Reports the checks that fail, of those that need one host alone; whether there are any. The others would start containers and listeners.
pub(crate) fn report_failed_checks(session: &Session, job: &Job, answers: &HostAnswers, checks: &[PreflightCheck]) -> bool {
    let asks_one_host = |probe: &Probe| *probe == Probe::Clock || probe::INDEPENDENT_PROBES.contains(probe);
    let checks: Vec<_> = checks.iter().filter(|check| check.probes.iter().all(asks_one_host)).copied().collect();
    let names = session.host_names();
    let mut has_failed = false;
    for report in evaluate_preflight(&session.inventory, job, answers, &checks, true) {
        for group in report.groups().into_iter().filter(|group| group.result.level == Level::Fail) {
            has_failed = true;
            let hosts: Vec<String> = group.hosts.iter().filter_map(|host| names.get(*host).cloned()).collect();
            let text = preflight_report::result_text(&group.result);
            let text = format!("{}: {}: {text}", fold_names(&hosts), report.check.name);
            session.notice(with_help(&text, &group.result.hint), true);
        }
    }
    has_failed
}

/// Sends one event per result, for all hosts that share it.
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
