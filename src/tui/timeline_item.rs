//! One row of the timeline.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::event::{LogFile, UnixMillis};

use super::theme::DisplayStatus;

#[derive(Debug, Clone, Default)]
pub struct TimelineItem {
    pub at: UnixMillis,
    pub status: DisplayStatus,
    /// Text as the host wrote it: sanitize before display.
    pub text: String,
    pub hosts: Vec<u32>,
    pub ranks: Vec<u32>,
    /// The related log.
    pub log: Option<(u32, LogFile)>,
    /// Hosts or ranks folded to a text: that of many hosts would cost a tenth of a frame.
    pub(super) owner: OnceLock<String>,
}

impl TimelineItem {
    /// Whose event it is. `is_final`: the names of its hosts are known, so that the text of the first call is kept until a host or a rank is
    /// added.
    pub fn owner(&self, is_final: bool, fold: impl FnOnce(&TimelineItem) -> String) -> Cow<'_, str> {
        match is_final {
            true => Cow::Borrowed(self.owner.get_or_init(|| fold(self))),
            false => Cow::Owned(fold(self)),
        }
    }

    /// Number of hosts or ranks it represents.
    pub fn affected_count(&self) -> usize {
        self.hosts.len().max(self.ranks.len()).max(1)
    }

    /// After a host or a rank was added.
    pub(super) fn forget_owner(&mut self) {
        self.owner = OnceLock::new();
    }
}
