#![expect(clippy::disallowed_methods, reason = "the reporter has a task of its own, and looks into the folder of past runs")]
//! The reporter's desk: a task that folds every event and feeds every face, so that no slow terminal stops anything.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::cli::args::{HostArgs, Progress};
use crate::cli::exit::Failure;
use crate::cli::hand::Keeper;
use crate::cli::hang::Watch;
use crate::cli::laptop::{Laptop, colored, columns, lang, settings};
use crate::diagnose::advice::Advice;
use crate::diagnose::{Evidence, Finding, Lang, Rules};
use crate::engine::emit::{Deliveries, Delivery, now};
use crate::engine::watch::Offsets;
use crate::event::LogFile;
use crate::report::Sink;
use crate::report::aside::{Aside, PATIENCE};
use crate::report::bar::Bars;
use crate::report::json::Json;
use crate::report::line::Lines;
use crate::report::loglines::Logs;
use crate::report::outlet::Outlet;
use crate::report::runs::{RunDir, open_logs};
use crate::report::sanitize::Cleaner;
use crate::report::words::Style;
use crate::report::{Reporter, recap};
use crate::state::RunState;
use crate::tui::feed::{Ask, Note, Offer, Role, Teller};

enum Order {
    Keep(RunDir, Vec<String>, oneshot::Sender<Result<(), String>>),
    Recall(Vec<Stored>),
    State(oneshot::Sender<Box<RunState>>),
    Finish(oneshot::Sender<Told>),
    Explain(Box<Evidence>),
    Watch(Option<Watch>),
}

/// What was told in the end.
#[derive(Default)]
pub struct Told {
    /// The final state.
    pub state: Box<RunState>,
    /// What went wrong, the first cause first.
    pub findings: Vec<Finding>,
    /// What could not be written or shown.
    pub lost: Vec<String>,
}

/// The end of a log that this laptop has from before.
pub struct Stored {
    host: u32,
    file: LogFile,
    offset: u64,
    bytes: Bytes,
}

/// The way to the reporter.
pub struct Desk {
    // A command gives a handful of orders in its life, none of them for something that a host says.
    orders: mpsc::UnboundedSender<Order>,
    task: tokio::task::JoinHandle<()>,
    cleaner: Cleaner,
    style: Style,
    lang: Lang,
    advice: Advice,
    dashboard: Option<Board>,
}

