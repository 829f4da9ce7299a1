#![expect(clippy::disallowed_methods, reason = "reads this process's signal mask")]
//! SIGHUP, unless this program was started with the signal ignored, as by `nohup`: then it stays ignored.
//!
//! On Linux `/proc/self/status` shows it. Elsewhere it cannot be determined without unsafe code: there the signal counts as not ignored, and a
//! hang-up detaches or cancels a command under `nohup` as well.

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) struct HangupSignal(Option<Signal>);

impl HangupSignal {
    /// # Errors
    /// The handler could not be installed.
    pub(crate) fn listen() -> std::io::Result<HangupSignal> {
        // A handler would end the inherited ignore.
        if is_hangup_ignored() { Ok(HangupSignal(None)) } else { Ok(HangupSignal(Some(signal(SignalKind::hangup())?))) }
    }

    /// Waits for the signal; while it is ignored, forever.
    pub(crate) async fn recv(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

fn is_hangup_ignored() -> bool {
    const SIGHUP: u32 = 1;
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_signal(&status, SIGHUP))
}

/// Reads the line `SigIgn:` of a `/proc/<pid>/status`: a mask in hex, signal 1 in its lowest bit.
fn ignores_signal(status: &str, signal: u32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = |mask: &str| format!("Name:\torchestrate\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\nSigCgt:\tffff\n");
        assert!(ignores_signal(&status("0000000000000001"), 1));
        assert!(ignores_signal(&status("0000000000001003"), 2));
        assert!(!ignores_signal(&status("0000000000001002"), 1), "SIGPIPE and SIGINT, no SIGHUP");
        assert!(!ignores_signal(&status("garbage"), 1) && !ignores_signal("", 1));
    }
}
