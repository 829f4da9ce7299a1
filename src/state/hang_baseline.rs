//! The data that distinguishes a hang from a healthy silence: when the ranks wrote, and what power the GPUs drew at work.
//!
//! Changed by `RunState::apply` alone; `diagnose/hang_detector` judges.

use super::bounded_text;
use crate::event::{Hang, UnixMillis};

/// How many hosts and ranks of a hang are kept.
const MAX_INDEXES: usize = 1 << 16;
/// How many evidence lines are kept.
const MAX_EVIDENCE_LINES: usize = 8;
/// How much one look moves the mean of a GPU's power.
const MEAN_WEIGHT: f32 = 0.2;

/// When the ranks wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutputActivity {
    /// When anything was written last; 0: nothing was.
    pub last_output_at: UnixMillis,
    /// The longest silence that ended by itself, milliseconds.
    pub longest_silence: i64,
    /// Since when output arrives as it is written: earlier output came late.
    connected_since: UnixMillis,
}

impl OutputActivity {
    pub(super) fn record_output(&mut self, at: UnixMillis) {
        if self.last_output_at > 0 {
            self.longest_silence = self.longest_silence.max(at - self.last_output_at.max(self.connected_since));
        }
        self.last_output_at = at;
    }

    /// A host answers, or answers again.
    pub(super) fn record_connected(&mut self, at: UnixMillis) {
        self.connected_since = at;
    }
}

/// The power of one GPU, percent of its limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PowerBaseline {
    mean: Option<f32>,
    /// The highest mean so far: what it draws when it works.
    pub peak_mean: Option<f32>,
}

impl PowerBaseline {
    pub(super) fn record_power(&mut self, power: Option<f32>) {
        let Some(power) = power.filter(|power| power.is_finite()) else { return };
        let mean = self.mean.map_or(power, |mean| mean + (power - mean) * MEAN_WEIGHT);
        self.mean = Some(mean);
        self.peak_mean = Some(self.peak_mean.map_or(mean, |usual| usual.max(mean)));
    }
}

/// A hang of a length that can be kept.
pub(super) fn truncate_hang(hang: &Hang) -> Hang {
    let few = |list: &[u32]| list.iter().take(MAX_INDEXES).copied().collect();
    let evidence = hang.evidence.iter().take(MAX_EVIDENCE_LINES).map(|line| bounded_text::keep_beginning(line)).collect();
    Hang { hosts: few(&hang.hosts), ranks: few(&hang.ranks), evidence, ..hang.clone() }
}
