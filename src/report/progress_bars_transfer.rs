//! Progress bars of a file transfer: one per host up to the terminal's height, with bytes and rate.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// More hosts share one bar.
const MAX_BARS: usize = 16;
/// Before it is known how much is sent.
const COMPARING: &str = "{prefix} comparing  {elapsed}";
const SENDING: &str = "{prefix} [{bar:24}] {binary_bytes:>11} of {binary_total_bytes}  {binary_bytes_per_sec}  {eta}";
/// The reason follows when the other hosts have ended.
const FAILED: &str = "{prefix} failed";

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
            set_style(&bar, COMPARING);
            bar.set_prefix(format!("{label:width$}"));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        TransferBarSet { bars: bars.collect(), multi }
    }

    /// Done and total bytes of each host; `None`: it has failed.
    pub(crate) fn update(&self, counts: &[Option<(u64, u64)>]) {
        let shared = [Some(counts.iter().flatten().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1)))];
        let counts = if self.bars.len() == counts.len() { counts } else { &shared };
        for (bar, count) in self.bars.iter().zip(counts) {
            match count {
                Some((done, total)) => {
                    if *total > 0 && bar.length() == Some(0) {
                        set_style(bar, SENDING);
                    }
                    bar.set_length(*total);
                    bar.set_position(*done);
                }
                None if bar.is_finished() => {}
                None => {
                    set_style(bar, FAILED);
                    bar.abandon();
                }
            }
        }
    }

    pub(crate) fn finish(&self) -> std::io::Result<()> {
        self.bars.iter().for_each(ProgressBar::finish_and_clear);
        self.multi.clear()
    }
}

fn set_style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("##-"));
    }
}
