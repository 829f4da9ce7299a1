#![expect(clippy::disallowed_methods, reason = "a journal is played by the clock")]
//! `replay`: plays the journal of a past run to the dashboard, at the pace that the person asks for.

use std::time::{Duration, Instant};

use crate::cli::args::ReplayArgs;
use crate::cli::clipboard::LocalClipboard;
use crate::cli::dashboard::LogReader;
use crate::cli::exit::CliError;
use crate::cli::local_env::{LocalEnv, dashboard_settings, print_stderr, terminal_columns, use_color};
use crate::cli::value_parsers::SPEED_RANGE;
use crate::event::{Event, Outcome, UnixMillis};
use crate::lifecycle::reporter_task::error_chain;
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::report::journal::JOURNAL_FILE;
use crate::report::replay_source::{self, LogTextLoader, ReplayData};
use crate::report::runs::{RunDir, list_runs, open_logs};
use crate::report::style::TextStyle;
use crate::report::{ReportSink as _, recap};
use crate::state::RunState;
use crate::text::sanitize::Sanitizer;
use crate::tui::feed::{Capabilities, DashboardRole, FeedMessage, FeedSender, ReplayClock, UserAction};

/// What has come due is told no more often than this.
const MIN_TICK: Duration = Duration::from_millis(100);

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &ReplayArgs) -> Result<Outcome, CliError> {
    let laptop = LocalEnv::read()?;
    let dir = find_run(&laptop, &args.run)?;
    let ReplayData { events, problems: trouble } = read_journal(&dir)?;
    let look = dashboard_settings(&args.dashboard, args.color, Vec::new())?;
    let mut signals = StopController::listen(InterruptPolicy::Detach, print_stderr).map_err(anyhow::Error::from)?;
    let open = crate::tui::open_dashboard(DashboardRole::Replay, Sanitizer::default(), look);
    let open = open.map_err(|e| CliError::Usage(format!("the dashboard could not take the terminal: {e}")))?;
    let (mouth, mut asks, ended) = (open.sender, open.actions, open.ended);
    let mut player = JournalPlayer::new(&events, LogTextLoader::new(open_logs(dir.path()).ok()), mouth, args.speed);
    player.feed_sender.send(FeedMessage::Capabilities(Capabilities::view_only(DashboardRole::Replay)));
    player.feed_sender.send(FeedMessage::StoredLogs(Box::new(LogReader(dir.path().to_owned()))));
    player.feed_sender.send(FeedMessage::Clipboard(Box::new(LocalClipboard::new(&laptop.state_dir))));
    player.feed_sender.send(FeedMessage::UtcOffset(jiff::Zoned::now().offset().seconds().into()));
    if !trouble.is_empty() {
        player.feed_sender.send(FeedMessage::ShowToast(trouble.clone()));
    }
    let mut last = Instant::now();
    loop {
        let ask = tokio::select! {
            ask = asks.recv() => match ask {
                Some(ask) => Some(ask),
                None => break,
            },
            _ = signals.controls.recv() => break,
            () = signals.leave_token.cancelled() => break,
            () = sleep_or_wait_forever(player.next_wakeup()) => None,
        };
        player.advance(last.elapsed());
        last = Instant::now();
        if ask.is_some_and(|ask| !player.handle_action(ask)) {
            break;
        }
    }
    let mut state = RunState::new();
    player.feed_sender.finish(&state).map_err(anyhow::Error::from)?;
    if tokio::time::timeout(Duration::from_secs(5), ended).await.is_err() {
        tracing::debug!("the dashboard did not end");
    }
    if !trouble.is_empty() {
        print_stderr(&trouble);
    }
    events.iter().for_each(|event| state.apply(event));
    let logs = Some(dir.logs_dir().display().to_string());
    let style = TextStyle { color: use_color(args.color) };
    let context =
        recap::RecapContext { style, log_dir: logs, tail_lines: 20, columns: terminal_columns(), ..recap::RecapContext::default() };
    // A recap ends with commands to go on with; here there is nothing to go on with.
    let onward = |line: &&String| ["  next ", "  end it "].iter().any(|label| line.starts_with(label));
    recap::render_recap(&state, &context).iter().filter(|line| !onward(line)).for_each(|line| print_stderr(line));
    Ok(Outcome::Ok)
}

