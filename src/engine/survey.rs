//! Asks the hosts what the checks need to be told: alone, about each other, from inside. Judges nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::engine::emit::now;
use crate::engine::link::Link;
use crate::plan::check::probe::{self, Probe};
use crate::plan::check::told::Told;
use crate::plan::facts::HostFacts;
use crate::plan::site::Site;
use crate::remote::{Reached, RemoteError, Stream};
use crate::shell::Command;

/// How often a clock is asked at most, and at least where the link is slow.
const EXCHANGES: (usize, usize) = (8, 3);
/// After this no further exchange begins beyond the least.
const ENOUGH: Duration = Duration::from_millis(600);
/// How long one line of a stream may take.
const LINE: Duration = Duration::from_secs(5);

/// What is asked of one host besides its facts.
#[derive(Clone, Default)]
pub struct Questions {
    /// Whatever needs no other host.
    pub alone: Option<Command>,
    /// Which questions that answers; told where it has no answer.
    pub probes: Vec<Probe>,
    /// The clock.
    pub clock: Option<Command>,
}

/// A way that is tried between two hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// From which host.
    pub from: usize,
    /// To which.
    pub to: usize,
}

/// What a program on a host tries: label, address, port.
type Target = (String, String, u16);

/// Where a host listened.
#[derive(Debug, Clone, Default)]
struct Doors {
    ephemeral: Option<u16>,
    given: bool,
    why: String,
}

impl Engine {
    /// Connects to every host; asks for its facts and, side by side, the questions.
    pub async fn survey(&self, facts: Vec<Command>, questions: Vec<Questions>) -> Vec<(Result<HostFacts, RemoteError>, Told)> {
        self.emit.send(crate::event::EventKind::PhaseStarted { phase: crate::plan::words::Phase::Connect });
        let asked = self.links.iter().zip(facts).zip(questions).map(|((link, facts), questions)| async move {
            let _turn = self.forks.acquire().await;
            // Whoever does not answer is asked nothing more.
            if let Err(error) = link.get().await {
                link.drop_connection(&error, false).await;
                return (Err(error), Told::default());
            }
            let (facts, (mut told, clock)) = tokio::join!(link.facts(&facts), alone(link, &questions));
            if let Some((offset, uncertain)) = clock {
                link.set_clock(offset, uncertain);
                told.add(&format!("clock {offset:.3} {uncertain:.3}\ndid clock"));
            }
            (facts, told)
        });
        join_all(asked).await
    }

    /// Asks hosts one more thing each; the answers go into `told`.
    pub async fn ask(&self, commands: Vec<(usize, Command)>, probe: Probe, told: &mut [Told]) {
        let asked = commands.into_iter().filter_map(|(host, command)| Some((host, self.links.get(host)?, command)));
        let answers = join_all(asked.map(|(host, link, command)| async move {
            let _turn = self.forks.acquire().await;
            (host, link.exec(&command).await)
        }));
        for (host, answer) in answers.await {
            let Some(told) = told.get_mut(host) else { continue };
            match answer {
                Ok(output) => {
                    told.add(&output.text());
                    if told.one("inside_failed").is_some() {
                        told.add(&format!("inside_error {}", output.complaint()));
                    }
                    told.no_answer(probe, output.complaint());
                }
                Err(error) => told.no_answer(probe, error.to_string()),
            }
        }
    }

