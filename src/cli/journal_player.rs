//! Plays a journal to the dashboard at the chosen speed.

use std::time::Duration;

use crate::cli::value_parsers::SPEED_RANGE;
use crate::event::controls::UserAction;
use crate::event::{Event, EventKind, UnixMillis};
use crate::report::replay_source::LogTextLoader;
use crate::report::{ReportSink as _, RunFold};
use crate::tui::feed::{FeedMessage, FeedSender, ReplayClock};

/// Events are sent in batches, at most one per interval.
const MIN_TICK: Duration = Duration::from_millis(100);

pub(super) struct JournalPlayer<'a> {
    events: &'a [Event],
    logs: LogTextLoader,
    next_event: usize,
    now: UnixMillis,
    clock: ReplayClock,
    pub(super) feed_sender: FeedSender,
    fold: RunFold,
    /// Playback time that is not yet a whole millisecond.
    fractional_ms: f64,
}

impl<'a> JournalPlayer<'a> {
    pub(super) fn new(events: &'a [Event], logs: LogTextLoader, feed_sender: FeedSender, speed: f64) -> Self {
        let start = events.first().map_or(0, |event| event.at);
        let end = events.last().map_or(0, |event| event.at);
        let player = JournalPlayer {
            events,
            logs,
            next_event: 0,
            now: start,
            clock: ReplayClock { paused: false, speed, start, end },
            feed_sender,
            fold: RunFold::default(),
            fractional_ms: 0.0,
        };
        player.send_clock();
        player
    }

    fn send_clock(&self) {
        self.feed_sender.send(FeedMessage::ReplayClock(self.clock));
    }

    /// Sends the event with its log text, which the journal only references.
    fn send_event(&mut self, event: &Event) {
        for event in self.logs.fill_log_text(event) {
            self.fold.apply(&event);
            if self.feed_sender.on_event(&event, self.fold.state()).is_err() {
                tracing::debug!("the dashboard has ended");
            }
        }
    }