/// Waits so long; without an end where nothing will come due.
async fn sleep_or_wait_forever(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// How long until there is something to tell: the next event, or a second more on the clock. Nothing comes due while it is paused, so that a
/// screen on which nothing changes costs nothing.
fn time_until_next_event(pace: ReplayClock, now: UnixMillis, rest: f64, next: Option<UnixMillis>) -> Option<Duration> {
    if pace.paused {
        return None;
    }
    let second = (now.div_euclid(1000) + 1) * 1000;
    let left = next.map_or(second, |next| next.min(second)).min(pace.end) - now;
    // At most a second.
    #[expect(clippy::cast_precision_loss, reason = "at most a second of milliseconds")]
    let seconds = (left as f64 - rest) / 1000.0 / pace.speed;
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(MIN_TICK).max(MIN_TICK))
}

/// The folder of the run that is named, or that alone begins so.
fn find_run(laptop: &LocalEnv, name: &str) -> Result<RunDir, CliError> {
    let cannot = |e: std::io::Error| CliError::Usage(format!("{}: {e}", laptop.state_dir.display()));
    let runs: Vec<String> = list_runs(&laptop.state_dir).map_err(cannot)?.into_iter().map(|run| run.run).collect();
    let begin: Vec<&String> = runs.iter().filter(|run| run.starts_with(name)).collect();
    let run = match (runs.iter().find(|run| *run == name), &begin[..]) {
        (Some(run), _) => run,
        (None, [one]) => one,
        (None, []) => return Err(CliError::Usage(format!("{name}: no such run on this laptop\n    help: `orchestrate runs` lists them"))),
        (None, several) => {
            let all: Vec<&str> = several.iter().map(|run| run.as_str()).collect();
            return Err(CliError::Usage(format!("{name}: several runs begin so: {}", all.join(" "))));
        }
    };
    RunDir::open(&laptop.state_dir, run).map_err(cannot)
}

/// The events of the run, and what could not be read.
fn read_journal(dir: &RunDir) -> Result<ReplayData, CliError> {
    let past = replay_source::load_replay(dir.path()).map_err(|e| CliError::Usage(error_chain(&e)))?;
    if past.events.is_empty() {
        let path = dir.path().join(JOURNAL_FILE);
        return Err(CliError::Usage(format!("{}: nothing happened in it{}", path.display(), past.problems)));
    }
    Ok(past)
}

/// A journal on its way to the dashboard.
struct JournalPlayer<'a> {
    events: &'a [Event],
    logs: LogTextLoader,
    next_event: usize,
    now: UnixMillis,
    clock: ReplayClock,
    feed_sender: FeedSender,
    /// Milliseconds that were too few to count.
    fractional_ms: f64,
}

impl<'a> JournalPlayer<'a> {
    fn new(events: &'a [Event], logs: LogTextLoader, mouth: FeedSender, speed: f64) -> Self {
        let from = events.first().map_or(0, |event| event.at);
        let to = events.last().map_or(0, |event| event.at);
        let player = JournalPlayer {
            events,
            logs,
            next_event: 0,
            now: from,
            clock: ReplayClock { paused: false, speed, start: from, end: to },
            feed_sender: mouth,
            fractional_ms: 0.0,
        };
        player.send_clock();
        player
    }

    fn send_clock(&self) {
        self.feed_sender.send(FeedMessage::ReplayClock(self.clock));
    }

    /// As the run told it: with the text of its logs.
    fn send_event(&mut self, event: &Event) {
        for event in self.logs.fill_log_text(event) {
            self.feed_sender.send(FeedMessage::Event(event));
        }
    }

    /// See [`next_wakeup`].
    fn next_wakeup(&self) -> Option<Duration> {
        time_until_next_event(self.clock, self.now, self.fractional_ms, self.events.get(self.next_event).map(|event| event.at))
    }

