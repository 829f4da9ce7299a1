//! A run that seems to hang.

use serde::{Deserialize, Serialize};

use crate::model::UnixMillis;

/// The symptom of a hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HangSymptom {
    /// Ranks did not arrive where the others wait for them.
    #[serde(alias = "missing")]
    RankMissing,
    /// Ranks ended and the others wait.
    #[serde(alias = "gone")]
    RankExited,
    /// No rank writes, and the GPUs report load but draw little power.
    Spinning,
    /// No rank writes, and the GPUs are idle or unknown.
    Silent,
    /// The run is not ready in the usual time.
    #[serde(alias = "late")]
    NotReady,
}

/// A run seems to hang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hang {
    #[serde(alias = "sign")]
    pub symptom: HangSymptom,
    /// Indexes of the hosts concerned; empty: all.
    pub hosts: Vec<u32>,
    /// Global ranks concerned; empty: all ranks of `hosts`.
    pub ranks: Vec<u32>,
    pub since: UnixMillis,
    /// One line per observation.
    pub evidence: Vec<String>,
}
