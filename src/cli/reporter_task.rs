#![expect(clippy::disallowed_methods, reason = "the reporter has a task of its own, and looks into the folder of past runs")]
//! The reporter's desk: a task that folds every event and feeds every face, so that no slow terminal stops anything.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::cli::args::{CommonArgs, ProgressMode};
use crate::cli::clipboard::LocalClipboard;
use crate::cli::exit::CliError;
use crate::cli::hang_watchdog::HangWatchdog;
use crate::cli::local_env::{LocalEnv, dashboard_settings, resolve_lang, terminal_columns, use_color};
use crate::diagnose::command_advice::CommandAdvice;
use crate::diagnose::{DiagnosisFinding, Evidence, Lang, RuleSet};
use crate::engine::emitter::{EmittedMessage, EmitterReceiver, now_unix_millis};
use crate::engine::log_stream::LogOffsets;
use crate::event::LogFile;
use crate::report::ReportSink;
use crate::report::json::JsonSink;
use crate::report::line_writer::SanitizedLineWriter;
use crate::report::log_filter::LogSelection;
use crate::report::plain::PlainSink;
use crate::report::progress_bars::ProgressBars;
use crate::report::runs::{RunDir, open_logs};
use crate::report::style::TextStyle;
use crate::report::threaded_sink::{FINISH_TIMEOUT, ThreadedSink};
use crate::report::{Reporter, recap};
use crate::state::RunState;
use crate::text::sanitize::Sanitizer;
use crate::tui::feed::{Capabilities, DashboardRole, FeedMessage, UserAction, WeakFeedSender};

enum Request {
    OpenRunDir(RunDir, Vec<String>, oneshot::Sender<Result<(), String>>),
    ShowLogTails(Vec<LogTail>),
    GetState(oneshot::Sender<Box<RunState>>),
    Finish(oneshot::Sender<FinalReport>),
    SetEvidence(Box<Evidence>),
    SetWatchdog(Option<HangWatchdog>),
}

/// What was told in the end.
#[derive(Default)]
pub struct FinalReport {
    /// The final state.
    pub state: Box<RunState>,
    /// What went wrong, the first cause first.
    pub findings: Vec<DiagnosisFinding>,
    /// What could not be written or shown.
    pub output_errors: Vec<String>,
}

/// The end of a log that this laptop has from before.
pub struct LogTail {
    host: u32,
    file: LogFile,
    offset: u64,
    bytes: Bytes,
}

/// The way to the reporter.
pub struct ReporterHandle {
    // A command gives a handful of orders in its life, none of them for something that a host says.
    requests: mpsc::UnboundedSender<Request>,
    task: tokio::task::JoinHandle<()>,
    sanitizer: Sanitizer,
    style: TextStyle,
    lang: Lang,
    advice: CommandAdvice,
    dashboard: Option<DashboardHandle>,
}

/// The dashboard, where that is the face.
struct DashboardHandle {
    feed_sender: WeakFeedSender,
    // One ask for a key that a person presses.
    user_actions: Option<mpsc::UnboundedReceiver<UserAction>>,
    closed: oneshot::Receiver<()>,
}

/// Which faces a command shows.
pub struct OutputOptions {
    /// How progress is shown.
    pub progress: ProgressMode,
    /// Whose log lines are shown.
    pub logs: LogSelection,
    /// Whether log lines are the data (standard output) and not talk.
    pub logs_to_stdout: bool,
}

