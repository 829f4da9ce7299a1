//! Preflight as `check` and `up` share it: who is asked what and in which order, and the judgement.

use crate::cli::laptop::random;
use crate::cli::session::Session;
use crate::engine::survey::{Pair, Questions};
use crate::event::{EventKind, Phase};
use crate::inventory::{Inventory, Job};
use crate::plan::action::container::gpus_flag;
use crate::plan::build::{site, wanted};
use crate::plan::check::probe::{self, Probe};
use crate::plan::check::scene::{Place, Scene};
use crate::plan::check::told::Told;
use crate::plan::check::{Answer, Check, judge};
use crate::plan::facts::{self, Docker, HostFacts};
use crate::plan::site::Site;
use crate::plan::situation::{Part, part};
use crate::plan::world::fabric_address;
use crate::remote::RemoteError;
use crate::shell::Command;

/// Whether any of the checks needs an answer to this.
pub fn needed(checks: &[Check], probe: Probe) -> bool {
    checks.iter().any(|check| check.needs.contains(&probe))
}

/// Asks every host for its facts, and side by side whatever the checks need of it alone.
pub async fn survey(session: &Session, job: &Job, checks: &[Check]) -> Vec<(Result<HostFacts, RemoteError>, Told)> {
    let inventory = &session.inventory;
    if !checks.is_empty() {
        session.engine.emitter().send(EventKind::PhaseStarted { phase: Phase::Preflight });
    }
    let alone: Vec<Probe> = probe::ALONE.into_iter().filter(|probe| needed(checks, *probe)).collect();
    let (mut commands, mut questions) = (Vec::new(), Vec::new());
    for (index, host) in inventory.hosts.iter().enumerate() {
        let site = site(inventory, host, &inventory.run_dir, "", None);
        commands.push(facts::command(&site, &wanted(inventory, Some(job), index)));
        questions.push(Questions {
            alone: probe::alone(&site, job, index, &alone),
            probes: alone.clone(),
            clock: needed(checks, Probe::Clock).then(|| probe::clock(&site)),
        });
    }
    session.engine.survey(commands, questions).await
}

/// The fabric address of each host; empty where it cannot be told.
pub fn addresses(inventory: &Inventory, facts: &[Option<HostFacts>]) -> Vec<String> {
    let address = |(host, facts): (_, &Option<HostFacts>)| facts.as_ref().and_then(|f| fabric_address(host, f).ok()).unwrap_or_default();
    inventory.hosts.iter().zip(facts).map(address).collect()
}

/// Where on each host.
pub fn sites(inventory: &Inventory, facts: &[Option<HostFacts>]) -> Vec<Site> {
    let place = |facts: &Option<HostFacts>| facts.as_ref().map_or_else(|| inventory.run_dir.clone(), |f| f.run_dir.clone());
    inventory.hosts.iter().zip(facts).map(|(host, facts)| site(inventory, host, &place(facts), "", None)).collect()
}

/// Asks what needs the facts of all: names and ways between the hosts, and the inside of the image.
pub async fn deepen(session: &Session, job: &Job, checks: &[Check], facts: &[Option<HostFacts>], told: &mut [Told]) {
    let inventory = &session.inventory;
    let addresses = addresses(inventory, facts);
    let sites = sites(inventory, facts);
    let there: Vec<usize> = facts.iter().enumerate().filter(|(_, f)| f.is_some()).map(|(i, _)| i).collect();
    let fresh = || vec![Told::default(); told.len()];
    let (mut net, mut reach, mut inside) = (fresh(), fresh(), fresh());
    tokio::join!(
        async {
            if needed(checks, Probe::Net) {
                session.engine.ask(looks(&sites, &addresses, &there), Probe::Net, &mut net).await;
            }
        },
        async {
            if needed(checks, Probe::Reach) {
                let master = facts.first().and_then(Option::as_ref);
                let live = master.is_some_and(|f| part(f) == Part::Running);
                let port = job.launch.master_port.filter(|p| !live && master.is_some_and(|f| !f.busy.contains(p))).unwrap_or(0);
                let known: Vec<usize> = there.iter().copied().filter(|h| addresses.get(*h).is_some_and(|a| !a.is_empty())).collect();
                session.engine.ways(&sites, &addresses, port, &pairs(&known), &mut reach).await;
            }
        },
        async {
            if needed(checks, Probe::Inside) {
                let commands = insides(inventory, job, &sites, facts, &mut inside);
                session.engine.ask(commands, Probe::Inside, &mut inside).await;
            }
        },
    );
    for (told, more) in told.iter_mut().zip(net.into_iter().zip(reach).zip(inside)) {
        let ((net, reach), inside) = more;
        [net, reach, inside].into_iter().for_each(|more| told.merge(more));
    }
}

