//! What is remembered so that a hang can be told from a healthy silence: when the ranks wrote, and what power the GPUs drew at work.
//!
//! Uses `event` and `text`. Changed by `RunState::apply` alone; `diagnose/hang` judges.

use super::text;
use crate::event::{Hang, Millis};

/// How many evidence lines, hosts and ranks of a hang are kept.
const KEPT: usize = 1 << 16;
/// How many evidence lines are kept.
const LINES: usize = 8;
/// How much one look moves the mean of a GPU's power.
const WEIGHT: f32 = 0.2;

/// When the ranks wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// When anything was written last; 0: nothing was.
    pub spoke: Millis,
    /// The longest silence that ended by itself, milliseconds.
    pub longest: i64,
    /// Since when it is heard: what was written before came late.
    heard: Millis,
}

impl Pace {
    pub(super) fn wrote(&mut self, at: Millis) {
        if self.spoke > 0 {
            self.longest = self.longest.max(at - self.spoke.max(self.heard));
        }
        self.spoke = at;
    }

    /// A host answers, or answers again.
    pub(super) fn hears(&mut self, at: Millis) {
        self.heard = at;
    }
}

/// The power of one GPU, percent of its limit.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    mean: Option<f32>,
    /// The highest mean so far: what it draws when it works.
    pub usual: Option<f32>,
}

impl Load {
    pub(super) fn look(&mut self, power: Option<f32>) {
        let Some(power) = power.filter(|power| power.is_finite()) else { return };
        let mean = self.mean.map_or(power, |mean| mean + (power - mean) * WEIGHT);
        self.mean = Some(mean);
        self.usual = Some(self.usual.map_or(mean, |usual| usual.max(mean)));
    }
}

/// A hang of a length that can be kept.
pub(super) fn bounded(hang: &Hang) -> Hang {
    let few = |list: &[u32]| list.iter().take(KEPT).copied().collect();
    let evidence = hang.evidence.iter().take(LINES).map(|line| text::bounded(line)).collect();
    Hang { hosts: few(&hang.hosts), ranks: few(&hang.ranks), evidence, ..hang.clone() }
}