    /// Time goes by.
    fn advance(&mut self, by: Duration) {
        if self.clock.paused {
            return;
        }
        self.fractional_ms += by.as_secs_f64() * 1000.0 * self.clock.speed;
        // Less than a day of milliseconds.
        #[expect(clippy::cast_possible_truncation, reason = "whole milliseconds are meant")]
        let whole = self.fractional_ms as UnixMillis;
        #[expect(clippy::cast_precision_loss, reason = "less than a day of milliseconds")]
        let counted = whole as f64;
        self.fractional_ms -= counted;
        self.play_until(self.now + whole);
        if self.now >= self.clock.end {
            self.clock.paused = true;
            self.send_clock();
        }
    }

    /// Tells all that happened until then.
    fn play_until(&mut self, to: UnixMillis) {
        self.now = to.min(self.clock.end);
        while let Some(event) = self.events.get(self.next_event).filter(|event| event.at <= self.now) {
            self.send_event(event);
            self.next_event += 1;
        }
        self.feed_sender.send(FeedMessage::Tick(self.now));
    }

    /// Does what the person asks; `false`: they leave.
    fn handle_action(&mut self, ask: UserAction) -> bool {
        match ask {
            UserAction::TogglePause if self.now >= self.clock.end => {
                self.seek(self.clock.start);
                self.clock.paused = false;
            }
            UserAction::TogglePause => self.clock.paused = !self.clock.paused,
            UserAction::StepEvent => {
                self.clock.paused = true;
                if let Some(event) = self.events.get(self.next_event) {
                    self.send_event(event);
                    self.now = event.at;
                    self.next_event += 1;
                    self.feed_sender.send(FeedMessage::Tick(self.now));
                }
            }
            UserAction::ScaleSpeed(times) => self.clock.speed = (self.clock.speed * times).clamp(SPEED_RANGE.0, SPEED_RANGE.1),
            UserAction::Seek(by) => self.seek((self.now + by).clamp(self.clock.start, self.clock.end)),
            UserAction::Detach | UserAction::Interrupt | UserAction::Hangup | UserAction::LeaveNow | UserAction::DashboardPanicked => {
                return false;
            }
            // There is no run to ask it of.
            UserAction::Start
            | UserAction::Stop
            | UserAction::Kill
            | UserAction::TearDown
            | UserAction::Restart
            | UserAction::QueryNvidiaSmi(_)
            | UserAction::OpenShell(..) => {}
        }
        self.send_clock();
        true
    }

    fn seek(&mut self, to: UnixMillis) {
        if to < self.now {
            self.feed_sender.send(FeedMessage::Reset);
            self.logs.restart();
            self.next_event = 0;
        }
        self.fractional_ms = 0.0;
        self.play_until(to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_speed_keys_all_count() {
        let (mouth, _ear) = crate::tui::feed::feed_channel().expect("a feed");
        let mut player = JournalPlayer::new(&[], LogTextLoader::new(None), mouth, 1.0);
        [2.0, 2.0, 2.0, 0.5].into_iter().for_each(|times| assert!(player.handle_action(UserAction::ScaleSpeed(times))));
        assert!((player.clock.speed - 4.0).abs() < f64::EPSILON, "{}", player.clock.speed);
        (0..20).for_each(|_| assert!(player.handle_action(UserAction::ScaleSpeed(0.5))));
        assert!((player.clock.speed - SPEED_RANGE.0).abs() < f64::EPSILON, "{}", player.clock.speed);
    }

    #[test]
    fn player_sleeps_until_next_event() {
        let pace = ReplayClock { paused: false, speed: 1.0, start: 0, end: 60_000 };
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(time_until_next_event(pace, 2_000, 0.0, None), ms(1_000), "a second more on the clock");
        assert_eq!(time_until_next_event(pace, 2_300, 0.0, Some(2_500)), ms(200));
        assert_eq!(time_until_next_event(pace, 2_300, 0.0, Some(2_301)), ms(100), "what comes together is told together");
        assert_eq!(time_until_next_event(pace, 59_900, 0.0, Some(90_000)), ms(100));
        assert_eq!(time_until_next_event(ReplayClock { speed: 0.5, ..pace }, 2_000, 0.0, None), ms(2_000));
        assert_eq!(time_until_next_event(ReplayClock { speed: 1000.0, ..pace }, 2_000, 0.0, None), ms(100));
        assert_eq!(time_until_next_event(ReplayClock { paused: true, ..pace }, 2_000, 0.0, Some(2_001)), None);
    }
}
