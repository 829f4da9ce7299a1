//! Runs the probes that the checks need: on each host, between hosts, inside containers. Judges nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::engine::emitter::now_unix_millis;
use crate::engine::host_connection::HostConnection;
use crate::model::remote_command::RemoteCommand;
use crate::model::tcp_reachability::TcpReachability;
use crate::plan::action::reach_master::CONNECT_TIMEOUT;
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::preflight::connection::{ConnectionAttempt, ConnectionTarget};
use crate::preflight::probe;
use crate::preflight::probe::Probe;
use crate::preflight::probe_output::ProbeOutput;
use crate::remote::{RemoteError, RemoteStream};

/// How often a clock is asked at most, and at least where the link is slow.
const CLOCK_EXCHANGES: (usize, usize) = (8, 3);
/// After this no further exchange begins beyond the least.
const CLOCK_TIME_BUDGET: Duration = Duration::from_millis(600);
/// How long one line of a stream may take.
const LINE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a host may take to listen: a few lines.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);

/// What is asked of one host besides its facts.
#[derive(Clone, Default)]
pub(crate) struct HostProbes {
    /// The probes that need no other host.
    pub host_command: Option<RemoteCommand>,
    /// Which probes that answers, for the message when there is no answer.
    pub probes: Vec<Probe>,
    pub clock_command: Option<RemoteCommand>,
}

/// A way that is tried between two hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPair {
    pub from: usize,
    pub to: usize,
}

/// What is tried between the hosts.
#[derive(Clone, Copy)]
pub(crate) struct ConnectivityProbe<'a> {
    pub contexts: &'a [HostContext],
    /// Their addresses; an empty one is not tried.
    pub addresses: &'a [String],
    /// The master's port, on which host 0 listens as well; 0: none.
    pub master_port: u16,
    /// From where to where.
    pub pairs: &'a [HostPair],
}

/// A connection that one host tries.
struct PlannedConnection {
    from: usize,
    target: ConnectionTarget,
    address: String,
    port: u16,
    has_listener: bool,
}

impl PlannedConnection {
    fn attempt(&self, found: TcpReachability) -> ConnectionAttempt {
        ConnectionAttempt { target: self.target, has_listener: self.has_listener, found }
    }
}

/// Where a host listened.
#[derive(Debug, Clone, Default)]
struct ListenerStatus {
    ephemeral_port: Option<u16>,
    given_port_open: bool,
    failure_reason: String,
}

impl Engine {
    /// Connects to every host; asks for its facts and, side by side, the questions.
    pub(crate) async fn gather_facts_and_probes(
        &self,
        facts: Vec<RemoteCommand>,
        probes: Vec<HostProbes>,
    ) -> Vec<(Result<HostFacts, RemoteError>, ProbeOutput)> {
        self.emitter.send(crate::event::EventKind::PhaseStarted { phase: crate::model::phase::Phase::Connect });
        let asked = self.connections.iter().zip(facts).zip(probes).map(|((link, facts), questions)| async move {
            let _turn = self.forks.acquire().await;
            // A host that does not answer gets no further probes.
            if let Err(error) = link.get_or_connect().await {
                link.drop_connection(&error, false).await;
                return (Err(error), ProbeOutput::default());
            }
            let (facts, (mut output, clock)) =
                tokio::join!(link.connect_and_gather_facts(&facts, false), probe_single_host(link, &questions));
            if let Some((offset, uncertain)) = clock {
                link.set_clock_offset(offset, uncertain);
                output.push_text(&format!("clock {offset:.3} {uncertain:.3}\ndid clock"));
            }
            (facts, output)
        });
        join_all(asked).await
    }

    /// Asks hosts one more thing each; the answers go into `probe_outputs`.
    pub(crate) async fn run_extra_probe(&self, commands: Vec<(usize, RemoteCommand)>, probe: Probe, probe_outputs: &mut [ProbeOutput]) {
        let asked = commands.into_iter().filter_map(|(host, command)| Some((host, self.connections.get(host)?, command)));
        let answers = join_all(asked.map(|(host, link, command)| async move {
            let _turn = self.forks.acquire().await;
            (host, link.exec(&command).await)
        }));
        for (host, answer) in answers.await {
            let Some(reported) = probe_outputs.get_mut(host) else { continue };
            match answer {
                Ok(output) => {
                    reported.push_text(&output.stdout_text());
                    if reported.last_value("inside_failed").is_some() {
                        reported.push_text(&format!("inside_error {}", output.error_line()));
                    }
                    reported.set_missing_reason(probe, output.error_line());
                }
                Err(error) => reported.set_missing_reason(probe, error.to_string()),
            }
        }
    }