impl ReporterHandle {
    /// Sits down. `secrets`: values that no face may show.
    ///
    /// # Errors
    /// When there is no terminal for the dashboard.
    pub fn open(
        args: &CommonArgs,
        faces: OutputOptions,
        (secrets, advice): (&[String], CommandAdvice),
        mut events: EmitterReceiver,
    ) -> Result<ReporterHandle, CliError> {
        let style = TextStyle { color: use_color(args.color) };
        let cleaner = Sanitizer::new(secrets);
        let (sinks, dashboard) = match faces.progress {
            ProgressMode::Tui => {
                let farewell = vec![format!(
                    "    the ranks go on without it: `{}` shows them, `{}` ends them",
                    advice.format_command("tui", ""),
                    advice.format_command("down", "")
                )];
                let open = crate::tui::open_dashboard(
                    DashboardRole::Observer,
                    cleaner.clone(),
                    dashboard_settings(&args.dashboard, args.color, farewell)?,
                );
                let open = open.map_err(|e| CliError::Usage(format!("the dashboard could not take the terminal: {e}")))?;
                #[cfg(debug_assertions)]
                crate::cli::fault_injection::spawn_fault_listener(open.sender.downgrade());
                let laptop = LocalEnv::read()?;
                open.sender.send(FeedMessage::Clipboard(Box::new(LocalClipboard::new(&laptop.state_dir))));
                open.sender.send(FeedMessage::UtcOffset(jiff::Zoned::now().offset().seconds().into()));
                let board = DashboardHandle { feed_sender: open.sender.downgrade(), user_actions: Some(open.actions), closed: open.ended };
                (vec![Box::new(open.sender) as Box<dyn ReportSink>], Some(board))
            }
            _ => (build_sinks(faces, style, &cleaner, &advice), None),
        };
        let mut reporter = Reporter::new(cleaner.clone(), sinks);
        let evidence = Evidence::with_built_in_rules().with_advice(advice.clone());
        reporter.set_evidence(evidence.clone());
        let (orders, mut inbox) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let mut reporter = reporter;
            let mut watch: Option<HangWatchdog> = None;
            let mut tick = tokio::time::interval(Duration::from_millis(200));
            loop {
                tokio::select! {
                    biased;
                    delivery = events.recv() => match delivery {
                        Some(delivery) => handle_delivery(&mut reporter, delivery),
                        None => return,
                    },
                    order = inbox.recv() => match order {
                        Some(Request::OpenRunDir(dir, record, done)) => send_reply(done, reporter.set_run_dir(dir, &record).map_err(|e| error_chain(&e))),
                        Some(Request::ShowLogTails(ends)) => {
                            for LogTail { host, file, offset, bytes } in ends {
                                reporter.replay_stored_log(host, file, offset, bytes, now_unix_millis());
                            }
                        }
                        Some(Request::GetState(done)) => send_reply(done, Box::new(reporter.state().clone())),
                        Some(Request::Finish(done)) => {
                            while let Some(delivery) = events.try_recv() {
                                handle_delivery(&mut reporter, delivery);
                            }
                            let lost = reporter.finish();
                            send_reply(done, FinalReport { state: Box::new(reporter.state().clone()), findings: reporter.findings(), output_errors: lost });
                            return;
                        }
                        Some(Request::SetEvidence(evidence)) => reporter.set_evidence(*evidence),
                        Some(Request::SetWatchdog(terms)) => watch = terms,
                        None => return,
                    },
                    _ = tick.tick() => {
                        reporter.tick(now_unix_millis());
                        if let Some(watch) = &mut watch {
                            watch.check(reporter.state(), now_unix_millis(), reporter.is_disk_full());
                        }
                    }
                }
            }
        });
        let desk = ReporterHandle { requests: orders, task, sanitizer: cleaner, style, lang: resolve_lang(args.lang), advice, dashboard };
        desk.send_to_dashboard(FeedMessage::DiagnosisRules(Box::new(evidence), desk.lang));
        Ok(desk)
    }

    /// What the person at the dashboard asks for; given out once, none where there is no dashboard.
    pub fn take_user_actions(&mut self) -> Option<mpsc::UnboundedReceiver<UserAction>> {
        self.dashboard.as_mut().and_then(|board| board.user_actions.take())
    }

    /// Whether the face is the dashboard.
    pub fn has_dashboard(&self) -> bool {
        self.dashboard.is_some()
    }

    /// Tells the dashboard what can be asked for now.
    pub fn set_capabilities(&self, offer: Capabilities) {
        self.send_to_dashboard(FeedMessage::Capabilities(offer));
    }

    /// The way to tell the dashboard something, where there is one.
    pub fn feed_sender(&self) -> Option<WeakFeedSender> {
        self.dashboard.as_ref().map(|board| board.feed_sender.clone())
    }

    /// Says a line to the person at the dashboard; nothing where there is none.
    pub fn show_message(&self, text: &str) {
        self.send_to_dashboard(FeedMessage::ShowToast(text.to_owned()));
    }

    fn send_to_dashboard(&self, note: FeedMessage) {
        if let Some(board) = &self.dashboard
            && !board.feed_sender.send(note)
        {
            tracing::debug!("the dashboard has ended");
        }
    }

    /// Keeps the run in a folder from now on. `record`: the hosts of the run's record in node-rank order.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub async fn open_run_dir(&self, dir: RunDir, record: Vec<String>) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        self.send_to_dashboard(FeedMessage::StoredLogs(Box::new(LogReader(dir.path().to_owned()))));
        if self.requests.send(Request::OpenRunDir(dir, record, done)).is_err() {
            return Err("the reporter has ended".to_owned());
        }
        answer.await.unwrap_or_else(|_| Err("the reporter has ended".to_owned()))
    }

    /// Shows the last lines of the logs that this laptop has from before; what follows is shown as it comes.
    pub fn show_log_tails(&self, ends: Vec<LogTail>) {
        if self.requests.send(Request::ShowLogTails(ends)).is_err() {
            tracing::debug!("the reporter has ended");
        }
    }

    /// What is known now.
    pub async fn state(&self) -> RunState {
        let (done, answer) = oneshot::channel();
        if self.requests.send(Request::GetState(done)).is_err() {
            return RunState::new();
        }
        answer.await.map(|s| *s).unwrap_or_default()
    }

    /// What hides secrets.
    pub fn sanitizer(&self) -> &Sanitizer {
        &self.sanitizer
    }

    /// What makes an advised command complete.
    pub fn advice(&self) -> &CommandAdvice {
        &self.advice
    }

    /// Colours.
    pub fn style(&self) -> TextStyle {
        self.style
    }

    /// Explains by a user's rules as well.
    pub fn set_rules(&self, rules: RuleSet) {
        let evidence = Box::new(Evidence::new(Arc::new(rules)).with_advice(self.advice.clone()));
        self.send_to_dashboard(FeedMessage::DiagnosisRules(evidence.clone(), self.lang));
        if self.requests.send(Request::SetEvidence(evidence)).is_err() {
            tracing::debug!("the reporter has ended");
        }
    }

    /// Looks out for a hang from now on, or no more.
    pub fn set_watchdog(&self, watch: Option<HangWatchdog>) {
        if self.requests.send(Request::SetWatchdog(watch)).is_err() {
            tracing::debug!("the reporter has ended");
        }
    }

    /// Ends every face; what was told in the end.
    pub async fn finish(self) -> FinalReport {
        let (done, answer) = oneshot::channel();
        if self.requests.send(Request::Finish(done)).is_err() {
            return FinalReport::default();
        }
        let ended = answer.await.unwrap_or_default();
        if self.task.await.is_err() {
            tracing::warn!("the reporter did not end well");
        }
        // What is said next belongs on the normal screen.
        if let Some(board) = self.dashboard
            && tokio::time::timeout(FINISH_TIMEOUT, board.closed).await.is_err()
        {
            tracing::warn!("the dashboard did not end");
        }
        ended
    }

    /// The recap's context.
    pub fn recap_context(&self, logs: Option<String>) -> recap::RecapContext {
        let lang = self.lang;
        let advice = self.advice.clone();
        let (cleaner, columns) = (self.sanitizer.clone(), terminal_columns());
        recap::RecapContext {
            style: self.style,
            sanitizer: cleaner,
            log_dir: logs,
            advice,
            tail_lines: 20,
            findings: Vec::new(),
            lang,
            columns,
        }
    }
}

