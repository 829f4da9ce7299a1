//! The ranks of a gang.

use serde::{Deserialize, Serialize};

/// One rank as planned; under a rendezvous that hands out ranks itself the host is where it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankInfo {
    pub rank: u32,
    /// The index of its host.
    pub host: u32,
    /// Its number on that host.
    pub local_rank: u32,
}
