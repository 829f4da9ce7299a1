//! Looks out for a run that hangs while it is followed: tells it as an event, and stops the gang where the inventory says so.

use tokio::sync::mpsc;

use crate::diagnose::hang_detector::{HangSettings, HangVerdict, detect_hang, is_same_hang};
use crate::engine::emitter::Emitter;
use crate::event::{EventKind, Hang, RunControl, UnixMillis};
use crate::plan::protocol::run_record::RunRecord;
use crate::report::finding;
use crate::state::RunState;
use crate::text::sanitize::Sanitizer;

/// How often it is judged, milliseconds.
const CHECK_INTERVAL_MS: i64 = 1000;
/// Who looks again after so long was asleep, and knows no silence of that time.
const SUSPEND_GAP_MS: i64 = 20_000;

/// One who looks out.
pub(crate) struct HangWatchdog {
    config: HangSettings,
    emitter: Emitter,
    /// Who is told to stop the gang; none where it is only warned of.
    stop_sender: Option<mpsc::WeakSender<RunControl>>,
    last_check: UnixMillis,
    observed_since: UnixMillis,
}

impl HangWatchdog {
    /// Looks out from now on; `stop_sender`: who is told to stop a gang that hangs.
    pub(crate) fn new(
        config: HangSettings,
        emitter: Emitter,
        stop_sender: Option<mpsc::WeakSender<RunControl>>,
        now: UnixMillis,
    ) -> HangWatchdog {
        HangWatchdog { config, emitter, stop_sender, last_check: now, observed_since: now }
    }

    /// Looks at what is known; `deaf`: what the ranks write is not taken in.
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
            (HangVerdict::Healthy, Some((_, told))) if made_progress(state, *told) => self.emitter.send(EventKind::HangEnded),
            _ => {}
        }
    }

    fn report_hang(&mut self, state: &RunState, hang: Hang, now: UnixMillis) {
        // Who shows it masks what must not be shown.
        let why = format!("the run seems to hang: {}", finding::describe_hang(&hang, now, state, &Sanitizer::default()));
        self.emitter.send(EventKind::Hang(hang));
        let Some(orders) = self.stop_sender.take().and_then(|orders| orders.upgrade()) else { return };
        if orders.try_send(RunControl::Stop { reason: why }).is_err() {
            tracing::debug!("nobody follows the run any more");
        }
    }
}

/// Whether anything of the run has moved since `told`: a host that was lost in between, or a look that saw a GPU rest, is no all-clear.
fn made_progress(state: &RunState, since: UnixMillis) -> bool {
    let later = |at: Option<UnixMillis>| at.is_some_and(|at| at > since);
    state.output_activity.last_output_at > since
        || later(state.ready_at)
        || state.ranks.values().any(|rank| later(rank.started_at) || rank.exit.is_some() && rank.ended_at > since)
}

/// What a run says of its own hangs.
pub(crate) fn hang_config(file: &RunRecord) -> (HangSettings, bool) {
    let after = file.hang_after_ms.map(|after| i64::try_from(after).unwrap_or(i64::MAX));
    (HangSettings { hang_after: after, has_ready_line: file.ready_when.is_some() }, file.stop_hung)
}