/// The dashboard, where that is the face.
struct Board {
    teller: Teller,
    // One ask for a key that a person presses.
    asks: Option<mpsc::UnboundedReceiver<Ask>>,
    ended: oneshot::Receiver<()>,
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
    ///
    /// # Errors
    /// When there is no terminal for the dashboard.
    pub fn open(args: &HostArgs, faces: Faces, (secrets, advice): (&[String], Advice), mut events: Deliveries) -> Result<Desk, Failure> {
        let style = Style { color: colored(args.color) };
        let cleaner = Cleaner::new(secrets);
        let (sinks, dashboard) = match faces.progress {
            Progress::Tui => {
                let farewell = vec![format!(
                    "    the ranks go on without it: `{}` shows them, `{}` ends them",
                    advice.command("tui", ""),
                    advice.command("down", "")
                )];
                let open = crate::tui::open(Role::Onlooker, cleaner.clone(), settings(&args.board, args.color, farewell)?);
                let open = open.map_err(|e| Failure::Usage(format!("the dashboard could not take the terminal: {e}")))?;
                #[cfg(debug_assertions)]
                crate::cli::rehearsal::listen(open.mouth.again());
                let laptop = Laptop::read()?;
                open.mouth.tell(Note::Hand(Box::new(Keeper::new(&laptop))));
                open.mouth.tell(Note::Zone(jiff::Zoned::now().offset().seconds().into()));
                let board = Board { teller: open.mouth.again(), asks: Some(open.asks), ended: open.ended };
                (vec![Box::new(open.mouth) as Box<dyn Sink>], Some(board))
            }
            _ => (sinks(faces, style, &cleaner, &advice), None),
        };
        let mut reporter = Reporter::new(cleaner.clone(), sinks);
        let evidence = Evidence::built_in().advising(advice.clone());
        reporter.explain(evidence.clone());
        let (orders, mut inbox) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut reporter = reporter;
            let mut watch: Option<Watch> = None;
            let mut tick = tokio::time::interval(Duration::from_millis(200));
            loop {
                tokio::select! {
                    biased;
                    delivery = events.recv() => match delivery {
                        Some(delivery) => take(&mut reporter, delivery),
                        None => return,
                    },
                    order = inbox.recv() => match order {
                        Some(Order::Keep(dir, record, done)) => answer(done, reporter.keep(dir, &record).map_err(|e| chain(&e))),
                        Some(Order::Recall(ends)) => {
                            for Stored { host, file, offset, bytes } in ends {
                                reporter.recall(host, file, offset, bytes, now());
                            }
                        }
                        Some(Order::State(done)) => answer(done, Box::new(reporter.state().clone())),
                        Some(Order::Finish(done)) => {
                            while let Some(delivery) = events.now() {
                                take(&mut reporter, delivery);
                            }
                            let lost = reporter.finish();
                            answer(done, Told { state: Box::new(reporter.state().clone()), findings: reporter.findings(), lost });
                            return;
                        }
                        Some(Order::Explain(evidence)) => reporter.explain(*evidence),
                        Some(Order::Watch(terms)) => watch = terms,
                        None => return,
                    },
                    _ = tick.tick() => {
                        reporter.tick(now());
                        if let Some(watch) = &mut watch {
                            watch.look(reporter.state(), now(), reporter.full());
                        }
                    }
                }
            }
        });
        let desk = Desk { orders, task, cleaner, style, lang: lang(args.lang), advice, dashboard };
        desk.tell(Note::Explain(Box::new(evidence), desk.lang));
        Ok(desk)
    }

    /// What the person at the dashboard asks for; given out once, none where there is no dashboard.
    pub fn asks(&mut self) -> Option<mpsc::UnboundedReceiver<Ask>> {
        self.dashboard.as_mut().and_then(|board| board.asks.take())
    }

    /// Whether the face is the dashboard.
    pub fn has_dashboard(&self) -> bool {
        self.dashboard.is_some()
    }

    /// Tells the dashboard what can be asked for now.
    pub fn offer(&self, offer: Offer) {
        self.tell(Note::Offer(offer));
    }

    /// The way to tell the dashboard something, where there is one.
    pub fn teller(&self) -> Option<Teller> {
        self.dashboard.as_ref().map(|board| board.teller.clone())
    }

    /// Says a line to the person at the dashboard; nothing where there is none.
    pub fn say(&self, text: &str) {
        self.tell(Note::Say(text.to_owned()));
    }

    fn tell(&self, note: Note) {
        if let Some(board) = &self.dashboard
            && !board.teller.tell(note)
        {
            tracing::debug!("the dashboard has ended");
        }
    }

    /// Keeps the run in a folder from now on. `record`: the hosts of the run's record in node-rank order.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub async fn keep(&self, dir: RunDir, record: Vec<String>) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        self.tell(Note::Stored(Box::new(Copies(dir.path().to_owned()))));
        if self.orders.send(Order::Keep(dir, record, done)).is_err() {
            return Err("the reporter has ended".to_owned());
        }
        answer.await.unwrap_or_else(|_| Err("the reporter has ended".to_owned()))
    }

    /// Shows the last lines of the logs that this laptop has from before; what follows is shown as it comes.
    pub fn recall(&self, ends: Vec<Stored>) {
        if self.orders.send(Order::Recall(ends)).is_err() {
            tracing::debug!("the reporter has ended");
        }
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

    /// What makes an advised command complete.
    pub fn advice(&self) -> &Advice {
        &self.advice
    }

    /// Colours.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Explains by a user's rules as well.
    pub fn explain(&self, rules: Rules) {
        let evidence = Box::new(Evidence::new(Arc::new(rules)).advising(self.advice.clone()));
        self.tell(Note::Explain(evidence.clone(), self.lang));
        if self.orders.send(Order::Explain(evidence)).is_err() {
            tracing::debug!("the reporter has ended");
        }
    }

    /// Looks out for a hang from now on, or no more.
    pub fn watch(&self, watch: Option<Watch>) {
        if self.orders.send(Order::Watch(watch)).is_err() {
            tracing::debug!("the reporter has ended");
        }
    }

    /// Ends every face; what was told in the end.
    pub async fn finish(self) -> Told {
        let (done, answer) = oneshot::channel();
        if self.orders.send(Order::Finish(done)).is_err() {
            return Told::default();
        }
        let ended = answer.await.unwrap_or_default();
        if self.task.await.is_err() {
            tracing::warn!("the reporter did not end well");
        }
        // What is said next belongs on the normal screen.
        if let Some(board) = self.dashboard
            && tokio::time::timeout(PATIENCE, board.ended).await.is_err()
        {
            tracing::warn!("the dashboard did not end");
        }
        ended
    }

    /// The recap's context.
    pub fn context(&self, logs: Option<String>) -> recap::Context {
        let lang = self.lang;
        let advice = self.advice.clone();
        let (cleaner, columns) = (self.cleaner.clone(), columns());
        recap::Context { style: self.style, cleaner, logs, advice, lines: 20, findings: Vec::new(), lang, columns }
    }
}

