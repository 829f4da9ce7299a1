//! Counters of a transfer, for display.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of each host.
#[derive(Debug)]
pub(crate) struct TransferProgress {
    hosts: Vec<(AtomicU64, AtomicU64)>,
}

impl TransferProgress {
    pub(crate) fn new(hosts: usize) -> Self {
        TransferProgress { hosts: (0..hosts).map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect() }
    }

    /// More bytes must travel.
    pub(crate) fn add_total(&self, host: usize, bytes: u64) {
        if let Some((_, total)) = self.hosts.get(host) {
            total.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The host has these bytes of the total already: they need not travel.
    pub(crate) fn subtract_total(&self, host: usize, bytes: u64) {
        if let Some((_, total)) = self.hosts.get(host) {
            total.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// More bytes have travelled.
    pub(crate) fn add_done(&self, host: usize, bytes: u64) {
        if let Some((done, _)) = self.hosts.get(host) {
            done.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Done and total bytes of each host.
    pub(crate) fn counts(&self) -> Vec<(u64, u64)> {
        self.hosts.iter().map(|(done, total)| (done.load(Ordering::Relaxed), total.load(Ordering::Relaxed))).collect()
    }
}
