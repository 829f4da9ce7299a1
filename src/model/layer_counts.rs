//! How far the pull of an image is.

use std::cmp::Ordering;

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

    /// Orders pulls by the share that is unpacked, equal ones by the share that is downloaded.
    pub(crate) fn cmp_progress(self, other: LayerCounts) -> Ordering {
        let cross = |part: fn(LayerCounts) -> u32| {
            let (own, others) = (u64::from(part(self)) * u64::from(other.layers), u64::from(part(other)) * u64::from(self.layers));
            own.cmp(&others)
        };
        cross(|counts| counts.complete).then_with(|| cross(|counts| counts.downloaded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_compared_by_share() {
        let counts = |layers, downloaded, complete| LayerCounts { layers, downloaded, complete };
        assert_eq!(counts(40, 20, 20).cmp_progress(counts(4, 3, 3)), Ordering::Less, "half of 40 is less than 3 of 4");
        assert_eq!(counts(4, 4, 2).cmp_progress(counts(8, 5, 4)), Ordering::Greater, "equal shares: by downloads");
        assert_eq!(counts(4, 4, 4).cmp_progress(counts(8, 8, 8)), Ordering::Equal);
    }
}
