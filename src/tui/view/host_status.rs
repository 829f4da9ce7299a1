//! Host data derived for the panes: one pass over the ranks, status and reason of each host, GPU glyphs.
//!
//! Computed once at the start of each frame.

use std::borrow::Cow;

use ratatui::style::Style;

use crate::event::{GpuSample, UnixMillis};
use crate::model::DEFAULT_MAX_CLOCK_SKEW_MS;
use crate::model::step_status::StepStatus;
use crate::state::{ConnectionStatus, HostState, RankState, RunState, StepState, ValueSum};
use crate::text::sanitize::Sanitizer;
use crate::tui::log_arrival_times::LogArrivalTimes;
use crate::tui::theme::{DisplayStatus, Theme};

use super::gpu_outliers::{self, LowGpus};

#[derive(Debug, Clone, Default)]
pub struct HostStatus {
    pub ranks: HostRankCounts,
    pub status: DisplayStatus,
    /// Short reason, sanitized.
    pub reason: Cow<'static, str>,
    /// When one of its logs last grew; 0 for never.
    pub last_output_at: UnixMillis,
    /// GPUs that work much less than most of the run's.
    pub low_gpus: Option<LowGpus>,
}

impl HostStatus {
    /// Whether something is wrong with it, or its GPUs work less than the others'.
    pub(super) fn needs_attention(&self) -> bool {
        self.status >= DisplayStatus::Warn || self.low_gpus.is_some()
    }

    /// Whether the GPU with this index has worked much less than the others for a while.
    pub(super) fn has_low_gpu(&self, index: u32) -> bool {
        self.low_gpus.as_ref().is_some_and(|low| low.is_warning && low.gpus.contains(&index))
    }
}

/// Status of every host, in host order.
pub(crate) fn compute_host_statuses(state: &RunState, sanitizer: &Sanitizer, log_times: &LogArrivalTimes) -> Vec<HostStatus> {
    let mut failed: Vec<Option<&StepState>> = vec![None; state.hosts.len()];
    for step in state.step_tracker.steps().iter().filter(|step| step.status == StepStatus::Failed) {
        if let Some(first) = failed.get_mut(step.info.host as usize) {
            first.get_or_insert(step);
        }
    }
    let mut all: Vec<HostStatus> = count_ranks_by_host(state)
        .into_iter()
        .zip(&state.hosts)
        .zip(failed)
        .zip(gpu_outliers::low_gpus(state))
        .map(|(((ranks, host), failed), low_gpus)| {
            let (mut status, mut why) = host_status(state, host, &ranks, failed);
            if let Some(low) = low_gpus.as_ref().filter(|low| low.is_warning && status < DisplayStatus::Warn) {
                (status, why) = (DisplayStatus::Warn, low.text().into());
            }
            let reason = match why {
                Cow::Borrowed(fixed) => Cow::Borrowed(fixed),
                Cow::Owned(why) => Cow::Owned(sanitizer.sanitize_line(&why).replace('\t', "    ")),
            };
            HostStatus { status, reason, ranks, last_output_at: 0, low_gpus }
        })
        .collect();
    for (host, at) in log_times.last_outputs() {
        if let Some(standing) = all.get_mut(host as usize) {
            standing.last_output_at = standing.last_output_at.max(at);
        }
    }
    all
}

/// Rank counts of a host.
#[derive(Debug, Clone, Default)]
pub struct HostRankCounts {
    /// All known ranks.
    pub total: usize,
    pub running: usize,
    pub ok: usize,
    pub stopped: usize,
    /// Ranks that failed on their own.
    pub failed: Vec<u32>,
}

/// `7/8`: the ranks of a host that run or ended well, of all; `?/8` where a lost host cannot say; `-` without ranks.
pub(crate) fn ranks_text(ranks: &HostRankCounts, status: DisplayStatus) -> String {
    match (ranks.total, ranks.running) {
        (0, _) => "-".to_owned(),
        (all, running) if running > 0 && status == DisplayStatus::Lost => format!("?/{all}"),
        (all, running) => format!("{}/{all}", running + ranks.ok),
    }
}

/// Rank counts of every host, by index.
fn count_ranks_by_host(state: &RunState) -> Vec<HostRankCounts> {
    let mut sums = vec![HostRankCounts::default(); state.hosts.len()];
    let first = state.culprit_ranks();
    for rank in state.ranks.values() {
        let Some(sum) = sums.get_mut(rank.host as usize) else { continue };
        sum.total += 1;
        match (rank.exit, rank.started_at) {
            (Some(exit), _) if exit.is_success() => sum.ok += 1,
            (Some(_), _) if rank.was_ended() => sum.stopped += 1,
            // The first failed rank comes first.
            (Some(_), _) if first.contains(&rank.rank) => sum.failed.insert(0, rank.rank),
            (Some(_), _) => sum.failed.push(rank.rank),
            (None, Some(_)) => sum.running += 1,
            (None, None) => {}
        }
    }
    sums
}

