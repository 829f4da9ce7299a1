//! What the panes derive of hosts: one pass over the ranks, how each host stands and why, its GPUs in one glyph each.
//!
//! Uses `state`. Computes only: what a frame needs of every host is made once, at its beginning.

use crate::event::{GpuSample, Millis};
use crate::gpu::throttled;
use crate::report::words;
use crate::state::{HostState, Liveness, RankState, RunState, Step, Trace};
use crate::tui::app::App;
use crate::tui::theme::Status;

/// What the panes say of a host.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// Its ranks, counted.
    pub ranks: Ranks,
    /// How it stands.
    pub status: Status,
    /// Why, in a few words, clean.
    pub why: String,
    /// When one of its logs last grew; 0: never.
    pub heard: Millis,
}

/// How every host stands, in their order.
pub(crate) fn standings(app: &App) -> Vec<Standing> {
    let state = &app.state;
    let mut failed: Vec<Option<&Step>> = vec![None; state.hosts.len()];
    for step in state.ledger.steps().iter().filter(|step| step.status == crate::state::Status::Failed) {
        if let Some(place) = failed.get_mut(step.info.host as usize) {
            place.get_or_insert(step);
        }
    }
    let mut all: Vec<Standing> = ranks(state)
        .into_iter()
        .zip(&state.hosts)
        .zip(failed)
        .map(|((ranks, host), failed)| {
            let (status, why) = host_status(state, host, &ranks, failed);
            Standing { status, why: app.clean(&why), ranks, heard: 0 }
        })
        .collect();
    for (host, at) in app.times.lasts() {
        if let Some(standing) = all.get_mut(host as usize) {
            standing.heard = standing.heard.max(at);
        }
    }
    all
}

/// The ranks of a host, counted.
#[derive(Debug, Clone, Default)]
pub struct Ranks {
    /// All that are known.
    pub all: usize,
    /// Running.
    pub running: usize,
    /// Ended well.
    pub ok: usize,
    /// Ended by us.
    pub stopped: usize,
    /// The ones that failed by themselves.
    pub failed: Vec<u32>,
}

/// The ranks of every host, by its index.
fn ranks(state: &RunState) -> Vec<Ranks> {
    let mut sums = vec![Ranks::default(); state.hosts.len()];
    let first: &[u32] = state.culprit.as_ref().map_or(&[], |culprit| &culprit.ranks);
    for rank in state.ranks.values() {
        let Some(sum) = sums.get_mut(rank.host as usize) else { continue };
        sum.all += 1;
        match (rank.exit, rank.started) {
            (Some(exit), _) if exit.ok() => sum.ok += 1,
            (Some(_), _) if state.was_stopped(rank) => sum.stopped += 1,
            // Who failed first speaks for the host.
            (Some(_), _) if first.contains(&rank.rank) => sum.failed.insert(0, rank.rank),
            (Some(_), _) => sum.failed.push(rank.rank),
            (None, Some(_)) => sum.running += 1,
            (None, None) => {}
        }
    }
    sums
}

/// How a rank stands, in a word.
pub(crate) fn rank_status(state: &RunState, rank: &RankState) -> (Status, String) {
    match (rank.exit, rank.started) {
        (Some(exit), _) if exit.ok() => (Status::Done, "ended".to_owned()),
        (Some(_), _) if state.was_stopped(rank) => (Status::Warn, "stopped".to_owned()),
        (Some(exit), _) => (Status::Bad, words::exit(exit)),
        (None, Some(_)) => (Status::Ok, "running".to_owned()),
        (None, None) => (Status::Pending, "not started".to_owned()),
    }
}

/// How a host stands, and why in a few words.
fn host_status(state: &RunState, host: &HostState, ranks: &Ranks, failed: Option<&Step>) -> (Status, String) {
    if let Some(rank) = ranks.failed.first() {
        let exit = state.ranks.get(rank).and_then(|rank| rank.exit).map(words::exit).unwrap_or_default();
        return (Status::Bad, format!("rank {rank}: {exit}"));
    }
    match host.liveness {
        Liveness::Unreachable => return (Status::Lost, format!("unreachable: {}", host.error)),
        Liveness::Retrying => return (Status::Lost, format!("no connection: {}", host.error)),
        Liveness::Unknown | Liveness::Connecting | Liveness::Connected => {}
    }
    if let Some(step) = failed {
        return (Status::Bad, format!("{}: {}", step.info.phase.name(), step.note));
    }
    if let Some((exit, _)) = host.node_exit
        && !exit.ok()
        && state.stopping.is_none()
    {
        return (Status::Bad, format!("launcher: {}", words::exit(exit)));
    }
    if let Some(why) = gpu_trouble(host) {
        return (Status::Warn, why);
    }
    if ranks.stopped > 0 {
        return (Status::Warn, "stopped".to_owned());
    }
    if ranks.all > 0 && ranks.ok == ranks.all {
        return (Status::Done, "ended".to_owned());
    }
    if ranks.running > 0 {
        return (Status::Ok, "running".to_owned());
    }
    match host.liveness {
        Liveness::Connecting => (Status::Busy, "connecting".to_owned()),
        Liveness::Connected => (Status::Ok, "connected".to_owned()),
        _ => (Status::Pending, "waiting".to_owned()),
    }
}

