//! How a check ended.

use serde::{Deserialize, Serialize};

/// How a check ended; the worse the greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// It could not be looked at, or there is nothing to look at.
    Skipped,
    /// It was looked at and is in order.
    Pass,
    /// It may cost the night.
    Warn,
    /// The job cannot run like this.
    Fail,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Pass => "pass",
            Level::Skipped => "skipped",
            Level::Warn => "warn",
            Level::Fail => "fail",
        }
    }
}