fn handle_delivery(reporter: &mut Reporter, delivery: EmittedMessage) {
    let (event, done) = match delivery {
        EmittedMessage::Event(event, done) => (event, done),
        EmittedMessage::SyncLogs(done) => return send_reply(done, reporter.sync_logs().map_err(|error| error_chain(&error))),
        EmittedMessage::CheckLogSpace(asked) => return send_reply(asked, reporter.has_disk_space()),
    };
    let mut event = event;
    reporter.complete_hints(&mut event);
    let stored = reporter.handle_event(&event);
    if let Err(error) = &stored {
        tracing::warn!(%error, "log bytes could not be stored");
    }
    if let Some(done) = done {
        send_reply(done, stored.is_ok());
    }
}

/// Whoever asked may have gone; then nobody needs the answer.
fn send_reply<T>(done: oneshot::Sender<T>, value: T) {
    if done.send(value).is_err() {
        tracing::debug!("an answer came too late");
    }
}

/// An error with its causes, on one line.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn build_sinks(faces: OutputOptions, style: TextStyle, cleaner: &Sanitizer, advice: &CommandAdvice) -> Vec<Box<dyn ReportSink>> {
    let OutputOptions { progress, logs, logs_to_stdout: data } = faces;
    let (cleaner, advice) = (cleaner.clone(), advice.clone());
    match progress {
        // The dashboard is opened elsewhere.
        ProgressMode::Quiet | ProgressMode::Tui => Vec::new(),
        ProgressMode::Json => spawn_threaded_sink(JsonSink::new(SanitizedLineWriter::stdout(), cleaner)),
        ProgressMode::Auto | ProgressMode::Bars | ProgressMode::Plain if data => {
            spawn_threaded_sink(PlainSink::new(SanitizedLineWriter::stdout(), cleaner, style, logs).with_advice(advice))
        }
        ProgressMode::Auto if std::io::stderr().is_terminal() => {
            spawn_threaded_sink(ProgressBars::stderr(cleaner, style, logs).with_advice(advice))
        }
        ProgressMode::Bars => spawn_threaded_sink(ProgressBars::stderr(cleaner, style, logs).with_advice(advice)),
        ProgressMode::Auto | ProgressMode::Plain => {
            spawn_threaded_sink(PlainSink::new(SanitizedLineWriter::stderr(), cleaner, style, logs).with_advice(advice))
        }
    }
}

