#![expect(clippy::disallowed_methods, reason = "spawns the reporter's task")]
//! Runs the reporter in a task: it folds every event and feeds every output, so that a slow terminal blocks nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::diagnose::{DiagnosisFinding, Evidence, RuleSet};
use crate::engine::emitter::{EngineMessage, EngineMessageReceiver, now_unix_millis};
use crate::event::EventKind;
use crate::event::controls::{DashboardCapabilities, UserAction};
use crate::lifecycle::hang_watchdog::HangWatchdog;
use crate::lifecycle::log_copies::LogPart;
use crate::lifecycle::operator::{DashboardHandle, DashboardView};
use crate::report::ReportSink;
use crate::report::past_runs::RunDir;
use crate::report::style::TextStyle;
use crate::report::threaded_sink::FINISH_TIMEOUT;
use crate::report::{Reporter, recap};
use crate::state::RunState;
use crate::text::error_chain::error_chain;
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;

enum ReporterRequest {
    OpenRunDir { dir: RunDir, record: Vec<String>, hosts: Vec<String>, done: oneshot::Sender<Result<(), String>> },
    ShowStoredLogs(Vec<LogPart>),
    Finish(oneshot::Sender<ReporterOutcome>),
    SetEvidence(Box<Evidence>),
    SetWatchdog(Option<HangWatchdog>),
}

#[derive(Default)]
pub(crate) struct ReporterOutcome {
    pub(crate) state: Box<RunState>,
    /// The first cause comes first.
    pub(crate) findings: Arc<[DiagnosisFinding]>,
    /// Outputs that failed.
    pub(crate) output_errors: Vec<String>,
}

pub(crate) struct ReporterHandle {
    // Unbounded: a command sends a handful of requests, and no host can trigger one.
    requests: mpsc::UnboundedSender<ReporterRequest>,
    task: tokio::task::JoinHandle<()>,
    sanitizer: Sanitizer,
    style: TextStyle,
    lang: Lang,
    advice: AdviceFormatter,
    dashboard: Option<DashboardHandle>,
}

pub(crate) struct ReporterSetup {
    pub(crate) sinks: Vec<Box<dyn ReportSink>>,
    pub(crate) dashboard: Option<DashboardHandle>,
    pub(crate) sanitizer: Sanitizer,
    pub(crate) style: TextStyle,
    pub(crate) lang: Lang,
    pub(crate) advice: AdviceFormatter,
}

struct ReporterTask {
    reporter: Reporter,
    events: EngineMessageReceiver,
    watchdog: Option<HangWatchdog>,
    /// Never notified without a dashboard.
    snapshot_request: Arc<Notify>,
}

impl ReporterTask {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<ReporterRequest>) {
        let mut tick = tokio::time::interval(Duration::from_millis(200));
        loop {
            tokio::select! {
                biased;
                delivery = self.events.recv() => match delivery {
                    Some(delivery) => handle_engine_message(&mut self.reporter, delivery),
                    None => return,
                },
                request = inbox.recv() => match request {
                    Some(ReporterRequest::Finish(done)) => return send_reply(done, self.finish()),
                    Some(request) => self.handle_request(request),
                    None => return,
                },
                () = self.snapshot_request.notified() => self.reporter.send_wanted_snapshots(),
                _ = tick.tick() => self.tick(),
            }
        }
    }

    fn tick(&mut self) {
        self.reporter.tick(now_unix_millis());
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.check(self.reporter.state(), now_unix_millis(), self.reporter.is_disk_full());
        }
    }

    fn handle_request(&mut self, request: ReporterRequest) {
        match request {
            ReporterRequest::OpenRunDir { dir, record, hosts, done } => {
                let is_open = self.reporter.run_dir() == Some(&dir);
                let opened = self.reporter.set_run_dir(dir, &record).map_err(|e| error_chain(&e));
                if opened.is_ok() && !is_open {
                    self.reporter.load_stored_evidence(&hosts, now_unix_millis());
                }
                send_reply(done, opened);
            }
            ReporterRequest::ShowStoredLogs(parts) => {
                for LogPart { host, file, offset, bytes } in parts {
                    self.reporter.show_stored_log(EventKind::log(host, file, offset, bytes), now_unix_millis());
                }
            }
            ReporterRequest::SetEvidence(evidence) => self.reporter.set_evidence(*evidence),
            ReporterRequest::SetWatchdog(watchdog) => self.watchdog = watchdog,
            ReporterRequest::Finish(done) => send_reply(done, self.finish()),
        }
    }

    fn finish(&mut self) -> ReporterOutcome {
        while let Some(delivery) = self.events.try_recv() {
            handle_engine_message(&mut self.reporter, delivery);
        }
        let output_errors = self.reporter.finish();
        ReporterOutcome { state: Box::new(self.reporter.state().clone()), findings: self.reporter.findings(), output_errors }
    }
}

impl ReporterHandle {
    pub(crate) fn spawn(setup: ReporterSetup, events: EngineMessageReceiver) -> ReporterHandle {
        let ReporterSetup { sinks, dashboard, sanitizer, style, lang, advice } = setup;
        let mut reporter = Reporter::new(sanitizer.clone(), sinks);
        let evidence = Evidence::with_built_in_rules().with_advice_formatter(advice.clone());
        reporter.set_evidence(evidence);
        let (requests, inbox) = mpsc::unbounded_channel();
        let mut snapshot_request = Arc::default();
        if let Some(dashboard) = &dashboard {
            dashboard.view.set_wording(advice.clone(), lang);
            snapshot_request = Arc::clone(&dashboard.snapshot_request);
        }
        let task = tokio::spawn(ReporterTask { reporter, events, watchdog: None, snapshot_request }.run(inbox));
        ReporterHandle { requests, task, sanitizer, style, lang, advice, dashboard }
    }

