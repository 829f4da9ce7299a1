//! Connects to the hosts, gathers facts, executes a plan, follows a run and ends it. Emits events; obeys controls.
//!
//! It decides when, never what.

pub(crate) mod emitter;
pub(crate) mod executor;
pub(crate) mod follow;
pub(crate) mod gang;
pub(crate) mod host_connection;
pub(crate) mod host_metrics_stream;
pub(crate) mod lock;
mod log_follower;
pub(crate) mod log_stream;
pub(crate) mod log_stream_event;
mod log_stream_reporting;
pub(crate) mod postmortem;
pub(crate) mod probes;
mod pull_image;
mod run_step;
mod run_task;
pub(crate) mod scheduler;
pub(crate) mod send_files;
mod task_logs;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::engine::emitter::Emitter;
use crate::engine::host_connection::HostConnection;
use crate::event::EventKind;
use crate::model::phase::Phase;
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::facts::HostFacts;
use crate::remote::{HostConnector, RemoteError};

/// The hosts of one operation, with its events.
#[derive(Clone)]
pub(crate) struct Engine {
    connections: Vec<Arc<HostConnection>>,
    emitter: Emitter,
    forks: Arc<Semaphore>,
}

impl Engine {
    /// An engine for `hosts` hosts; at most `forks` remote commands run at once.
    pub(crate) fn new(connect: &Arc<dyn HostConnector>, hosts: usize, forks: usize, emit: Emitter) -> Engine {
        let links = (0..hosts).map(|host| Arc::new(HostConnection::new(host, connect.clone(), emit.clone()))).collect();
        Engine { connections: links, emitter: emit, forks: Arc::new(Semaphore::new(forks.max(1))) }
    }

    /// The way to each host.
    pub(crate) fn connections(&self) -> &[Arc<HostConnection>] {
        &self.connections
    }

    pub(crate) fn emitter(&self) -> &Emitter {
        &self.emitter
    }

    /// Connects to every host and asks for its facts; one answer a host, in their order.
    pub(crate) async fn gather_facts(&self, commands: Vec<(usize, RemoteCommand)>) -> Vec<Result<HostFacts, RemoteError>> {
        self.emitter.send(EventKind::PhaseStarted { phase: Phase::Connect });
        self.ask_for_facts(commands, false).await
    }

    /// As [`Engine::gather_facts`], within a phase. `will_retry`: a host that does not answer is reported once, as awaited.
    pub(crate) async fn ask_for_facts(
        &self,
        commands: Vec<(usize, RemoteCommand)>,
        will_retry: bool,
    ) -> Vec<Result<HostFacts, RemoteError>> {
        let mut answers: Vec<_> = self.connections.iter().map(|_| Err(not_asked_error("gather facts"))).collect();
        let ask = |link: Arc<HostConnection>, command| async move { link.connect_and_gather_facts(&command, will_retry).await };
        for (host, answer) in self.on_hosts(commands, ask).await {
            if let Some(place) = answers.get_mut(host) {
                *place = answer;
            }
        }
        answers
    }

    /// Runs one command on each of the given hosts; the answers in the order of the hosts.
    pub(crate) async fn fan_out(&self, commands: Vec<(usize, RemoteCommand)>) -> Vec<(usize, Result<CommandOutput, RemoteError>)> {
        let hosts: Vec<(usize, String)> = commands.iter().map(|(host, command)| (*host, command.title.clone())).collect();
        let answers = self.on_hosts(commands, |link, command| async move { link.exec(&command).await }).await;
        let mut answers: BTreeMap<usize, _> = answers.into_iter().collect();
        let mut answer_of = |host, title: &str| answers.remove(&host).unwrap_or_else(|| Err(not_asked_error(title)));
        hosts.into_iter().map(|(host, title)| (host, answer_of(host, &title))).collect()
    }

    /// One answer a host; none where the task of a host has panicked, so that the others are not lost.
    async fn on_hosts<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
        &self,
        commands: Vec<(usize, RemoteCommand)>,
        ask: impl Fn(Arc<HostConnection>, RemoteCommand) -> F,
    ) -> Vec<(usize, T)> {
        let mut tasks = JoinSet::new();
        for (host, command) in commands {
            let Some(link) = self.connections.get(host).cloned() else { continue };
            let (forks, answer) = (self.forks.clone(), ask(link, command));
            tasks.spawn(async move {
                let _turn = forks.acquire_owned().await;
                (host, answer.await)
            });
        }
        let mut answers = Vec::new();
        while let Some(done) = tasks.join_next().await {
            answers.extend(done);
        }
        answers
    }

    /// Asks a host what nvidia-smi prints; the answer is an event. Does nothing where there is no such host.
    pub(crate) async fn query_nvidia_smi(&self, host: u32) {
        if let Some(link) = self.connections.get(host as usize) {
            host_metrics_stream::query_nvidia_smi(link).await;
        }
    }

    /// Says goodbye to every host.
    pub(crate) async fn close(&self) {
        join_all(self.connections.iter().map(|link| link.close())).await;
    }
}

fn not_asked_error(title: &str) -> RemoteError {
    RemoteError::Truncated { title: title.to_owned(), what: "it was not asked".to_owned() }
}
