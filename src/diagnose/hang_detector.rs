//! Whether a run hangs: a pure function of the run's state. It reports a hang only while every host is connected.
//!
//! A silence is healthy as long as the inventory says (`on_failure.hang_after`), else up to three times the longest one that ended by
//! itself; GPUs that draw the power of work never count as hung.

use std::collections::BTreeSet;

use super::ranks_behind::find_ranks_behind;
use crate::event::{Hang, HangSymptom, RunGoal, UnixMillis};
use crate::state::{ConnectionStatus, HostState, RankState, RunState};
use crate::text::duration::format_rounded;

/// A silence is reported after this time if other evidence suggests a hang,
const SUSPICIOUS_SILENCE_MS: i64 = 5 * 60_000;
/// and after this time without such evidence.
const UNEXPLAINED_SILENCE_MS: i64 = 15 * 60_000;
/// The longest silence that the run's own history can make acceptable.
const MAX_LEARNED_SILENCE_MS: i64 = 60 * 60_000;
/// How many times longer than the longest healthy silence a suspicious one must be.
const SILENCE_FACTOR: i64 = 3;
/// Ranks of one gang start within this time of one another.
const RANK_START_SPREAD_MS: i64 = 60_000;
/// The others write about a rank's end within this time.
const EXIT_ECHO_MS: i64 = 30_000;
/// The first rank starts within this time of the launchers.
const FIRST_RANK_START_MS: i64 = 2 * 60_000;
/// A run is ready within this time.
const READY_TIMEOUT_MS: i64 = 15 * 60_000;

/// The time window of GPU samples, and the fewest samples that count.
const GPU_WINDOW_MS: i64 = 60_000;
const MIN_GPU_SAMPLES: usize = 3;
/// A GPU of this utilisation, in percent, is busy.
const BUSY_UTILIZATION: f32 = 80.0;
/// A GPU that draws less than this, in percent of its limit, does no work,
const IDLE_POWER: f32 = 35.0;
/// one that draws more than this works, independent of its past,
const WORK_POWER: f32 = 45.0;
/// or less than this part of what it draws when it works.
const IDLE_POWER_SHARE: f32 = 0.6;

/// What the inventory says about this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HangSettings {
    /// The longest healthy silence, milliseconds, if the inventory has one.
    pub hang_after: Option<i64>,
    /// Whether a line marks the run as ready.
    pub has_ready_line: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HangVerdict {
    /// The run does not run, or not every host is connected.
    Unknown,
    /// No sign of a hang.
    Healthy,
    /// It seems to hang.
    Hanging(Hang),
}

/// What the GPUs of the run do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GpuActivity {
    Working,
    Spinning,
    Unknown,
}

/// Evaluates at `now`; `connected_since`: since when events arrive without delay.
pub(crate) fn detect_hang(state: &RunState, settings: HangSettings, connected_since: UnixMillis, now: UnixMillis) -> HangVerdict {
    let runs = state.goal.0 == RunGoal::Up && state.outcome.is_none() && state.culprit.is_none();
    let is_connected = |host: &HostState| host.connection_status == ConnectionStatus::Connected && host.launcher_started.is_some();
    if !runs || state.hosts.is_empty() || !state.hosts.iter().all(is_connected) {
        return HangVerdict::Unknown;
    }
    let since = state
        .hosts
        .iter()
        .flat_map(|host| [host.connection_since, host.launcher_started.unwrap_or_default()])
        .fold(connected_since, i64::max);
    let detector = HangDetector { state, settings, connected_since: since, now };
    match detector
        .detect_missing_ranks()
        .or_else(|| detector.detect_exited_ranks())
        .or_else(|| detector.detect_silence())
        .or_else(|| detector.detect_not_ready())
    {
        Some(hang) => HangVerdict::Hanging(hang),
        None => HangVerdict::Healthy,
    }
}

/// Whether `new` is the hang that `old` already reported.
pub(crate) fn is_same_hang(old: &Hang, new: &Hang) -> bool {
    let quiet = |hang: &Hang| matches!(hang.symptom, HangSymptom::Silent | HangSymptom::Spinning);
    (old.symptom == new.symptom || quiet(old) && quiet(new)) && old.hosts == new.hosts && old.ranks == new.ranks
}

struct HangDetector<'a> {
    state: &'a RunState,
    settings: HangSettings,
    connected_since: UnixMillis,
    now: UnixMillis,
}