    /// What is asked of a reporter that has ended gets no answer.
    fn request(&self, request: ReporterRequest) {
        if self.requests.send(request).is_err() {
            tracing::debug!("the reporter has ended");
        }
    }

    /// `None` without a dashboard, and after the first call.
    pub(crate) fn take_user_actions(&mut self) -> Option<mpsc::UnboundedReceiver<UserAction>> {
        self.dashboard.as_mut().and_then(|dashboard| dashboard.user_actions.take())
    }

    pub(crate) fn has_dashboard(&self) -> bool {
        self.dashboard.is_some()
    }

    pub(crate) fn dashboard(&self) -> Option<Arc<dyn DashboardView>> {
        self.dashboard.as_ref().map(|dashboard| Arc::clone(&dashboard.view))
    }

    pub(crate) fn set_capabilities(&self, capabilities: DashboardCapabilities) {
        if let Some(dashboard) = &self.dashboard {
            dashboard.view.set_capabilities(capabilities);
        }
    }

    /// Writes journal and logs into this directory from now on. `record`: the hosts of the run's record in node-rank order; `hosts`: those of
    /// this session, whose stored logs are read for the diagnosis.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub(crate) async fn open_run_dir(&self, dir: RunDir, record: Vec<String>, hosts: Vec<String>) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        if let Some(dashboard) = &self.dashboard {
            dashboard.view.set_run_dir(dir.path());
        }
        self.request(ReporterRequest::OpenRunDir { dir, record, hosts, done });
        answer.await.unwrap_or_else(|_| Err("the reporter has ended".to_owned()))
    }

    pub(crate) fn show_stored_logs(&self, parts: Vec<LogPart>) {
        self.request(ReporterRequest::ShowStoredLogs(parts));
    }

    pub(crate) fn sanitizer(&self) -> &Sanitizer {
        &self.sanitizer
    }

    pub(crate) fn advice(&self) -> &AdviceFormatter {
        &self.advice
    }

    pub(crate) fn style(&self) -> TextStyle {
        self.style
    }

    pub(crate) fn lang(&self) -> Lang {
        self.lang
    }

    /// Adds the user's rules to the diagnosis.
    pub(crate) fn set_rules(&self, rules: RuleSet) {
        self.set_evidence(Evidence::new(Arc::new(rules)));
    }

    /// Looks for no cause of a failure: neither the recap nor `report.json` gets one from this session.
    pub(crate) fn disable_diagnosis(&self) {
        self.set_evidence(Evidence::default());
    }

    fn set_evidence(&self, evidence: Evidence) {
        self.request(ReporterRequest::SetEvidence(Box::new(evidence.with_advice_formatter(self.advice.clone()))));
    }

    pub(crate) fn set_watchdog(&self, watchdog: Option<HangWatchdog>) {
        self.request(ReporterRequest::SetWatchdog(watchdog));
    }

    /// Ends every output.
    pub(crate) async fn finish(self) -> ReporterOutcome {
        let (done, answer) = oneshot::channel();
        self.request(ReporterRequest::Finish(done));
        let ended = answer.await.unwrap_or_default();
        if self.task.await.is_err() {
            tracing::warn!("the reporter panicked");
        }
        // Wait for the dashboard: what is printed next belongs on the normal screen.
        if let Some(dashboard) = self.dashboard
            && tokio::time::timeout(FINISH_TIMEOUT, dashboard.closed).await.is_err()
        {
            tracing::warn!("the dashboard did not end");
        }
        ended
    }

    pub(crate) fn recap_context(&self, logs: Option<String>, columns: Option<u16>) -> recap::RecapContext {
        recap::RecapContext {
            style: self.style,
            sanitizer: self.sanitizer.clone(),
            log_dir: logs,
            advice: self.advice.clone(),
            lang: self.lang,
            columns,
            ..recap::RecapContext::default()
        }
    }

    /// For a nested session without output.
    pub(crate) fn silent_setup(&self) -> ReporterSetup {
        ReporterSetup {
            sinks: Vec::new(),
            dashboard: None,
            sanitizer: Sanitizer::new(&[]),
            style: self.style,
            lang: self.lang,
            advice: self.advice.clone(),
        }
    }
}

fn handle_engine_message(reporter: &mut Reporter, message: EngineMessage) {
    let (event, done) = match message {
        EngineMessage::Event(event, done) => (event, done),
        EngineMessage::SyncLogs(done) => return send_reply(done, reporter.sync_logs().map_err(|error| error_chain(&error))),
        EngineMessage::CheckLogSpace(reply) => return send_reply(reply, reporter.has_disk_space()),
    };
    let mut event = event;
    reporter.complete_hint_commands(&mut event);
    let stored = reporter.handle_event(&event);
    if let Err(error) = &stored {
        tracing::warn!(%error, "log bytes could not be stored");
    }
    if let Some(done) = done {
        send_reply(done, stored.is_ok());
    }
}

/// The requester may have gone.
fn send_reply<T>(done: oneshot::Sender<T>, value: T) {
    if done.send(value).is_err() {
        tracing::debug!("the requester of an answer has gone");
    }
}