/// Status of a rank, with a label. What a rank does on a host that does not answer is not known.
pub(crate) fn rank_status(state: &RunState, rank: &RankState) -> (DisplayStatus, String) {
    match (rank.exit, rank.started_at) {
        (Some(exit), _) if exit.is_success() => (DisplayStatus::Done, "ended".to_owned()),
        (Some(_), _) if rank.was_ended() => (DisplayStatus::Warn, "stopped".to_owned()),
        (Some(exit), _) => (DisplayStatus::Error, exit.to_string()),
        (None, Some(_)) if state.hosts.get(rank.host as usize).is_some_and(HostState::is_lost) => {
            (DisplayStatus::Lost, "unknown".to_owned())
        }
        (None, Some(_)) => (DisplayStatus::Ok, "running".to_owned()),
        (None, None) => (DisplayStatus::Pending, "not started".to_owned()),
    }
}

/// Status of a host, with a short reason: what is borrowed is a text of ours.
fn host_status(
    state: &RunState,
    host: &HostState,
    ranks: &HostRankCounts,
    failed: Option<&StepState>,
) -> (DisplayStatus, Cow<'static, str>) {
    if let Some(rank) = ranks.failed.first() {
        let exit = state.ranks.get(rank).and_then(|rank| rank.exit).map(|exit| exit.to_string()).unwrap_or_default();
        return (DisplayStatus::Error, format!("rank {rank}: {exit}").into());
    }
    match host.connection_status {
        ConnectionStatus::Unreachable => return (DisplayStatus::Lost, format!("unreachable: {}", host.connection_error).into()),
        ConnectionStatus::Retrying => return (DisplayStatus::Lost, format!("no connection: {}", host.connection_error).into()),
        ConnectionStatus::Unknown | ConnectionStatus::Connecting | ConnectionStatus::Connected => {}
    }
    if let Some(step) = failed {
        return (DisplayStatus::Error, format!("{}: {}", step.info.phase.label(), step.note).into());
    }
    if let Some(exit) = host.launcher_failure() {
        return (DisplayStatus::Error, format!("launcher: {exit}").into());
    }
    if let Some(why) = hardware_warnings(host).next() {
        return (DisplayStatus::Warn, why.into());
    }
    if ranks.stopped > 0 {
        return (DisplayStatus::Warn, "stopped".into());
    }
    if ranks.total > 0 && ranks.ok == ranks.total {
        return (DisplayStatus::Done, "ended".into());
    }
    if let Some(why) = clock_warning(state, host) {
        return (DisplayStatus::Warn, why.into());
    }
    if ranks.running > 0 {
        return (DisplayStatus::Ok, "running".into());
    }
    match host.connection_status {
        ConnectionStatus::Connecting => (DisplayStatus::Busy, "connecting".into()),
        ConnectionStatus::Connected => (DisplayStatus::Ok, "connected".into()),
        _ => (DisplayStatus::Pending, "waiting".into()),
    }
}

/// A clock that differs from the first host's by more than the measurement leaves uncertain and `check` allows.
fn clock_warning(state: &RunState, host: &HostState) -> Option<String> {
    // No clock is known without uncertainty: such a value was not measured yet.
    let measured = |host: &HostState| host.clock_offset.filter(|(_, uncertain)| *uncertain > 0);
    let (first, first_clock) = state.hosts.iter().find_map(|host| Some((host, measured(host)?)))?;
    let own = measured(host)?;
    let (apart, uncertain) = (own.0.saturating_sub(first_clock.0), own.1.saturating_add(first_clock.1));
    // At most a few years in milliseconds.
    let seconds = apart as f64 / 1000.0;
    let is_skewed = apart.saturating_abs().saturating_sub(uncertain) > i64::from(DEFAULT_MAX_CLOCK_SKEW_MS);
    is_skewed.then(|| format!("clock {seconds:+.1} s from {}", first.name))
}

/// The warnings about a host's GPUs and disk, one of each kind: broken memory before heat.
pub(crate) fn hardware_warnings(host: &HostState) -> impl Iterator<Item = String> {
    let unread = || host.gpus_error.as_ref().map(|(error, _)| format!("nvidia-smi: {error}"));
    let gpus = || host.gpus.iter().filter(|_| host.gpus_error.is_none());
    let broken = || {
        let (index, errors) = gpus().find_map(|gpu| Some((gpu.index, gpu.memory_errors()?)))?;
        Some(format!("GPU {index}: {errors:.0} uncorrected ECC errors"))
    };
    let slow = || {
        let (index, why) = gpus().find_map(|gpu| Some((gpu.index, gpu.slowdown_reason()?)))?;
        Some(format!("GPU {index}: throttled, {why}"))
    };
    let disk = || {
        let disk = host.disk.filter(|disk| disk.total > 0 && disk.free < disk.total / 10)?;
        Some(format!("disk: {} GiB free under the run directory, less than 10%", disk.free >> 30))
    };
    [unread(), broken(), slow(), disk()].into_iter().flatten()
}

