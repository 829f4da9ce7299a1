//! Detects a hang while a run is followed: sends an event, and stops the gang if the inventory asks for it.

use tokio::sync::mpsc;

use crate::diagnose::hang_detector::{HangSettings, HangVerdict, detect_hang, is_same_hang};
use crate::engine::emitter::Emitter;
use crate::event::{EventKind, Hang, RunControl, UnixMillis};
use crate::plan::protocol::run_record::RunRecord;
use crate::report::finding;
use crate::state::RunState;
use crate::text::sanitize::Sanitizer;

const CHECK_INTERVAL_MS: i64 = 1000;
/// After a longer gap the laptop was suspended: silence during the gap does not count.
const SUSPEND_GAP_MS: i64 = 20_000;

pub(crate) struct HangWatchdog {
    config: HangSettings,
    emitter: Emitter,
    /// `None`: only warn.
    stop_sender: Option<mpsc::WeakSender<RunControl>>,
    last_check: UnixMillis,
    observed_since: UnixMillis,
}

impl HangWatchdog {
    pub(crate) fn new(
        config: HangSettings,
        emitter: Emitter,
        stop_sender: Option<mpsc::WeakSender<RunControl>>,
        now: UnixMillis,
    ) -> HangWatchdog {
        HangWatchdog { config, emitter, stop_sender, last_check: now, observed_since: now }
    }

    /// `logs_paused`: no log bytes are stored, so silence means nothing.
    pub(crate) fn check(&mut self, state: &RunState, now: UnixMillis, logs_paused: bool) {
        if logs_paused {
            (self.last_check, self.observed_since) = (now, now);
            return;
        }
        if now - self.last_check < CHECK_INTERVAL_MS && now >= self.last_check {
            return;
        }
        if now - self.last_check > SUSPEND_GAP_MS || now < self.last_check {
            self.observed_since = now;
        }
        self.last_check = now;
        match (detect_hang(state, self.config, self.observed_since, now), &state.hang) {
            (HangVerdict::Hanging(hang), old) if old.as_ref().is_none_or(|(old, _)| !is_same_hang(old, &hang)) => {
                self.report_hang(state, hang, now)
            }
            (HangVerdict::Healthy, Some((_, since))) if made_progress(state, *since) => self.emitter.send(EventKind::HangEnded),
            _ => {}
        }
    }

    fn report_hang(&mut self, state: &RunState, hang: Hang, now: UnixMillis) {
        // The outputs sanitize this text.
        let reason = format!("the run seems to hang: {}", finding::describe_hang(&hang, now, state, &Sanitizer::default()));
        self.emitter.send(EventKind::Hang(hang));
        let Some(controls) = self.stop_sender.take().and_then(|controls| controls.upgrade()) else { return };
        if controls.try_send(RunControl::Stop { reason }).is_err() {
            tracing::debug!("the run is no longer followed");
        }
    }
}

/// Whether a rank wrote, started or ended since then. A lost host or an idle GPU is not progress.
fn made_progress(state: &RunState, since: UnixMillis) -> bool {
    let later = |at: Option<UnixMillis>| at.is_some_and(|at| at > since);
    state.output_activity.last_output_at > since
        || later(state.ready_at)
        || state.ranks.values().any(|rank| later(rank.started_at) || rank.exit.is_some() && rank.ended_at > since)
}

/// The hang settings of a run, and whether a hang stops it.
pub(crate) fn hang_config(record: &RunRecord) -> (HangSettings, bool) {
    let after = record.hang_after_ms.map(|after| i64::try_from(after).unwrap_or(i64::MAX));
    (HangSettings { hang_after: after, has_ready_line: record.ready_when.is_some() }, record.stop_hung)
}
