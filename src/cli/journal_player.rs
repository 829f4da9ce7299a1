//! Plays a journal to the dashboard, at the pace that the person asks for.

use std::time::Duration;

use crate::cli::value_parsers::SPEED_RANGE;
use crate::event::controls::UserAction;
use crate::event::{Event, UnixMillis};
use crate::report::replay_source::LogTextLoader;
use crate::tui::feed::{FeedMessage, FeedSender, ReplayClock};

/// What has come due is told no more often than this.
const MIN_TICK: Duration = Duration::from_millis(100);

/// A journal on its way to the dashboard.
pub(super) struct JournalPlayer<'a> {
    events: &'a [Event],
    logs: LogTextLoader,
    next_event: usize,
    now: UnixMillis,
    clock: ReplayClock,
    pub(super) feed_sender: FeedSender,
    /// Milliseconds that were too few to count.
    fractional_ms: f64,
}

impl<'a> JournalPlayer<'a> {
    pub(super) fn new(events: &'a [Event], logs: LogTextLoader, mouth: FeedSender, speed: f64) -> Self {
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

    pub(super) fn next_wakeup(&self) -> Option<Duration> {
        time_until_next_event(self.clock, self.now, self.fractional_ms, self.events.get(self.next_event).map(|event| event.at))
    }

    pub(super) fn advance(&mut self, by: Duration) {
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
    pub(super) fn handle_action(&mut self, ask: UserAction) -> bool {
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

/// How long until there is something to tell: the next event, or a second more on the clock. Nothing comes due while it is paused, so that a
/// screen on which nothing changes costs nothing.
fn time_until_next_event(clock: ReplayClock, now: UnixMillis, rest: f64, next: Option<UnixMillis>) -> Option<Duration> {
    if clock.paused {
        return None;
    }
    let second = (now.div_euclid(1000) + 1) * 1000;
    let left = next.map_or(second, |next| next.min(second)).min(clock.end) - now;
    // At most a second.
    #[expect(clippy::cast_precision_loss, reason = "at most a second of milliseconds")]
    let seconds = (left as f64 - rest) / 1000.0 / clock.speed;
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(MIN_TICK).max(MIN_TICK))
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
