//! Asks the hosts what the checks need to be told: alone, about each other, from inside. Judges nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::engine::emitter::now_unix_millis;
use crate::engine::host_connection::HostConnection;
use crate::model::remote_command::RemoteCommand;
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::preflight::probe;
use crate::preflight::probe::Probe;
use crate::preflight::probe_output::ProbeOutput;
use crate::remote::{RemoteError, RemoteStream, TcpReachability};

/// How often a clock is asked at most, and at least where the link is slow.
const CLOCK_EXCHANGES: (usize, usize) = (8, 3);
/// After this no further exchange begins beyond the least.
const CLOCK_TIME_BUDGET: Duration = Duration::from_millis(600);
/// How long one line of a stream may take.
const LINE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is asked of one host besides its facts.
#[derive(Clone, Default)]
pub struct HostProbes {
    /// Whatever needs no other host.
    pub host_command: Option<RemoteCommand>,
    /// Which questions that answers; told where it has no answer.
    pub probes: Vec<Probe>,
    /// The clock.
    pub clock_command: Option<RemoteCommand>,
}

/// A way that is tried between two hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPair {
    /// From which host.
    pub from: usize,
    /// To which.
    pub to: usize,
}

/// What a program on a host tries: label, address, port.
type ConnectTarget = (String, String, u16);

/// Where a host listened.
#[derive(Debug, Clone, Default)]
struct Listeners {
    ephemeral_port: Option<u16>,
    given_port_open: bool,
    failure_reason: String,
}

impl Engine {
    /// Connects to every host; asks for its facts and, side by side, the questions.
    pub async fn gather_facts_and_probes(
        &self,
        facts: Vec<RemoteCommand>,
        questions: Vec<HostProbes>,
    ) -> Vec<(Result<HostFacts, RemoteError>, ProbeOutput)> {
        self.emitter.send(crate::event::EventKind::PhaseStarted { phase: crate::model::phase::Phase::Connect });
        let asked = self.connections.iter().zip(facts).zip(questions).map(|((link, facts), questions)| async move {
            let _turn = self.forks.acquire().await;
            // Whoever does not answer is asked nothing more.
            if let Err(error) = link.get_or_connect().await {
                link.drop_connection(&error, false).await;
                return (Err(error), ProbeOutput::default());
            }
            let (facts, (mut told, clock)) = tokio::join!(link.connect_and_gather_facts(&facts), probe_single_host(link, &questions));
            if let Some((offset, uncertain)) = clock {
                link.set_clock_offset(offset, uncertain);
                told.push_text(&format!("clock {offset:.3} {uncertain:.3}\ndid clock"));
            }
            (facts, told)
        });
        join_all(asked).await
    }

    /// Asks hosts one more thing each; the answers go into `told`.
    pub async fn run_extra_probe(&self, commands: Vec<(usize, RemoteCommand)>, probe: Probe, told: &mut [ProbeOutput]) {
        let asked = commands.into_iter().filter_map(|(host, command)| Some((host, self.connections.get(host)?, command)));
        let answers = join_all(asked.map(|(host, link, command)| async move {
            let _turn = self.forks.acquire().await;
            (host, link.exec(&command).await)
        }));
        for (host, answer) in answers.await {
            let Some(told) = told.get_mut(host) else { continue };
            match answer {
                Ok(output) => {
                    told.push_text(&output.stdout_text());
                    if told.last_value("inside_failed").is_some() {
                        told.push_text(&format!("inside_error {}", output.error_line()));
                    }
                    told.set_missing_reason(probe, output.error_line());
                }
                Err(error) => told.set_missing_reason(probe, error.to_string()),
            }
        }
    }