fn take(reporter: &mut Reporter, delivery: Delivery) {
    let (event, done) = match delivery {
        Delivery::Event(event, done) => (event, done),
        Delivery::Sync(done) => return answer(done, reporter.sync().map_err(|error| chain(&error))),
        Delivery::Room(asked) => return answer(asked, reporter.has_room()),
    };
    let mut event = event;
    reporter.complete(&mut event);
    let stored = reporter.on(&event);
    if let Err(error) = &stored {
        tracing::warn!(%error, "log bytes could not be stored");
    }
    if let Some(done) = done {
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

fn sinks(faces: Faces, style: Style, cleaner: &Cleaner, advice: &Advice) -> Vec<Box<dyn Sink>> {
    let Faces { progress, logs, data } = faces;
    let (cleaner, advice) = (cleaner.clone(), advice.clone());
    match progress {
        // The dashboard is opened elsewhere.
        Progress::Quiet | Progress::Tui => Vec::new(),
        Progress::Json => apart(Json::new(Outlet::stdout(), cleaner)),
        Progress::Auto | Progress::Bars | Progress::Plain if data => {
            apart(Lines::new(Outlet::stdout(), cleaner, style, logs).advising(advice))
        }
        Progress::Auto if std::io::stderr().is_terminal() => apart(Bars::stderr(cleaner, style, logs).advising(advice)),
        Progress::Bars => apart(Bars::stderr(cleaner, style, logs).advising(advice)),
        Progress::Auto | Progress::Plain => apart(Lines::new(Outlet::stderr(), cleaner, style, logs).advising(advice)),
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

/// The laptop's copies of logs in a run's folder, for the dashboard.
pub struct Copies(pub PathBuf);

impl crate::tui::feed::Stored for Copies {
    fn len(&self, host: &str, file: LogFile) -> std::io::Result<u64> {
        let mut store = open_logs(&self.0).map_err(std::io::Error::other)?;
        store.len(host, file).map_err(std::io::Error::other)
    }

    fn read(&self, host: &str, file: LogFile, from: u64, most: usize) -> std::io::Result<Vec<u8>> {
        let store = open_logs(&self.0).map_err(std::io::Error::other)?;
        store.read_at(host, file, from, most).map_err(std::io::Error::other)
    }
}

/// The last lines of every log of these hosts that the laptop has.
pub fn ends(dir: &RunDir, hosts: &[String], lines: usize) -> Vec<Stored> {
    let Ok(mut store) = open_logs(dir.path()) else { return Vec::new() };
    let mut ends = Vec::new();
    for (host, name) in (0..).zip(hosts) {
        for (file, len) in store.lens(name).unwrap_or_default() {
            match store.tail(name, file, lines) {
                Ok(bytes) => ends.push(Stored { host, file, offset: len.saturating_sub(bytes.len() as u64), bytes: bytes.into() }),
                Err(error) => tracing::debug!(%error, "the end of a log could not be read"),
            }
        }
    }
    ends
}

/// What the laptop's copies already hold of the hosts of this command, looked up when a stream begins.
pub fn offsets(dir: RunDir, hosts: Vec<String>) -> Offsets {
    Arc::new(move |host| {
        let Some(name) = hosts.get(host) else { return Vec::new() };
        open_logs(dir.path()).and_then(|mut store| store.lens(name)).unwrap_or_default()
    })
}
