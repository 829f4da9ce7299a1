//! How far a transfer is with each host, for display.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::TransferError;

#[derive(Debug, Default)]
struct HostCounters {
    done: AtomicU64,
    total: AtomicU64,
    /// Why it gets nothing more.
    error: OnceLock<TransferError>,
}

/// Bytes of each host, and which hosts have failed while the others go on.
#[derive(Debug)]
pub(crate) struct TransferProgress {
    hosts: Vec<HostCounters>,
}

impl TransferProgress {
    pub(crate) fn new(hosts: usize) -> Self {
        TransferProgress { hosts: (0..hosts).map(|_| HostCounters::default()).collect() }
    }

    /// More bytes must travel.
    pub(crate) fn add_total(&self, host: usize, bytes: u64) {
        if let Some(HostCounters { total, .. }) = self.hosts.get(host) {
            total.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The host has these bytes of the total already: they need not travel.
    pub(crate) fn subtract_total(&self, host: usize, bytes: u64) {
        if let Some(HostCounters { total, .. }) = self.hosts.get(host) {
            total.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// More bytes have travelled.
    pub(crate) fn add_done(&self, host: usize, bytes: u64) {
        if let Some(HostCounters { done, .. }) = self.hosts.get(host) {
            done.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The host gets nothing more. The first error counts.
    pub(crate) fn record_failure(&self, host: usize, error: &TransferError) {
        if let Some(HostCounters { error: slot, .. }) = self.hosts.get(host) {
            slot.get_or_init(|| error.clone());
        }
    }

    /// Why the host gets nothing more.
    pub(crate) fn failure(&self, host: usize) -> Option<&TransferError> {
        self.hosts.get(host)?.error.get()
    }

    /// Done and total bytes of each host; `None`: it has failed.
    pub(crate) fn counts(&self) -> Vec<Option<(u64, u64)>> {
        let bytes = |host: &HostCounters| (host.done.load(Ordering::Relaxed), host.total.load(Ordering::Relaxed));
        self.hosts.iter().map(|host| host.error.get().is_none().then(|| bytes(host))).collect()
    }
}