    /// Listens on every host that has an address and tries the pairs; on host 0 `given` as well, from every pair that leads there. What came
    /// of it is told by the host that tried.
    pub async fn probe_connectivity(
        &self,
        sites: &[HostContext],
        addresses: &[String],
        given: u16,
        pairs: &[HostPair],
        told: &mut [ProbeOutput],
    ) {
        let wanted = |host: usize| pairs.iter().any(|p| p.to == host);
        let opened = join_all(sites.iter().zip(addresses).enumerate().map(|(host, (site, address))| async move {
            match self.connections.get(host).filter(|_| wanted(host) && !address.is_empty()) {
                Some(link) => {
                    start_listeners(link, &probe::listener_command(site, address.contains(':'), if host == 0 { given } else { 0 })).await
                }
                None => (Listeners { failure_reason: "nobody listened".to_owned(), ..Listeners::default() }, None),
            }
        }))
        .await;
        let mut targets: Vec<(usize, String, String, u16, bool)> = Vec::new();
        for pair in pairs {
            let (Some(address), Some((doors, _))) = (addresses.get(pair.to), opened.get(pair.to)) else { continue };
            let Some(told) = told.get_mut(pair.from) else { continue };
            match doors.ephemeral_port {
                Some(port) => targets.push((pair.from, format!("ephemeral>{}", pair.to), address.clone(), port, true)),
                None => told.push_text(&format!("way ephemeral>{} no untold {}", pair.to, doors.failure_reason)),
            }
            if pair.to == 0 && given > 0 {
                targets.push((pair.from, "given>0".to_owned(), address.clone(), given, doors.given_port_open));
            }
        }
        let results = join_all(targets.iter().map(|(from, _, address, port, _)| self.try_connect_twice(*from, address, *port))).await;
        let mut again: Vec<(usize, Vec<ConnectTarget>)> = Vec::new();
        for ((from, label, address, port, listens), result) in targets.iter().zip(results) {
            let listens = if *listens { "yes" } else { "no" };
            let line = match result {
                Ok(TcpReachability::Open) => "open".to_owned(),
                Ok(TcpReachability::Refused) => "refused".to_owned(),
                Ok(TcpReachability::Blocked(why)) => format!("blocked {why}"),
                Ok(TcpReachability::Unknown(_)) | Err(_) => {
                    // Its sshd does not say: a program there tries.
                    let target = (format!("{label} {listens}").replace(' ', "/"), address.clone(), *port);
                    match again.iter_mut().find(|(host, _)| host == from) {
                        Some((_, list)) => list.push(target),
                        None => again.push((*from, vec![target])),
                    }
                    continue;
                }
            };
            if let Some(told) = told.get_mut(*from) {
                told.push_text(&format!("way {label} {listens} {line}"));
            }
        }
        self.probe_fallback(sites, again, told).await;
        for told in told.iter_mut() {
            told.push_text("did reach");
        }
        // Their ends of the streams go with them: every listener ends.
        drop(opened);
    }

    /// Tries a way. A host that is busy may answer late: only who does not answer at the second try, which has twice the time, is not reached.
    async fn try_connect_twice(&self, from: usize, address: &str, port: u16) -> Result<TcpReachability, RemoteError> {
        let Some(link) = self.connections.get(from) else { return Ok(TcpReachability::Unknown("there is no such host".to_owned())) };
        match link.probe_tcp(address, port, probe::CONNECT_TIMEOUT).await {
            Ok(TcpReachability::Blocked(_)) => link.probe_tcp(address, port, probe::CONNECT_TIMEOUT * 2).await,
            found => found,
        }
    }

    async fn probe_fallback(&self, sites: &[HostContext], again: Vec<(usize, Vec<ConnectTarget>)>, told: &mut [ProbeOutput]) {
        let commands =
            again.iter().filter_map(|(host, targets)| Some((*host, probe::connectivity_probe_command(sites.get(*host)?, targets))));
        let links = commands.filter_map(|(host, command)| Some((host, self.connections.get(host)?, command)));
        let answers = join_all(links.map(|(host, link, command)| async move { (host, link.exec(&command).await) })).await;
        for (host, answer) in answers {
            let Some(told) = told.get_mut(host) else { continue };
            let targets = again.iter().find(|(h, _)| *h == host).map_or(&[][..], |(_, t)| t.as_slice());
            match answer {
                Ok(output) => {
                    for line in output.stdout_text().lines().filter_map(|l| l.strip_prefix("way ")) {
                        let (label, rest) = line.split_once(' ').unwrap_or((line, "untold"));
                        told.push_text(&format!("way {} {rest}", label.replace('/', " ")));
                    }
                }
                Err(error) => {
                    targets.iter().for_each(|(label, ..)| told.push_text(&format!("way {} untold {error}", label.replace('/', " "))))
                }
            }
        }
    }
}