impl HangDetector<'_> {
    fn build_hang(&self, symptom: HangSymptom, ranks: &[&RankState], since: UnixMillis, evidence: Vec<String>) -> Hang {
        let all = || (0..u32::try_from(self.state.hosts.len()).unwrap_or(u32::MAX)).collect();
        let hosts: BTreeSet<u32> = if ranks.is_empty() { all() } else { ranks.iter().map(|rank| rank.host).collect() };
        Hang { symptom, hosts: hosts.into_iter().collect(), ranks: ranks.iter().map(|rank| rank.rank).collect(), since, evidence }
    }

    fn running_ranks(&self) -> Vec<&RankState> {
        self.state.ranks.values().filter(|rank| rank.is_running()).collect()
    }

    /// How long a silence may be.
    fn allowed_silence(&self, min: i64) -> i64 {
        self.settings
            .hang_after
            .unwrap_or_else(|| min.max((self.state.output_activity.longest_silence * SILENCE_FACTOR).min(MAX_LEARNED_SILENCE_MS)))
    }

    /// How long a start may take: what the inventory says only makes it longer.
    fn allowed_start_time(&self, min: i64) -> i64 {
        self.settings.hang_after.unwrap_or_default().max(min)
    }

    /// Since when nothing was written.
    fn silent_since(&self) -> UnixMillis {
        let begun = self.state.ranks.values().filter_map(|rank| rank.started_at).max().unwrap_or_default();
        self.connected_since.max(self.state.output_activity.last_output_at).max(begun)
    }

    fn silence_duration(&self) -> i64 {
        self.now - self.silent_since()
    }

    /// Ranks that have not begun while others run, or none that has.
    fn detect_missing_ranks(&self) -> Option<Hang> {
        if self.state.hosts.iter().any(|host| host.launcher_exit.is_some()) {
            return None;
        }
        let begun: Vec<&RankState> = self.state.ranks.values().filter(|rank| rank.started_at.is_some()).collect();
        let Some(last) = begun.iter().filter_map(|rank| rank.started_at).max() else {
            let since = self.connected_since.max(self.state.output_activity.last_output_at);
            let line = format!("the launchers of {} hosts run and write nothing, and no rank has begun on any", self.state.hosts.len());
            return (self.now - since >= self.allowed_start_time(FIRST_RANK_START_MS))
                .then(|| self.build_hang(HangSymptom::NotReady, &[], since, vec![line]));
        };
        let since = last.max(self.connected_since);
        if self.now - since < self.allowed_start_time(RANK_START_SPREAD_MS) {
            return None;
        }
        let absent: Vec<&RankState> = self.state.ranks.values().filter(|rank| rank.started_at.is_none() && rank.exit.is_none()).collect();
        let empty = |host: &u32| self.state.ranks.values().all(|rank| rank.host != *host);
        let hosts: Vec<u32> = (0..).zip(&self.state.hosts).map(|(at, _)| at).filter(empty).collect();
        if absent.is_empty() && hosts.is_empty() {
            return None;
        }
        let mut hang =
            self.build_hang(HangSymptom::RankMissing, &absent, since, vec![format!("{} ranks have begun and wait", begun.len())]);
        if absent.is_empty() {
            hang.hosts = hosts;
        }
        for host in hang.hosts.iter().take(3) {
            let text = self.state.hosts.get(*host as usize).and_then(|host| host.launcher_recent_lines.last_line());
            hang.evidence.push(match text {
                Some(line) => format!("its launcher on {} said last: {line}", self.state.host_name(*host)),
                None => format!("its launcher on {} runs and has said nothing", self.state.host_name(*host)),
            });
        }
        Some(hang)
    }

    /// Ranks that have ended while the others live on and have written nothing since. Those that ended well may have left the last work to others.
    fn detect_exited_ranks(&self) -> Option<Hang> {
        let gone: Vec<&RankState> = self.state.ranks.values().filter(|rank| rank.exit.is_some()).collect();
        let alive = self.running_ranks();
        let ended = gone.iter().map(|rank| rank.ended_at).max()?;
        let since = ended.max(self.silent_since());
        let (gpus, line) = self.gpu_activity();
        let bad = gone.iter().any(|rank| rank.has_failed());
        let finish_timeout = match gpus {
            GpuActivity::Working => return None,
            GpuActivity::Spinning if bad => self.allowed_start_time(RANK_START_SPREAD_MS),
            GpuActivity::Spinning => self.allowed_silence(SUSPICIOUS_SILENCE_MS),
            GpuActivity::Unknown => self.allowed_silence(if bad { SUSPICIOUS_SILENCE_MS } else { UNEXPLAINED_SILENCE_MS }),
        };
        if self.state.output_activity.last_output_at > ended + EXIT_ECHO_MS {
            return None;
        }
        if alive.is_empty() || self.now - since < finish_timeout {
            return None;
        }
        let ends = gone.iter().take(3).filter_map(|rank| Some(format!("rank {} ended: {}", rank.rank, rank.exit?)));
        let evidence = ends.chain(Some(format!("{} ranks live and write nothing", alive.len()))).chain(line).collect();
        Some(self.build_hang(HangSymptom::RankExited, &gone, since, evidence))
    }

    fn detect_silence(&self) -> Option<Hang> {
        let alive = self.running_ranks();
        let (gpus, line) = self.gpu_activity();
        let all = self.state.ranks.values().all(|rank| rank.started_at.is_some());
        if alive.is_empty() || !all || gpus == GpuActivity::Working || self.silence_duration() < self.allowed_silence(SUSPICIOUS_SILENCE_MS)
        {
            return None;
        }
        let since = self.silent_since();
        let last = alive.iter().max_by_key(|rank| (rank.last_output_at, std::cmp::Reverse(rank.rank)));
        let last = last.and_then(|rank| Some(format!("the last line, of rank {}: {}", rank.rank, rank.recent_lines.last_line()?)));
        if let Some((behind, common)) = find_ranks_behind(&alive) {
            let wrote = format!("{} ranks wrote last: {common}", alive.len() - behind.len());
            let text = behind.iter().take(3).map(|rank| match rank.recent_lines.last_line() {
                Some(line) => format!("rank {} has not; it wrote last: {line}", rank.rank),
                None => format!("rank {} has written nothing", rank.rank),
            });
            let evidence = Some(wrote).into_iter().chain(text).chain(line).collect();
            return Some(self.build_hang(HangSymptom::RankMissing, &behind, since, evidence));
        }
        if gpus == GpuActivity::Spinning {
            return Some(self.build_hang(HangSymptom::Spinning, &[], since, line.into_iter().chain(last).collect()));
        }
        let unknown = line.unwrap_or_else(|| "what the GPUs do is not known".to_owned());
        let evidence = [format!("{unknown}; silence alone is a weak sign")].into_iter().chain(last).collect();
        (self.silence_duration() >= self.allowed_silence(UNEXPLAINED_SILENCE_MS))
            .then(|| self.build_hang(HangSymptom::Silent, &[], since, evidence))
    }

    /// The run is not ready in time.
    fn detect_not_ready(&self) -> Option<Hang> {
        let waited = self.now - self.connected_since;
        // A training that is seen, or GPUs that work, are more than a line.
        let has_begun = !self.state.metrics.is_empty() || self.gpu_activity().0 == GpuActivity::Working;
        let late = self.settings.has_ready_line
            && self.state.ready_at.is_none()
            && !has_begun
            && waited >= self.settings.hang_after.unwrap_or(READY_TIMEOUT_MS);
        late.then(|| {
            let line = format!("no line has met launch.ready_when; the ranks wrote last {} ago", format_rounded(self.silence_duration()));
            self.build_hang(HangSymptom::NotReady, &[], self.connected_since, vec![line])
        })
    }

    /// What the GPUs of the run do, and the words for it.
    fn gpu_activity(&self) -> (GpuActivity, Option<String>) {
        let (mut spinning, mut seen, mut power, mut working) = (0_usize, 0_usize, 0.0_f32, false);
        let mut unseen: Vec<&str> = Vec::new();
        for (at, host) in (0..).zip(&self.state.hosts) {
            let ours: BTreeSet<&str> = host.gpu_processes.iter().filter(|p| p.belongs_to_run).map(|p| p.gpu.as_str()).collect();
            // Only foreign processes: those that spin are not ours.
            let foreign = ours.is_empty() && !host.gpu_processes.is_empty();
            let before = seen;
            for gpu in host.gpus.iter().filter(|gpu| ours.is_empty() || ours.contains(gpu.uuid.as_str())) {
                let looks: Vec<(f32, f32)> = host
                    .gpu_trace(gpu.index)
                    .filter(|trace| self.now - trace.at <= GPU_WINDOW_MS)
                    .filter_map(|trace| trace.utilization.zip(trace.power))
                    .collect();
                if looks.len() < MIN_GPU_SAMPLES {
                    continue;
                }
                seen += 1;
                let mean = looks.iter().map(|(_, power)| power).sum::<f32>() / looks.len() as f32;
                power += mean;
                let usual = host.power_baselines.get(&gpu.index).and_then(|load| load.peak_mean).unwrap_or_default() * IDLE_POWER_SHARE;
                // Where a training has been seen, what the GPU drew then is the better measure.
                let low = if self.state.metrics.is_empty() { usual.max(IDLE_POWER) } else { usual.min(WORK_POWER) };
                working |= mean > low;
                spinning += usize::from(!foreign && mean <= low && looks.iter().all(|(busy, _)| *busy >= BUSY_UTILIZATION));
            }
            if seen == before && self.running_ranks().iter().any(|rank| rank.host == at) {
                unseen.push(&host.name);
            }
        }
        if seen == 0 {
            return (GpuActivity::Unknown, None);
        }
        let mean = power / seen as f32;
        let mut line = format!(
            "{spinning} of {seen} GPUs are busy at {BUSY_UTILIZATION:.0} % or more, and draw {mean:.0} % of their power limit on average"
        );
        if let [one, rest @ ..] = unseen.as_slice() {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            line = format!("{line}; those of {one}{more} are not seen");
        }
        let gpus = if working {
            GpuActivity::Working
        } else if spinning > 0 && unseen.is_empty() {
            GpuActivity::Spinning
        } else {
            GpuActivity::Unknown
        };
        (gpus, Some(line))
    }
}

#[cfg(test)]
#[path = "hang_detector_tests.rs"]
mod tests;
