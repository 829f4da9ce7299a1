//! When a frame is drawn, and when it needs a new snapshot of the run first. Pure; the event loop has the clock.

use std::time::Duration;

use super::app::RedrawPriority;
use super::feed::FeedMessage;

/// Maximum wait for input; then the terminal size is checked again.
pub(super) const MAX_WAIT: Duration = Duration::from_millis(250);

/// How many frames what is shown deserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FramePace {
    Normal,
    /// So many hosts that their samples come all the time, though each of them once a second.
    ManyHosts,
    /// The terminal is not focused, or the screen is frozen.
    Slow,
}

impl FramePace {
    pub(super) fn for_hosts(hosts: usize) -> FramePace {
        if hosts > MAX_HOSTS_AT_NORMAL_PACE { FramePace::ManyHosts } else { FramePace::Normal }
    }
}

/// More hosts than a first screen has panes for.
const MAX_HOSTS_AT_NORMAL_PACE: usize = 16;

/// Whether the model's snapshot of the run is up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SnapshotStatus {
    Current,
    /// Events came after it.
    Outdated,
    Requested,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameStep {
    pub(super) request_snapshot: bool,
    pub(super) draw: bool,
}

/// Collects what must be redrawn until the next frame.
pub(super) struct FramePacer {
    priority: RedrawPriority,
    snapshot: SnapshotStatus,
}

impl FramePacer {
    /// Draws the first frame at once.
    pub(super) fn new() -> FramePacer {
        FramePacer { priority: RedrawPriority::Input, snapshot: SnapshotStatus::Current }
    }

    pub(super) fn raise_to(&mut self, priority: RedrawPriority) {
        self.priority = self.priority.max(priority);
    }

    pub(super) fn note_message(&mut self, message: &FeedMessage) {
        match message {
            FeedMessage::Snapshot(_) => self.snapshot = SnapshotStatus::Current,
            FeedMessage::Event(_) | FeedMessage::Reset if self.snapshot == SnapshotStatus::Current => {
                self.snapshot = SnapshotStatus::Outdated
            }
            _ => {}
        }
    }

    /// How long to wait for input, given the time since the last frame.
    pub(super) fn wait(&self, pace: FramePace, since: Duration) -> Duration {
        // The snapshot wakes the loop.
        let waits_for_snapshot = self.snapshot == SnapshotStatus::Requested && self.priority < RedrawPriority::Input;
        if self.priority == RedrawPriority::None || waits_for_snapshot {
            return MAX_WAIT;
        }
        frame_interval(self.priority, pace).saturating_sub(since).min(MAX_WAIT)
    }

    /// Called with the time since the last frame. A frame waits for its snapshot, but a key is answered at once.
    pub(super) fn step(&mut self, pace: FramePace, since: Duration) -> FrameStep {
        if self.priority == RedrawPriority::None || since < frame_interval(self.priority, pace) {
            return FrameStep { request_snapshot: false, draw: false };
        }
        let request_snapshot = self.snapshot == SnapshotStatus::Outdated;
        if request_snapshot {
            self.snapshot = SnapshotStatus::Requested;
        }
        FrameStep { request_snapshot, draw: self.snapshot == SnapshotStatus::Current || self.priority == RedrawPriority::Input }
    }

    /// A frame was drawn; one that had an old snapshot is drawn again.
    pub(super) fn finish_frame(&mut self) {
        self.priority = if self.snapshot == SnapshotStatus::Current { RedrawPriority::None } else { RedrawPriority::Event };
    }
}