    /// Answers the dashboard if it waits for a snapshot.
    pub(super) fn send_wanted_snapshot(&mut self) {
        if self.feed_sender.wants_snapshot() {
            self.feed_sender.on_snapshot(self.fold.snapshot());
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Duration> {
        time_until_next_event(self.clock, self.now, self.fractional_ms, self.events.get(self.next_event).map(|event| event.at))
    }

    pub(super) fn advance(&mut self, by: Duration) {
        if self.clock.paused {
            return;
        }
        self.fractional_ms += by.as_secs_f64() * 1000.0 * self.clock.speed;
        // Less than a day of milliseconds.
        let whole_ms = self.fractional_ms as UnixMillis;
        self.fractional_ms -= whole_ms as f64;
        self.play_until(self.now + whole_ms);
        if self.now >= self.clock.end {
            self.clock.paused = true;
            self.send_clock();
        }
    }

    /// Sends every event up to this time.
    fn play_until(&mut self, to: UnixMillis) {
        self.now = to.min(self.clock.end);
        while let Some(event) = self.events.get(self.next_event).filter(|event| event.at <= self.now) {
            self.send_event(event);
            self.next_event += 1;
        }
        self.feed_sender.send(FeedMessage::Tick(self.now));
    }

    /// Returns `false` when the user leaves.
    pub(super) fn handle_action(&mut self, action: UserAction) -> bool {
        match action {
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
            UserAction::ScaleSpeed(factor) => self.clock.speed = (self.clock.speed * factor).clamp(SPEED_RANGE.0, SPEED_RANGE.1),
            UserAction::Seek(by) => self.seek((self.now + by).clamp(self.clock.start, self.clock.end)),
            UserAction::SeekFirstFailure => match first_failure_at(self.events) {
                Some(at) => self.seek(at),
                None => {
                    self.feed_sender.send(FeedMessage::ShowToast("nothing failed in this run".to_owned()));
                }
            },
            UserAction::Detach | UserAction::Interrupt | UserAction::Hangup | UserAction::LeaveNow | UserAction::DashboardPanicked => {
                return false;
            }
            // A replay has no live run to control.
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
            self.feed_sender.reset();
            self.fold = RunFold::default();
            self.logs.restart();
            self.next_event = 0;
        }
        self.fractional_ms = 0.0;
        self.play_until(to);
    }
}

/// When the first process of the run failed by itself.
fn first_failure_at(events: &[Event]) -> Option<UnixMillis> {
    let is_failure = |event: &&Event| match &event.kind {
        EventKind::RankExited { exit, stopped, .. } => !exit.is_success() && *stopped != Some(true),
        EventKind::StepFailed { .. } | EventKind::Culprit { .. } => true,
        _ => false,
    };
    events.iter().find(is_failure).map(|event| event.at)
}

/// Time until the next event or the next full second, whichever comes first. `None` while paused: a screen that does not change costs nothing.
fn time_until_next_event(clock: ReplayClock, now: UnixMillis, fractional_ms: f64, next: Option<UnixMillis>) -> Option<Duration> {
    if clock.paused {
        return None;
    }
    let second = (now.div_euclid(1000) + 1) * 1000;
    let remaining = next.map_or(second, |next| next.min(second)).min(clock.end) - now;
    let seconds = (remaining as f64 - fractional_ms) / 1000.0 / clock.speed;
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(MIN_TICK).max(MIN_TICK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_speed_keys_all_count() {
        let (feed_sender, _feed_receiver) = crate::tui::feed::feed_channel().expect("a feed");
        let mut player = JournalPlayer::new(&[], LogTextLoader::new(None), feed_sender, 1.0);
        [2.0, 2.0, 2.0, 0.5].into_iter().for_each(|factor| assert!(player.handle_action(UserAction::ScaleSpeed(factor))));
        assert!((player.clock.speed - 4.0).abs() < f64::EPSILON, "{}", player.clock.speed);
        (0..20).for_each(|_| assert!(player.handle_action(UserAction::ScaleSpeed(0.5))));
        assert!((player.clock.speed - SPEED_RANGE.0).abs() < f64::EPSILON, "{}", player.clock.speed);
    }

    #[test]
    fn first_failure_is_not_caused_by_a_stop() {
        let exit = |at, code, stopped| Event {
            seq: 0,
            at,
            kind: EventKind::RankExited {
                host: 0,
                rank: 3,
                restart: 0,
                exit: crate::event::Exit::Code(code),
                ended_at: at,
                uncertainty: 0,
                stopped,
            },
        };
        // The emitter and the journal's reader mark every exit of a rank.
        let own = Some(false);
        assert_eq!(first_failure_at(&[exit(10, 0, own), exit(20, 1, Some(true)), exit(30, 7, own), exit(40, 1, own)]), Some(30));
        assert_eq!(first_failure_at(&[exit(10, 0, own)]), None);
    }

    #[test]
    fn player_sleeps_until_next_event() {
        let clock = ReplayClock { paused: false, speed: 1.0, start: 0, end: 60_000 };
        let ms = |n| Some(Duration::from_millis(n));
        assert_eq!(time_until_next_event(clock, 2_000, 0.0, None), ms(1_000), "the next full second");
        assert_eq!(time_until_next_event(clock, 2_300, 0.0, Some(2_500)), ms(200));
        assert_eq!(time_until_next_event(clock, 2_300, 0.0, Some(2_301)), ms(100), "events closer than a tick are sent together");
        assert_eq!(time_until_next_event(clock, 59_900, 0.0, Some(90_000)), ms(100));
        assert_eq!(time_until_next_event(ReplayClock { speed: 0.5, ..clock }, 2_000, 0.0, None), ms(2_000));
        assert_eq!(time_until_next_event(ReplayClock { speed: 1000.0, ..clock }, 2_000, 0.0, None), ms(100));
        assert_eq!(time_until_next_event(ReplayClock { paused: true, ..clock }, 2_000, 0.0, Some(2_001)), None);
    }
}
