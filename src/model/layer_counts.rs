//! How far the pull of an image is.

use serde::{Deserialize, Serialize};

/// Layers of an image: `complete <= downloaded <= layers`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerCounts {
    /// How many are known so far.
    pub layers: u32,
    /// How many are on the host, unpacked or not.
    pub downloaded: u32,
    /// How many are unpacked, or were there before.
    pub complete: u32,
}

impl LayerCounts {
    /// Whether the numbers can be those of an image.
    pub(crate) fn is_valid(self) -> bool {
        self.complete <= self.downloaded && self.downloaded <= self.layers
    }
}