/// A face on a thread of its own: a terminal that is stopped stops nothing else.
fn spawn_threaded_sink(face: impl ReportSink + 'static) -> Vec<Box<dyn ReportSink>> {
    match ThreadedSink::new(face, RunState::new(), FINISH_TIMEOUT) {
        Ok(face) => vec![Box::new(face)],
        Err(error) => {
            crate::cli::local_env::print_stderr(&format!("warning: nothing is shown on the way: no thread to be had: {error}"));
            Vec::new()
        }
    }
}

/// The laptop's copies of logs in a run's folder, for the dashboard.
pub struct LogReader(pub PathBuf);

impl crate::tui::feed::StoredLogs for LogReader {
    fn len(&self, host: &str, file: LogFile) -> std::io::Result<u64> {
        let mut store = open_logs(&self.0).map_err(std::io::Error::other)?;
        store.log_len(host, file).map_err(std::io::Error::other)
    }

    fn read(&self, host: &str, file: LogFile, from: u64, most: usize) -> std::io::Result<Vec<u8>> {
        let store = open_logs(&self.0).map_err(std::io::Error::other)?;
        store.read_at(host, file, from, most).map_err(std::io::Error::other)
    }
}

/// The last lines of every log of these hosts that the laptop has.
pub fn read_log_tails(dir: &RunDir, hosts: &[String], lines: usize) -> Vec<LogTail> {
    let Ok(mut store) = open_logs(dir.path()) else { return Vec::new() };
    let mut ends = Vec::new();
    for (host, name) in (0..).zip(hosts) {
        for (file, len) in store.log_lengths(name).unwrap_or_default() {
            match store.tail(name, file, lines) {
                Ok(bytes) => ends.push(LogTail { host, file, offset: len.saturating_sub(bytes.len() as u64), bytes: bytes.into() }),
                Err(error) => tracing::debug!(%error, "the end of a log could not be read"),
            }
        }
    }
    ends
}

/// What the laptop's copies already hold of the hosts of this command, looked up when a stream begins.
pub fn stored_log_offsets(dir: RunDir, hosts: Vec<String>) -> LogOffsets {
    Arc::new(move |host| {
        let Some(name) = hosts.get(host) else { return Vec::new() };
        open_logs(dir.path()).and_then(|mut store| store.log_lengths(name)).unwrap_or_default()
    })
}
