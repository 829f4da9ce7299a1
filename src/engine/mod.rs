//! Connects to the hosts, gathers facts, executes a plan, follows a run and ends it. Emits events; obeys controls.
//!
//! It decides when, never what.

pub(crate) mod emitter;
pub(crate) mod executor;
mod fetched_logs;
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

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::engine::emitter::Emitter;
use crate::engine::host_connection::HostConnection;
use crate::event::EventKind;
use crate::model::phase::Phase;
use crate::model::remote_command::RemoteCommand;
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

    /// As [`Engine::gather_facts`], for a caller that retries: a host that does not answer is reported once, as awaited.
    pub(crate) async fn poll_facts(&self, commands: Vec<(usize, RemoteCommand)>) -> Vec<Result<HostFacts, RemoteError>> {
        self.ask_for_facts(commands, true).await
    }

    async fn ask_for_facts(&self, commands: Vec<(usize, RemoteCommand)>, will_retry: bool) -> Vec<Result<HostFacts, RemoteError>> {
        let mut tasks = JoinSet::new();
        for (index, command) in commands {
            let Some(link) = self.connections.get(index).cloned() else { continue };
            let forks = self.forks.clone();
            tasks.spawn(async move {
                let _turn = forks.acquire_owned().await;
                (index, link.connect_and_gather_facts(&command, will_retry).await)
            });
        }
        let mut answers: Vec<Result<HostFacts, RemoteError>> = (0..self.connections.len()).map(|_| Err(not_asked_error())).collect();
        while let Some(done) = tasks.join_next().await {
            if let Ok((index, answer)) = done
                && let Some(place) = answers.get_mut(index)
            {
                *place = answer;
            }
        }
        answers
    }

    /// Runs one command on each of the given hosts; answers in the order in which they come, through `done`.
    pub(crate) async fn fan_out(
        &self,
        commands: Vec<(usize, RemoteCommand)>,
        mut done: impl FnMut(usize, Result<crate::model::remote_command::CommandOutput, RemoteError>),
    ) {
        let mut tasks = JoinSet::new();
        for (index, command) in commands {
            let Some(link) = self.connections.get(index).cloned() else { continue };
            let forks = self.forks.clone();
            tasks.spawn(async move {
                let _turn = forks.acquire_owned().await;
                (index, link.exec(&command).await)
            });
        }
        while let Some(answer) = tasks.join_next().await {
            if let Ok((index, output)) = answer {
                done(index, output);
            }
        }
    }

    /// Asks a host what nvidia-smi prints; the answer is an event. Does nothing where there is no such host.
    pub(crate) async fn query_nvidia_smi(&self, host: u32) {
        if let Some(link) = self.connections.get(host as usize) {
            host_metrics_stream::query_nvidia_smi(link).await;
        }
    }

    /// Says goodbye to every host.
    pub(crate) async fn close(&self) {
        let mut tasks = JoinSet::new();
        for link in &self.connections {
            let link = link.clone();
            tasks.spawn(async move { link.close().await });
        }
        while tasks.join_next().await.is_some() {}
    }
}

fn not_asked_error() -> RemoteError {
    RemoteError::Truncated { title: "gather facts".to_owned(), what: "it was not asked".to_owned() }
}