    /// Listens on every host that has an address and tries the pairs; on host 0 the master's port as well, from every pair that leads there.
    /// What came of it is in the output of the host that tried.
    pub(crate) async fn probe_connectivity(&self, asked: ConnectivityProbe<'_>, outputs: &mut [ProbeOutput]) {
        let opened = self.open_listeners(&asked).await;
        let mut planned = Vec::new();
        for pair in asked.pairs {
            let (Some(address), Some((listeners, _))) = (asked.addresses.get(pair.to), opened.get(pair.to)) else { continue };
            let Some(output) = outputs.get_mut(pair.from) else { continue };
            let connection =
                |target, port, has_listener| PlannedConnection { from: pair.from, target, address: address.clone(), port, has_listener };
            let ephemeral = ConnectionTarget::EphemeralPort(pair.to);
            match listeners.ephemeral_port {
                Some(port) => planned.push(connection(ephemeral, port, true)),
                None => {
                    let found = TcpReachability::Unknown(listeners.failure_reason.clone());
                    output.push_connection(ConnectionAttempt { target: ephemeral, has_listener: false, found });
                }
            }
            if pair.to == 0 && asked.master_port > 0 {
                planned.push(connection(ConnectionTarget::MasterPort, asked.master_port, listeners.given_port_open));
            }
        }
        let results = join_all(planned.iter().map(|connection| self.try_connect_twice(connection))).await;
        let mut untold = Vec::new();
        for (connection, result) in planned.into_iter().zip(results) {
            match result {
                // Its sshd gives no answer: a program on the host tries.
                Ok(TcpReachability::Unknown(_)) | Err(_) => untold.push(connection),
                Ok(found) => {
                    if let Some(output) = outputs.get_mut(connection.from) {
                        output.push_connection(connection.attempt(found));
                    }
                }
            }
        }
        self.probe_connectivity_by_command(asked.contexts, &untold, outputs).await;
        for output in outputs.iter_mut() {
            output.push_text("did reach");
        }
        // Their ends of the streams go with them: every listener ends.
        drop(opened);
    }

    async fn open_listeners(&self, asked: &ConnectivityProbe<'_>) -> Vec<(ListenerStatus, Option<RemoteStream>)> {
        let wanted = |host: usize| asked.pairs.iter().any(|p| p.to == host);
        join_all(asked.contexts.iter().zip(asked.addresses).enumerate().map(|(host, (context, address))| async move {
            match self.connections.get(host).filter(|_| wanted(host) && !address.is_empty()) {
                Some(link) => {
                    let port = if host == 0 { asked.master_port } else { 0 };
                    start_listeners(link, &probe::listener_command(context, address.contains(':'), port), LISTEN_TIMEOUT).await
                }
                None => (ListenerStatus { failure_reason: "nobody listened".to_owned(), ..ListenerStatus::default() }, None),
            }
        }))
        .await
    }

    /// Tries a connection twice: a busy host may answer late, so the second try has twice the time.
    async fn try_connect_twice(&self, connection: &PlannedConnection) -> Result<TcpReachability, RemoteError> {
        let PlannedConnection { from, address, port, .. } = connection;
        let Some(link) = self.connections.get(*from) else { return Ok(TcpReachability::Unknown("there is no such host".to_owned())) };
        match link.probe_tcp(address, *port, CONNECT_TIMEOUT).await {
            Ok(TcpReachability::Blocked(_)) => link.probe_tcp(address, *port, CONNECT_TIMEOUT * 2).await,
            found => found,
        }
    }

