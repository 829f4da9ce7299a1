//! The figures of a GPU as text, as nvidia-smi has them.

use crate::event::GpuSample;

/// `57/80G`.
pub(super) fn memory_text(gpu: &GpuSample) -> String {
    match (gpu.memory_used, gpu.memory_total) {
        (Some(used), Some(total)) => format!("{:.0}/{:.0}G", used / 1024.0, total / 1024.0),
        (Some(used), None) => format!("{:.0}G", used / 1024.0),
        _ => "-".to_owned(),
    }
}

/// `613/700W`, or `613W` without the limit.
pub(super) fn power_text(gpu: &GpuSample, shows_limit: bool) -> String {
    match (gpu.power, gpu.power_limit) {
        (Some(power), Some(limit)) if shows_limit => format!("{power:.0}/{limit:.0}W"),
        (power, _) => power.map_or_else(|| "-".to_owned(), |power| format!("{power:.0}W")),
    }
}