/// What deserves a look about a host's GPUs and disk.
pub(crate) fn gpu_trouble(host: &HostState) -> Option<String> {
    if let Some((error, _)) = &host.gpus_unread {
        return Some(format!("nvidia-smi: {error}"));
    }
    for gpu in &host.gpus {
        if let Some(errors) = gpu.ecc_errors.filter(|errors| *errors > 0.0) {
            return Some(format!("GPU {}: {errors:.0} uncorrected ECC errors", gpu.index));
        }
        if let Some(why) = gpu.reasons.map(throttled).unwrap_or_default().iter().find(|why| **why != "power cap") {
            return Some(format!("GPU {}: slowed down, {why}", gpu.index));
        }
    }
    let disk = host.disk.filter(|disk| disk.total > 0 && disk.free < disk.total / 10)?;
    Some(format!("disk: {} GiB free under the run directory, less than a tenth", disk.free >> 30))
}

/// A GPU in one glyph: the tenths of its utilisation, `.` idle, `?` not known any more, `-` not told; and how it stands.
pub(crate) fn glyph(gpu: &GpuSample, stale: bool) -> (char, Status) {
    if stale {
        return ('?', Status::Lost);
    }
    let faulty = gpu.ecc_errors.is_some_and(|errors| errors > 0.0);
    match gpu.utilization {
        _ if faulty => ('!', Status::Bad),
        None => ('-', Status::Pending),
        Some(percent) if percent < 1.0 => ('.', Status::Pending),
        Some(percent) => {
            // 0 to 9 by the bounds.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 9")]
            let tenth = (percent / 10.0).clamp(0.0, 9.0) as u8;
            (char::from(b'0' + tenth), Status::Ok)
        }
    }
}

/// Whether a GPU's clock is held down by more than the power that it may draw.
pub(crate) fn slowed(gpu: &GpuSample) -> bool {
    gpu.reasons.map(throttled).unwrap_or_default().iter().any(|why| *why != "power cap")
}

/// The last values of all GPUs of these hosts, look by look, as their mean; nothing where none was told.
pub(crate) fn history<'a>(
    hosts: impl Iterator<Item = &'a HostState>,
    get: impl Fn(&Trace) -> Option<f32>,
    most: usize,
) -> Vec<Option<f32>> {
    let mut sums: Vec<(f32, f32)> = Vec::new();
    for trace in hosts.flat_map(|host| host.traces.values()) {
        for (place, look) in trace.iter().rev().take(most).enumerate() {
            if sums.len() <= place {
                sums.push((0.0, 0.0));
            }
            if let (Some(value), Some(sum)) = (get(look), sums.get_mut(place)) {
                *sum = (sum.0 + value, sum.1 + 1.0);
            }
        }
    }
    sums.into_iter().rev().map(|(sum, count)| (count > 0.0).then(|| sum / count)).collect()
}

/// What machines come to together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Machines {
    /// Processors, percent, the mean.
    pub cpu: Option<f32>,
    /// Memory in use, percent of all.
    pub memory: Option<f32>,
    /// Bytes a second, in and out, of InfiniBand, or of the other networks where there is none.
    pub network: Option<f64>,
}

/// The sums over machines; what none told is absent.
pub(crate) fn machines<'a>(hosts: impl Iterator<Item = &'a HostState>) -> Machines {
    let (mut cpu, mut count, mut total, mut available) = (0.0, 0.0, 0_u64, 0_u64);
    let (mut networks, mut fabric) = (None, None);
    for host in hosts {
        if let Some(busy) = host.vitals.cpu {
            (cpu, count) = (cpu + busy, count + 1.0);
        }
        total = total.saturating_add(host.vitals.memory_total);
        available = available.saturating_add(host.vitals.memory_available);
        for net in &host.vitals.networks {
            let sum = if net.port.is_empty() { &mut networks } else { &mut fabric };
            *sum = Some(sum.unwrap_or(0.0) + net.received + net.sent);
        }
    }
    // A share of a hundred.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a percentage")]
    let memory = (total > 0).then(|| (total.saturating_sub(available) as f64 / total as f64 * 100.0) as f32);
    Machines { cpu: (count > 0.0).then(|| cpu / count), memory, network: fabric.or(networks) }
}

/// What GPUs come to together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gpus {
    /// Mean utilisation, percent.
    pub utilization: Option<f32>,
    /// Memory in use, percent.
    pub memory: Option<f32>,
    /// The hottest, degrees Celsius.
    pub hottest: Option<f32>,
    /// Watt.
    pub power: Option<f32>,
}

/// The sums over GPUs; what no GPU told is absent.
pub(crate) fn gpus<'a>(list: impl Iterator<Item = &'a GpuSample> + Clone) -> Gpus {
    let values = |get: fn(&GpuSample) -> Option<f32>| list.clone().filter_map(get);
    let count = |get: fn(&GpuSample) -> Option<f32>| values(get).count();
    let sum = |get: fn(&GpuSample) -> Option<f32>| (count(get) > 0).then(|| values(get).sum::<f32>());
    // Fewer GPUs than a float can count.
    #[expect(clippy::cast_precision_loss, reason = "a few thousand at most")]
    let mean = sum(|gpu| gpu.utilization).map(|all| all / count(|gpu| gpu.utilization) as f32);
    let total = sum(|gpu| gpu.memory_total).filter(|total| *total > 0.0);
    Gpus {
        utilization: mean,
        memory: sum(|gpu| gpu.memory_used).zip(total).map(|(used, total)| used / total * 100.0),
        hottest: values(|gpu| gpu.temperature).fold(None, |most, one| Some(most.map_or(one, |most: f32| most.max(one)))),
        power: sum(|gpu| gpu.power),
    }
}