    /// Tries with a program of the host what its sshd did not answer.
    async fn probe_connectivity_by_command(&self, contexts: &[HostContext], untold: &[PlannedConnection], outputs: &mut [ProbeOutput]) {
        let asked = contexts.iter().zip(&self.connections).enumerate().filter_map(|(host, (context, link))| {
            let own: Vec<&PlannedConnection> = untold.iter().filter(|connection| connection.from == host).collect();
            if own.is_empty() {
                return None;
            }
            let word = |c: &&PlannedConnection| (ConnectionAttempt::label(c.target, c.has_listener), c.address.clone(), c.port);
            let command = probe::connectivity_probe_command(context, &own.iter().map(word).collect::<Vec<_>>());
            Some((host, link, own, command))
        });
        let answers = join_all(asked.map(|(host, link, own, command)| async move { (host, own, link.exec(&command).await) })).await;
        for (host, own, answer) in answers {
            let Some(output) = outputs.get_mut(host) else { continue };
            match answer {
                Ok(answer) => answer.stdout_text().lines().filter(|line| line.starts_with("way ")).for_each(|line| output.push_text(line)),
                Err(error) => {
                    let found = TcpReachability::Unknown(error.to_string());
                    own.iter().for_each(|connection| output.push_connection(connection.attempt(found.clone())));
                }
            }
        }
    }
}

async fn probe_single_host(connection: &Arc<HostConnection>, probes: &HostProbes) -> (ProbeOutput, Option<(f64, f64)>) {
    let mut reported = ProbeOutput::default();
    let asked = async {
        match &probes.host_command {
            Some(command) => Some(connection.exec(command).await),
            None => None,
        }
    };
    let clocked = async {
        match &probes.clock_command {
            Some(command) => measure_clock_offset(connection, command).await,
            None => Err(String::new()),
        }
    };
    let (answer, clock) = tokio::join!(asked, clocked);
    let why = match answer {
        Some(Ok(output)) => {
            reported.push_text(&output.stdout_text());
            format!("it broke off: {}", output.error_line())
        }
        Some(Err(error)) => error.to_string(),
        None => "nothing was asked".to_owned(),
    };
    for probe in &probes.probes {
        reported.set_missing_reason(*probe, why.clone());
    }
    match clock {
        Ok(clock) => (reported, Some(clock)),
        Err(why) => {
            reported.set_missing_reason(Probe::Clock, why);
            (reported, None)
        }
    }
}

/// The host's clock minus ours and how wrong that may be, milliseconds: the exchange with the shortest round trip is the most precise.
async fn measure_clock_offset(connection: &Arc<HostConnection>, command: &RemoteCommand) -> Result<(f64, f64), String> {
    let mut stream = connection.open_stream(command).await.map_err(|e| e.to_string())?;
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
    let until = Instant::now() + LINE_TIMEOUT;
    loop {
        if let Some(end) = held.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = held.drain(..=end).collect();
            return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        if held.len() > 4096 {
            return None;
        }
        match tokio::time::timeout_at(until, stream.output.recv()).await {
            Ok(Some(Ok(bytes))) => held.extend_from_slice(&bytes),
            _ => return None,
        }
    }
}

/// Starts a listener; it ends with the stream that comes back.
async fn start_listeners(
    connection: &Arc<HostConnection>,
    command: &RemoteCommand,
    within: Duration,
) -> (ListenerStatus, Option<RemoteStream>) {
    let mut listeners = ListenerStatus::default();
    let mut stream = match connection.open_stream(command).await {
        Ok(stream) => stream,
        Err(error) => {
            listeners.failure_reason = error.to_string();
            return (listeners, None);
        }
    };
    let mut held = Vec::new();
    // As many lines as it likes, but within the time.
    let is_ready = tokio::time::timeout(within, async {
        while let Some(line) = read_line(&mut stream, &mut held).await {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            match words.as_slice() {
                ["ready", ..] => return true,
                ["listens", "ephemeral", port] => listeners.ephemeral_port = port.parse().ok(),
                ["listens", "given", _] => listeners.given_port_open = true,
                ["cannot", "ephemeral" | "both", why] => listeners.failure_reason = format!("it could not be listened to: {why}"),
                _ => {}
            }
        }
        false
    });
    if !is_ready.await.unwrap_or(false) {
        listeners = ListenerStatus { failure_reason: "its listener broke off".to_owned(), ..ListenerStatus::default() };
    }
    (listeners, Some(stream))
}

#[cfg(test)]
#[path = "probes_tests.rs"]
mod tests;