/// How long to collect changes before a frame: 10 frames a second for events, 2 for samples (1 for those of many hosts), no delay for
/// keys; one a second at the slow pace.
fn frame_interval(priority: RedrawPriority, pace: FramePace) -> Duration {
    Duration::from_millis(match (priority, pace) {
        (RedrawPriority::None, _) => 0,
        (RedrawPriority::Input, _) => 10,
        (RedrawPriority::Sample | RedrawPriority::Event, FramePace::Slow) => 1000,
        // With the time of the frame itself, one a second: a clock skips no second.
        (RedrawPriority::Sample, FramePace::ManyHosts) => 900,
        (RedrawPriority::Sample, FramePace::Normal) => 500,
        (RedrawPriority::Event, _) => 100,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, EventKind};
    use crate::report::RunSnapshot;

    const SECOND: Duration = Duration::from_secs(1);

    fn pacer_after(priority: RedrawPriority) -> FramePacer {
        let mut pacer = FramePacer::new();
        pacer.finish_frame();
        pacer.raise_to(priority);
        pacer
    }

    fn event() -> FeedMessage {
        FeedMessage::Event(Event { seq: 1, at: 1, kind: EventKind::Ready })
    }

    #[test]
    fn idle_dashboard_sleeps() {
        assert_eq!(pacer_after(RedrawPriority::None).wait(FramePace::Normal, SECOND), MAX_WAIT, "however long nothing was drawn");
        assert_eq!(pacer_after(RedrawPriority::Event).wait(FramePace::Normal, SECOND), Duration::ZERO);
        assert_eq!(pacer_after(RedrawPriority::Event).wait(FramePace::Normal, Duration::from_millis(40)), Duration::from_millis(60));
        assert_eq!(pacer_after(RedrawPriority::Sample).wait(FramePace::Normal, Duration::ZERO), MAX_WAIT);
    }

    #[test]
    fn unfocused_terminal_slows_frames_and_many_hosts_slow_samples() {
        assert_eq!(frame_interval(RedrawPriority::Event, FramePace::Slow), SECOND);
        assert_eq!(frame_interval(RedrawPriority::Input, FramePace::Slow), frame_interval(RedrawPriority::Input, FramePace::Normal));
        let millis = |priority, hosts| frame_interval(priority, FramePace::for_hosts(hosts)).as_millis();
        assert_eq!([16, 17].map(|hosts| millis(RedrawPriority::Sample, hosts)), [500, 900]);
        assert_eq!([16, 17].map(|hosts| millis(RedrawPriority::Event, hosts)), [100, 100]);
    }

    #[test]
    fn frame_of_events_waits_for_one_snapshot() {
        let mut pacer = pacer_after(RedrawPriority::None);
        (0..3).for_each(|_| pacer.note_message(&event()));
        pacer.raise_to(RedrawPriority::Event);
        assert_eq!(pacer.step(FramePace::Normal, Duration::from_millis(99)), FrameStep { request_snapshot: false, draw: false });
        assert_eq!(pacer.step(FramePace::Normal, SECOND), FrameStep { request_snapshot: true, draw: false });
        pacer.note_message(&event());
        assert_eq!(pacer.step(FramePace::Normal, SECOND), FrameStep { request_snapshot: false, draw: false }, "one request at a time");
        assert_eq!(pacer.wait(FramePace::Normal, SECOND), MAX_WAIT, "the snapshot wakes the loop");
        pacer.note_message(&FeedMessage::Snapshot(RunSnapshot::default()));
        assert_eq!(pacer.step(FramePace::Normal, SECOND), FrameStep { request_snapshot: false, draw: true });
        pacer.finish_frame();
        assert_eq!(pacer.step(FramePace::Normal, SECOND), FrameStep { request_snapshot: false, draw: false });
    }

    #[test]
    fn key_is_handled_before_the_snapshot_arrives() {
        let mut pacer = pacer_after(RedrawPriority::Input);
        pacer.note_message(&event());
        assert_eq!(pacer.step(FramePace::Normal, SECOND), FrameStep { request_snapshot: true, draw: true });
        pacer.finish_frame();
        pacer.note_message(&FeedMessage::Snapshot(RunSnapshot::default()));
        assert_eq!(
            pacer.step(FramePace::Normal, SECOND),
            FrameStep { request_snapshot: false, draw: true },
            "the frame with the snapshot follows"
        );
    }
}