    /// Listens on every host that has an address and tries the pairs; on host 0 `given` as well, from every pair that leads there. What came
    /// of it is told by the host that tried.
    pub async fn ways(&self, sites: &[Site], addresses: &[String], given: u16, pairs: &[Pair], told: &mut [Told]) {
        let wanted = |host: usize| pairs.iter().any(|p| p.to == host);
        let opened = join_all(sites.iter().zip(addresses).enumerate().map(|(host, (site, address))| async move {
            match self.links.get(host).filter(|_| wanted(host) && !address.is_empty()) {
                Some(link) => listen(link, &probe::listen(site, address.contains(':'), if host == 0 { given } else { 0 })).await,
                None => (Doors { why: "nobody listened".to_owned(), ..Doors::default() }, None),
            }
        }))
        .await;
        let mut targets: Vec<(usize, String, String, u16, bool)> = Vec::new();
        for pair in pairs {
            let (Some(address), Some((doors, _))) = (addresses.get(pair.to), opened.get(pair.to)) else { continue };
            let Some(told) = told.get_mut(pair.from) else { continue };
            match doors.ephemeral {
                Some(port) => targets.push((pair.from, format!("ephemeral>{}", pair.to), address.clone(), port, true)),
                None => told.add(&format!("way ephemeral>{} no untold {}", pair.to, doors.why)),
            }
            if pair.to == 0 && given > 0 {
                targets.push((pair.from, "given>0".to_owned(), address.clone(), given, doors.given));
            }
        }
        let results = join_all(targets.iter().map(|(from, _, address, port, _)| self.tried(*from, address, *port))).await;
        let mut again: Vec<(usize, Vec<Target>)> = Vec::new();
        for ((from, label, address, port, listens), result) in targets.iter().zip(results) {
            let listens = if *listens { "yes" } else { "no" };
            let line = match result {
                Ok(Reached::Open) => "open".to_owned(),
                Ok(Reached::Refused) => "refused".to_owned(),
                Ok(Reached::Blocked(why)) => format!("blocked {why}"),
                Ok(Reached::Untold(_)) | Err(_) => {
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
                told.add(&format!("way {label} {listens} {line}"));
            }
        }
        self.by_hand(sites, again, told).await;
        for told in told.iter_mut() {
            told.add("did reach");
        }
        // Their ends of the streams go with them: every listener ends.
        drop(opened);
    }

    /// Tries a way. A host that is busy may answer late: only who does not answer at the second try, which has twice the time, is not reached.
    async fn tried(&self, from: usize, address: &str, port: u16) -> Result<Reached, RemoteError> {
        let Some(link) = self.links.get(from) else { return Ok(Reached::Untold("there is no such host".to_owned())) };
        match link.reach(address, port, probe::REACH).await {
            Ok(Reached::Blocked(_)) => link.reach(address, port, probe::REACH * 2).await,
            found => found,
        }
    }

    async fn by_hand(&self, sites: &[Site], again: Vec<(usize, Vec<Target>)>, told: &mut [Told]) {
        let commands = again.iter().filter_map(|(host, targets)| Some((*host, probe::reach(sites.get(*host)?, targets))));
        let links = commands.filter_map(|(host, command)| Some((host, self.links.get(host)?, command)));
        let answers = join_all(links.map(|(host, link, command)| async move { (host, link.exec(&command).await) })).await;
        for (host, answer) in answers {
            let Some(told) = told.get_mut(host) else { continue };
            let targets = again.iter().find(|(h, _)| *h == host).map_or(&[][..], |(_, t)| t.as_slice());
            match answer {
                Ok(output) => {
                    for line in output.text().lines().filter_map(|l| l.strip_prefix("way ")) {
                        let (label, rest) = line.split_once(' ').unwrap_or((line, "untold"));
                        told.add(&format!("way {} {rest}", label.replace('/', " ")));
                    }
                }
                Err(error) => targets.iter().for_each(|(label, ..)| told.add(&format!("way {} untold {error}", label.replace('/', " ")))),
            }
        }
    }
}

async fn alone(link: &Arc<Link>, questions: &Questions) -> (Told, Option<(f64, f64)>) {
    let mut told = Told::default();
    let asked = async {
        match &questions.alone {
            Some(command) => Some(link.exec(command).await),
            None => None,
        }
    };
    let clocked = async {
        match &questions.clock {
            Some(command) => clock(link, command).await,
            None => Err(String::new()),
        }
    };
    let (answer, clock) = tokio::join!(asked, clocked);
    let why = match answer {
        Some(Ok(output)) => {
            told.add(&output.text());
            format!("it broke off: {}", output.complaint())
        }
        Some(Err(error)) => error.to_string(),
        None => "nothing was asked".to_owned(),
    };
    for probe in &questions.probes {
        told.no_answer(*probe, why.clone());
    }
    match clock {
        Ok(clock) => (told, Some(clock)),
        Err(why) => {
            told.no_answer(Probe::Clock, why);
            (told, None)
        }
    }
}

/// The host's clock minus ours and how wrong that may be, milliseconds: the exchange with the shortest round trip tells most.
async fn clock(link: &Arc<Link>, command: &Command) -> Result<(f64, f64), String> {
    let mut stream = link.stream(command).await.map_err(|e| e.to_string())?;
    let began = Instant::now();
    let mut best: Option<(f64, f64)> = None;
    let mut held = Vec::new();
    for turn in 0..EXCHANGES.0 {
        if turn >= EXCHANGES.1 && began.elapsed() > ENOUGH {
            break;
        }
        let (sent, since) = (now() as f64, Instant::now());
        if stream.input.send(bytes::Bytes::from_static(b"?\n")).await.is_err() {
            break;
        }
        let Some(line) = line(&mut stream, &mut held).await else { break };
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
async fn line(stream: &mut Stream, held: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = held.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = held.drain(..=end).collect();
            return Some(String::from_utf8_lossy(&line).trim_end().to_owned());
        }
        if held.len() > 4096 {
            return None;
        }
        match tokio::time::timeout(LINE, stream.output.recv()).await {
            Ok(Some(Ok(bytes))) => held.extend_from_slice(&bytes),
            _ => return None,
        }
    }
}

/// Starts a listener; it ends with the stream that comes back.
async fn listen(link: &Arc<Link>, command: &Command) -> (Doors, Option<Stream>) {
    let mut doors = Doors::default();
    let mut stream = match link.stream(command).await {
        Ok(stream) => stream,
        Err(error) => {
            doors.why = error.to_string();
            return (doors, None);
        }
    };
    let mut held = Vec::new();
    while let Some(line) = line(&mut stream, &mut held).await {
        let words: Vec<&str> = line.splitn(3, ' ').collect();
        match words.as_slice() {
            ["ready", ..] => return (doors, Some(stream)),
            ["listens", "ephemeral", port] => doors.ephemeral = port.parse().ok(),
            ["listens", "given", _] => doors.given = true,
            ["cannot", "ephemeral" | "both", why] => doors.why = format!("it could not be listened to: {why}"),
            _ => {}
        }
    }
    doors = Doors { why: "its listener broke off".to_owned(), ..Doors::default() };
    (doors, Some(stream))
}
