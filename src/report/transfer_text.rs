//! How far the files of a task are on a host.

use crate::state::StepTransfer;
use crate::text::byte_size::format_bytes;
use crate::text::translation::Lang;

const BAR_WIDTH: u8 = 10;

/// `[######----] 1.2 GiB of 2.0 GiB, 310.0 MiB/s`
pub(crate) fn transfer_text(sent: &StepTransfer, lang: Lang) -> String {
    let done = sent.done.min(sent.total);
    let filled = (u128::from(done) * u128::from(BAR_WIDTH)).checked_div(u128::from(sent.total)).unwrap_or(0);
    let bar: String = (0..BAR_WIDTH).map(|at| if u128::from(at) < filled { '#' } else { '-' }).collect();
    let rate = sent.rate.map_or_else(String::new, |rate| format!("{}{}/s", lang.comma(), format_bytes(rate)));
    format!("[{bar}] {}{}{}{rate}", format_bytes(done), lang.tr(" of "), format_bytes(sent.total))
}
