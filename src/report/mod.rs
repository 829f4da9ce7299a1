//! Faces without a screen of their own: lines, bars, JSON, the journal, log files, the recap. All are consumers of one stream of events.
//!
//! Uses `event`, `state`, `shell` and `inventory`. Knows nothing of the engine or of SSH: a journal that is read again looks to it like a
//! run. A face that fails is left out and the others are told; only the log files answer for themselves, since the hosts wait for them.

pub mod journal;
pub mod logs;
pub mod sanitize;
