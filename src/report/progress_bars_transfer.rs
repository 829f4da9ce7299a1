//! Progress bars of a file transfer: one per host up to the terminal's height, with bytes and rate.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// More hosts share one bar.
const MAX_BARS: usize = 16;
/// Before it is known how much is sent.
const COMPARING: &str = "{prefix} comparing  {elapsed}";
const SENDING: &str = "{prefix} [{bar:24}] {binary_bytes:>11} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta}";

pub(crate) struct TransferBarSet {
    multi: MultiProgress,
    bars: Vec<ProgressBar>,
}

impl TransferBarSet {
    /// `names`: printable names of the hosts.
    pub(crate) fn stderr(names: &[String]) -> TransferBarSet {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let labels = if names.len() <= MAX_BARS { names.to_vec() } else { vec![format!("{} hosts", names.len())] };
        let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let bars = labels.iter().map(|label| {
            let bar = multi.add(ProgressBar::new(0));
            if let Ok(style) = ProgressStyle::with_template(COMPARING) {
                bar.set_style(style);
            }
            bar.set_prefix(format!("{label:width$}"));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        TransferBarSet { bars: bars.collect(), multi }
    }

    /// Done and total bytes of each host.
    pub(crate) fn update(&self, counts: &[(u64, u64)]) {
        let sum = |counts: &[(u64, u64)]| counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        let shared = [sum(counts)];
        let counts = if self.bars.len() == counts.len() { counts } else { &shared };
        for (bar, (done, total)) in self.bars.iter().zip(counts) {
            if *total > 0
                && bar.length() == Some(0)
                && let Ok(style) = ProgressStyle::with_template(SENDING)
            {
                bar.set_style(style.progress_chars("##-"));
            }
            bar.set_length(*total);
            bar.set_position(*done);
        }
    }

    pub(crate) fn finish(&self) -> std::io::Result<()> {
        self.bars.iter().for_each(ProgressBar::finish_and_clear);
        self.multi.clear()
    }
}
