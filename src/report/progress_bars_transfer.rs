//! Progress bars of a file transfer: one per host up to the terminal's height, with bytes and rate.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use unicode_width::UnicodeWidthStr as _;

use crate::text::translation::Lang;
use crate::text::width::pad_end;

/// More hosts share one bar.
const MAX_BARS: usize = 16;

pub(crate) struct TransferBarSet {
    multi: MultiProgress,
    bars: Vec<ProgressBar>,
    lang: Lang,
}

impl TransferBarSet {
    /// `names`: printable names of the hosts.
    pub(crate) fn stderr(names: &[String], lang: Lang) -> TransferBarSet {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let labels = if names.len() <= MAX_BARS { names.to_vec() } else { vec![lang.count(names.len(), "host")] };
        let width = labels.iter().map(|label| label.width()).max().unwrap_or(0);
        let bars = labels.iter().map(|label| {
            let bar = multi.add(ProgressBar::new(0));
            // It is not known yet how much is sent.
            set_style(&bar, &format!("{{prefix}} {}  {{elapsed}}", lang.tr("comparing")));
            bar.set_prefix(pad_end(label, width));
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        TransferBarSet { bars: bars.collect(), multi, lang }
    }

    /// Done and total bytes of each host; `None`: it has failed.
    pub(crate) fn update(&self, counts: &[Option<(u64, u64)>]) {
        let shared = [Some(counts.iter().flatten().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1)))];
        let counts = if self.bars.len() == counts.len() { counts } else { &shared };
        for (bar, count) in self.bars.iter().zip(counts) {
            match count {
                Some((done, total)) => {
                    if *total > 0 && bar.length() == Some(0) {
                        let of = self.lang.tr(" of ");
                        set_style(
                            bar,
                            &format!(
                                "{{prefix}} [{{bar:24}}] {{binary_bytes:>11}}{of}{{binary_total_bytes}}  {{binary_bytes_per_sec}}  {{eta}}"
                            ),
                        );
                    }
                    bar.set_length(*total);
                    bar.set_position(*done);
                }
                None if bar.is_finished() => {}
                None => {
                    // The reason follows when the other hosts have ended.
                    set_style(bar, &format!("{{prefix}} {}", self.lang.tr("failed")));
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