/// How each host sees the master and the host after it.
pub fn looks(sites: &[Site], addresses: &[String], there: &[usize]) -> Vec<(usize, Command)> {
    let master = addresses.first().cloned().unwrap_or_default();
    let command = |host: &usize| {
        let next = addresses.get((host + 1) % addresses.len().max(1)).cloned().unwrap_or_default();
        let mut peers: Vec<String> = [&master, &next].into_iter().filter(|a| !a.is_empty()).cloned().collect();
        peers.dedup();
        let names: Vec<String> = peers.iter().filter(|a| a.parse::<std::net::IpAddr>().is_err()).cloned().collect();
        let peers: Vec<String> = peers.into_iter().filter(|a| !names.contains(a)).collect();
        Some((*host, probe::net(sites.get(*host)?, &names, &peers)))
    };
    there.iter().filter_map(command).collect()
}

/// Every worker to the master and back, and each host to the next, once each.
fn pairs(hosts: &[usize]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    let mut add = |from: usize, to: usize| {
        let pair = Pair { from, to };
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
fn insides(inventory: &Inventory, job: &Job, sites: &[Site], facts: &[Option<HostFacts>], told: &mut [Told]) -> Vec<(usize, Command)> {
    let mut commands = Vec::new();
    let nonce: String = random().chars().take(8).collect();
    for (index, (site, facts)) in sites.iter().zip(facts).enumerate() {
        let (Some(facts), Some(told), Some(host)) = (facts, told.get_mut(index), inventory.hosts.get(index)) else { continue };
        let spec = job.hosts.get(index).and_then(|h| h.container.as_ref());
        let mut flag = None;
        if let Some(spec) = spec {
            if let Docker::Unusable(says) = &facts.docker {
                told.no_answer(Probe::Inside, format!("docker is not usable: {says}"));
                continue;
            }
            if facts.image.is_none() {
                told.no_answer(Probe::Inside, "the image is not there yet: `up` pulls it");
                continue;
            }
            flag = gpus_flag(&spec.gpus, &host.gpus, facts.idle_gpus().as_deref());
        }
        commands.push((index, probe::inside(site, job, index, facts, flag, &nonce)));
    }
    commands
}

/// Judges what the hosts told.
pub fn judged(
    inventory: &Inventory,
    job: &Job,
    facts: &[Option<HostFacts>],
    told: &[Told],
    checks: &[Check],
    launching: bool,
) -> Vec<Answer> {
    let addresses = addresses(inventory, facts);
    let hosts = (inventory.hosts.iter().zip(facts).zip(told).zip(&job.hosts).zip(&addresses)).enumerate();
    let place = |(index, ((((host, facts), told), part_of), address))| {
        let facts: &HostFacts = Option::as_ref(facts)?;
        let address = Some(String::as_str(address)).filter(|a| !a.is_empty());
        Some(Place { index, host, part: part_of, facts, told, address, live: part(facts) == Part::Running })
    };
    let scene = Scene { inventory, job, hosts: hosts.filter_map(place).collect(), addresses: addresses.clone(), launching };
    judge(&scene, checks)
}
