//! The conductor: connects, gathers facts, carries a plan out, follows a run, ends it. Emits events; obeys controls.
//!
//! Uses `plan`, `event`, `state` and `remote`. Knows no screen, no file of the laptop and no diagnosis. It decides when, never what.

pub mod aftermath;
pub mod decide;
pub mod emit;
pub mod follow;
pub mod gang;
pub mod link;
pub mod lock;
pub mod log_event;
mod log_words;
pub mod survey;
pub mod vitals;
pub mod watch;
pub mod worker;

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::engine::emit::Emitter;
use crate::engine::link::Link;
use crate::event::EventKind;
use crate::plan::facts::HostFacts;
use crate::plan::words::Phase;
use crate::remote::{Connect, RemoteError};
use crate::shell::Command;

/// The hosts of one operation and the words about them.
#[derive(Clone)]
pub struct Engine {
    links: Vec<Arc<Link>>,
    emit: Emitter,
    forks: Arc<Semaphore>,
}

impl Engine {
    /// An engine for `hosts` hosts; at most `forks` remote commands run at once.
    pub fn new(connect: &Arc<dyn Connect>, hosts: usize, forks: usize, emit: Emitter) -> Engine {
        let links = (0..hosts).map(|host| Arc::new(Link::new(host, connect.clone(), emit.clone()))).collect();
        Engine { links, emit, forks: Arc::new(Semaphore::new(forks.max(1))) }
    }

    /// The way to each host.
    pub fn links(&self) -> &[Arc<Link>] {
        &self.links
    }

    /// Where events go.
    pub fn emitter(&self) -> &Emitter {
        &self.emit
    }

    /// Connects to every host and asks for its facts; one answer a host, in their order.
    pub async fn gather(&self, commands: Vec<(usize, Command)>) -> Vec<Result<HostFacts, RemoteError>> {
        self.emit.send(EventKind::PhaseStarted { phase: Phase::Connect });
        let mut tasks = JoinSet::new();
        for (index, command) in commands {
            let Some(link) = self.links.get(index).cloned() else { continue };
            let forks = self.forks.clone();
            tasks.spawn(async move {
                let _turn = forks.acquire_owned().await;
                (index, link.facts(&command).await)
            });
        }
        let mut answers: Vec<Result<HostFacts, RemoteError>> = (0..self.links.len()).map(|_| Err(never_asked())).collect();
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
    pub async fn fan_out(&self, commands: Vec<(usize, Command)>, mut done: impl FnMut(usize, Result<crate::shell::Output, RemoteError>)) {
        let mut tasks = JoinSet::new();
        for (index, command) in commands {
            let Some(link) = self.links.get(index).cloned() else { continue };
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
    pub async fn look(&self, host: u32) {
        if let Some(link) = self.links.get(host as usize) {
            vitals::look(link).await;
        }
    }

    /// Says goodbye to every host.
    pub async fn close(&self) {
        let mut tasks = JoinSet::new();
        for link in &self.links {
            let link = link.clone();
            tasks.spawn(async move { link.close().await });
        }
        while tasks.join_next().await.is_some() {}
    }
}

fn never_asked() -> RemoteError {
    RemoteError::CutOff { title: "gather facts".to_owned(), what: "it was not asked".to_owned() }
}