async fn probe_single_host(link: &Arc<HostConnection>, questions: &HostProbes) -> (ProbeOutput, Option<(f64, f64)>) {
    let mut told = ProbeOutput::default();
    let asked = async {
        match &questions.host_command {
            Some(command) => Some(link.exec(command).await),
            None => None,
        }
    };
    let clocked = async {
        match &questions.clock_command {
            Some(command) => measure_clock_offset(link, command).await,
            None => Err(String::new()),
        }
    };
    let (answer, clock) = tokio::join!(asked, clocked);
    let why = match answer {
        Some(Ok(output)) => {
            told.push_text(&output.stdout_text());
            format!("it broke off: {}", output.error_line())
        }
        Some(Err(error)) => error.to_string(),
        None => "nothing was asked".to_owned(),
    };
    for probe in &questions.probes {
        told.set_missing_reason(*probe, why.clone());
    }
    match clock {
        Ok(clock) => (told, Some(clock)),
        Err(why) => {
            told.set_missing_reason(Probe::Clock, why);
            (told, None)
        }
    }
}

/// The host's clock minus ours and how wrong that may be, milliseconds: the exchange with the shortest round trip tells most.
async fn measure_clock_offset(link: &Arc<HostConnection>, command: &RemoteCommand) -> Result<(f64, f64), String> {
    let mut stream = link.open_stream(command).await.map_err(|e| e.to_string())?;
    let began = Instant::now();
    let mut best: Option<(f64, f64)> = None;
    let mut held = Vec::new();
    for turn in 0..CLOCK_EXCHANGES.0 {
        if turn >= CLOCK_EXCHANGES.1 && began.elapsed() > CLOCK_TIME_BUDGET {
            break;
        }
        let (sent, since) = (now_unix_millis() as f64, Instant::now());
        if stream.input.send(bytes::Bytes::from_static(b"?\n")).await.is_err() {
            break;
        }
        let Some(line) = read_line(&mut stream, &mut held).await else { break };
        let around = since.elapsed().as_secs_f64() * 1000.0;
        let Ok(seconds) = line.trim().replace(',', ".").parse::<f64>() else { return Err(format!("date says `{}`", line.trim())) };
        // A clock without a fraction is somewhere within its second; ours is stamped in whole milliseconds.
        let (offset, coarse) = if line.contains(['.', ',']) { (0.0, 1.0) } else { (500.0, 501.0) };
        let found = (seconds * 1000.0 + offset - (sent + around / 2.0), around / 2.0 + coarse);
        if best.is_none_or(|(_, uncertain)| found.1 < uncertain) {
            best = Some(found);
        }
    }
    best.ok_or_else(|| "it did not answer".to_owned())
}

/// The next line of a stream.
async fn read_line(stream: &mut RemoteStream, held: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = held.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = held.drain(..=end).collect();
            return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        if held.len() > 4096 {
            return None;
        }
        match tokio::time::timeout(LINE_TIMEOUT, stream.output.recv()).await {
            Ok(Some(Ok(bytes))) => held.extend_from_slice(&bytes),
            _ => return None,
        }
    }
}

/// Starts a listener; it ends with the stream that comes back.
async fn start_listeners(link: &Arc<HostConnection>, command: &RemoteCommand) -> (Listeners, Option<RemoteStream>) {
    let mut doors = Listeners::default();
    let mut stream = match link.open_stream(command).await {
        Ok(stream) => stream,
        Err(error) => {
            doors.failure_reason = error.to_string();
            return (doors, None);
        }
    };
    let mut held = Vec::new();
    while let Some(line) = read_line(&mut stream, &mut held).await {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words.as_slice() {
            ["ready", ..] => return (doors, Some(stream)),
            ["listens", "ephemeral", port] => doors.ephemeral_port = port.parse().ok(),
            ["listens", "given", _] => doors.given_port_open = true,
            ["cannot", "ephemeral" | "both", why] => doors.failure_reason = format!("it could not be listened to: {why}"),
            _ => {}
        }
    }
    doors = Listeners { failure_reason: "its listener broke off".to_owned(), ..Listeners::default() };
    (doors, Some(stream))
}