/// The GPU of a failed rank as one character.
pub(crate) fn failed_rank_glyph(theme: Theme) -> &'static str {
    if theme.uses_ascii_graphs() { "x" } else { "✗" }
}

/// The look of a GPU's character: an old value is dim, as everywhere.
pub(crate) fn gpu_glyph_style(theme: Theme, status: DisplayStatus) -> Style {
    if status == DisplayStatus::Lost { theme.dim() } else { theme.status_style(status) }
}

/// A GPU as one character: tenths of a percentage of it, usually its utilization, `.` idle, `!` faulty memory, `?` stale, `-` unknown; with
/// its status. A frame has a thousand of them: the text is not allocated.
pub(crate) fn gpu_glyph(gpu: &GpuSample, percent: Option<f32>, stale: bool) -> (&'static str, DisplayStatus) {
    const TENTHS: &str = "0123456789";
    if stale {
        return ("?", DisplayStatus::Lost);
    }
    match percent {
        _ if gpu.memory_errors().is_some() => ("!", DisplayStatus::Warn),
        None => ("-", DisplayStatus::Pending),
        Some(percent) if percent < 1.0 => (".", DisplayStatus::Pending),
        Some(percent) => {
            // 0 to 9 by the bounds.
            let tenth = (percent / 10.0).clamp(0.0, 9.0) as usize;
            (&TENTHS[tenth..=tenth], DisplayStatus::Ok)
        }
    }
}

/// Utilization and power of all GPUs of these hosts as means per sample, the latest `most`; `None` where no value is known.
pub(crate) fn mean_gpu_history<'a>(hosts: impl Iterator<Item = &'a HostState>, most: usize) -> Vec<[Option<f32>; 2]> {
    let mut sums: Vec<[ValueSum; 2]> = Vec::new();
    for (at, round) in hosts.flat_map(|host| host.gpu_history.iter().rev().take(most).enumerate()) {
        if sums.len() <= at {
            sums.push([ValueSum::default(); 2]);
        }
        if let Some([utilization, power]) = sums.get_mut(at) {
            utilization.add(round.utilization);
            power.add(round.power);
        }
    }
    sums.into_iter().rev().map(|all| all.map(ValueSum::mean)).collect()
}

/// Totals over machines.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MachineTotals {
    /// Mean CPU use in percent.
    pub cpu: Option<f32>,
    /// Memory in use, percent of all.
    pub memory: Option<f32>,
    /// Bytes per second in and out.
    pub network: Option<f64>,
}

/// Sums over machines; values that no machine reports are `None`.
pub(crate) fn sum_machines<'a>(hosts: impl Iterator<Item = &'a HostState>) -> MachineTotals {
    let (mut cpu, mut count, mut total, mut available) = (0.0, 0.0, 0_u64, 0_u64);
    let mut network = None;
    for host in hosts {
        if let Some(busy) = host.host_metrics.cpu_percent {
            (cpu, count) = (cpu + busy, count + 1.0);
        }
        total = total.saturating_add(host.host_metrics.memory_total);
        available = available.saturating_add(host.host_metrics.memory_available);
        network = network.into_iter().chain(host.host_metrics.main_traffic().map(|[received, sent]| received + sent)).reduce(|a, b| a + b);
    }
    // A share of a hundred.
    let memory = (total > 0).then(|| (total.saturating_sub(available) as f64 / total as f64 * 100.0) as f32);
    MachineTotals { cpu: (count > 0.0).then(|| cpu / count), memory, network }
}

/// Totals over GPUs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GpuTotals {
    pub utilization: Option<f32>,
    /// Memory in use, percent.
    pub memory: Option<f32>,
    /// Maximum temperature, degrees Celsius.
    pub hottest: Option<f32>,
    pub power: Option<f32>,
}

/// Sums over GPUs; values that no GPU reports are `None`.
pub(crate) fn sum_gpus<'a>(list: impl Iterator<Item = &'a GpuSample>) -> GpuTotals {
    let plus = |sum: Option<f32>, value: Option<f32>| sum.into_iter().chain(value).reduce(|sum, value| sum + value);
    // Fewer GPUs than a float can count.
    let (mut utilization, mut count, mut used, mut total) = (None, 0.0, None, None);
    let mut all = GpuTotals::default();
    for gpu in list {
        count += if gpu.utilization.is_some() { 1.0 } else { 0.0 };
        utilization = plus(utilization, gpu.utilization);
        used = plus(used, gpu.memory_used);
        total = plus(total, gpu.memory_total);
        all.power = plus(all.power, gpu.power);
        all.hottest = all.hottest.into_iter().chain(gpu.temperature).reduce(f32::max);
    }
    all.utilization = utilization.map(|sum| sum / count);
    all.memory = used.zip(total.filter(|total| *total > 0.0)).map(|(used, total)| used / total * 100.0);
    all
}
