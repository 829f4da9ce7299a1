#![expect(clippy::disallowed_methods, reason = "the reporter has a task of its own, and looks into the folder of past runs")]
//! The reporter's desk: a task that folds every event and feeds every face, so that no slow terminal stops anything.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::cli::args::{HostArgs, Progress};
use crate::cli::laptop::colored;
use crate::engine::emit::{Delivery, now};
use crate::engine::watch::Offsets;
use crate::event::LogFile;
use crate::report::Sink;
use crate::report::aside::{Aside, PATIENCE};
use crate::report::bar::Bars;
use crate::report::json::Json;
use crate::report::line::Lines;
use crate::report::loglines::Logs;
use crate::report::logs::LogStore;
use crate::report::outlet::Outlet;
use crate::report::runs::RunDir;
use crate::report::sanitize::Cleaner;
use crate::report::words::Style;
use crate::report::{Reporter, recap};
use crate::state::RunState;

enum Order {
    Keep(RunDir, oneshot::Sender<Result<(), String>>),
    State(oneshot::Sender<Box<RunState>>),
    Finish(oneshot::Sender<(Box<RunState>, Vec<String>)>),
}

/// The way to the reporter.
pub struct Desk {
    orders: mpsc::UnboundedSender<Order>,
    task: tokio::task::JoinHandle<()>,
    cleaner: Cleaner,
    style: Style,
}

/// Which faces a command shows.
pub struct Faces {
    /// How progress is shown.
    pub progress: Progress,
    /// Whose log lines are shown.
    pub logs: Logs,
    /// Whether log lines are the data (standard output) and not talk.
    pub data: bool,
}

impl Desk {
    /// Sits down. `secrets`: values that no face may show.
    pub fn open(args: &HostArgs, faces: Faces, secrets: &[String], mut events: mpsc::UnboundedReceiver<Delivery>) -> Desk {
        let style = Style { color: colored(args.color) };
        let cleaner = Cleaner::new(secrets);
        let reporter = Reporter::new(cleaner.clone(), sinks(faces, style, &cleaner));
        let (orders, mut inbox) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut reporter = reporter;
            let mut tick = tokio::time::interval(Duration::from_millis(200));
            loop {
                tokio::select! {
                    biased;
                    delivery = events.recv() => match delivery {
                        Some(delivery) => take(&mut reporter, delivery),
                        None => return,
                    },
                    order = inbox.recv() => match order {
                        Some(Order::Keep(dir, done)) => answer(done, reporter.keep(dir).map_err(|e| chain(&e))),
                        Some(Order::State(done)) => answer(done, Box::new(reporter.state().clone())),
                        Some(Order::Finish(done)) => {
                            while let Ok(delivery) = events.try_recv() {
                                take(&mut reporter, delivery);
                            }
                            let lost = reporter.finish();
                            answer(done, (Box::new(reporter.state().clone()), lost));
                            return;
                        }
                        None => return,
                    },
                    _ = tick.tick() => reporter.tick(now()),
                }
            }
        });
        Desk { orders, task, cleaner, style }
    }

    /// Keeps the run in a folder from now on.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub async fn keep(&self, dir: RunDir) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        if self.orders.send(Order::Keep(dir, done)).is_err() {
            return Err("the reporter has ended".to_owned());
        }
        answer.await.unwrap_or_else(|_| Err("the reporter has ended".to_owned()))
    }

    /// What is known now.
    pub async fn state(&self) -> RunState {
        let (done, answer) = oneshot::channel();
        if self.orders.send(Order::State(done)).is_err() {
            return RunState::new();
        }
        answer.await.map(|s| *s).unwrap_or_default()
    }

    /// What hides secrets.
    pub fn cleaner(&self) -> &Cleaner {
        &self.cleaner
    }

    /// Colours.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Ends every face; the final state and what was lost.
    pub async fn finish(self) -> (RunState, Vec<String>) {
        let (done, answer) = oneshot::channel();
        if self.orders.send(Order::Finish(done)).is_err() {
            return (RunState::new(), Vec::new());
        }
        let ended = answer.await.map_or_else(|_| (RunState::new(), Vec::new()), |(state, lost)| (*state, lost));
        if self.task.await.is_err() {
            tracing::warn!("the reporter did not end well");
        }
        ended
    }

    /// The recap's context.
    pub fn context(&self, logs: Option<String>, inventory: String) -> recap::Context {
        recap::Context { style: self.style, cleaner: self.cleaner.clone(), logs, inventory, lines: 20 }
    }
}

fn take(reporter: &mut Reporter, delivery: Delivery) {
    let stored = reporter.on(&delivery.event);
    if let Err(error) = &stored {
        tracing::warn!(%error, "log bytes could not be stored");
    }
    if let Some(done) = delivery.stored {
        answer(done, stored.is_ok());
    }
}

/// Whoever asked may have gone; then nobody needs the answer.
fn answer<T>(done: oneshot::Sender<T>, value: T) {
    if done.send(value).is_err() {
        tracing::debug!("an answer came too late");
    }
}

/// An error with its causes, on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn sinks(faces: Faces, style: Style, cleaner: &Cleaner) -> Vec<Box<dyn Sink>> {
    let Faces { progress, logs, data } = faces;
    let cleaner = cleaner.clone();
    match progress {
        Progress::Quiet => Vec::new(),
        Progress::Json => apart(Json::new(Outlet::stdout(), cleaner)),
        Progress::Auto | Progress::Bars | Progress::Plain if data => apart(Lines::new(Outlet::stdout(), cleaner, style, logs)),
        Progress::Auto if std::io::stderr().is_terminal() => apart(Bars::stderr(cleaner, style, logs)),
        Progress::Bars => apart(Bars::stderr(cleaner, style, logs)),
        Progress::Auto | Progress::Plain => apart(Lines::new(Outlet::stderr(), cleaner, style, logs)),
    }
}

/// A face on a thread of its own: a terminal that is stopped stops nothing else.
fn apart(face: impl Sink + 'static) -> Vec<Box<dyn Sink>> {
    match Aside::new(face, RunState::new(), PATIENCE) {
        Ok(face) => vec![Box::new(face)],
        Err(error) => {
            crate::cli::laptop::say(&format!("warning: nothing is shown on the way: no thread to be had: {error}"));
            Vec::new()
        }
    }
}

/// What the laptop's copies already hold, looked up when a stream begins.
pub fn offsets(logs: PathBuf) -> Offsets {
    Arc::new(move |host| {
        let Ok(mut store) = LogStore::open(&logs) else { return Vec::new() };
        let id = u32::try_from(host).unwrap_or(u32::MAX);
        let mut files: BTreeSet<LogFile> = BTreeSet::from([LogFile::Node]);
        for (name, _) in store.files().unwrap_or_default() {
            let stem = name.trim_end_matches(".log").split('@').next().unwrap_or_default();
            let file = if stem.starts_with("rank-") && !stem.contains('.') { format!("{stem}.0") } else { stem.to_owned() };
            files.extend(file.parse::<LogFile>());
        }
        files.into_iter().filter_map(|file| store.len(id, file).ok().map(|len| (file, len))).filter(|(_, len)| *len > 0).collect()
    })
}
