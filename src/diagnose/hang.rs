//! Whether a run hangs: a pure judge over what is known of it. It says so only where the news of every host comes in.
//!
//! Uses `state`. A silence is healthy as long as the inventory says (`on_failure.hang_after`), else up to three times the longest one that
//! ended by itself; GPUs that draw the power of work are never taken for hung.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Goal, Hang, Millis, Sign};
use crate::state::{HostState, Liveness, RankState, RunState};

/// A silence is told of after so long where something else speaks for a hang,
const QUIET: i64 = 5 * 60_000;
/// and after so long where nothing does.
const LONG: i64 = 15 * 60_000;
/// What was learned from the run makes it wait no longer than this.
const LEARNED: i64 = 60 * 60_000;
/// How much longer than the longest healthy silence one must be.
const TIMES: i64 = 3;
/// Ranks of one gang begin within so long of one another.
const TOGETHER: i64 = 60_000;
/// What the others write of a rank's end they write within so long.
const ECHO: i64 = 30_000;
/// The first rank of all begins within so long of the launchers.
const FIRST: i64 = 2 * 60_000;
/// A run is ready within so long.
const READY: i64 = 15 * 60_000;

/// How far back the GPUs are looked at, and how many looks it takes.
const WINDOW: i64 = 60_000;
const LOOKS: usize = 3;
/// A GPU of this utilisation, in percent, is busy.
const BUSY: f32 = 80.0;
/// A GPU that draws less than this, in percent of its limit, does no work,
const IDLE_POWER: f32 = 35.0;
/// one that draws more than this works, whatever it drew before,
const WORK_POWER: f32 = 45.0;
/// or less than this part of what it draws when it works.
const SHARE: f32 = 0.6;
/// How many lines of a rank are compared.
const TAIL: usize = 50;

/// What the inventory says about this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// The longest healthy silence, milliseconds, where it is said.
    pub after: Option<i64>,
    /// Whether a line marks the run as ready.
    pub marked: bool,
}

/// What can be said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the run does not run, or not every host is heard.
    Unknown,
    /// It goes on, as far as can be seen.
    Fine,
    /// It seems to hang.
    Hangs(Hang),
}

/// What the GPUs of the run do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gpus {
    Working,
    Spinning,
    Unknown,
}

/// Judges at `now`; `heard`: since when every event was taken in as it came.
pub fn judge(state: &RunState, terms: Terms, heard: Millis, now: Millis) -> Verdict {
    let runs = state.goal.0 == Goal::Up && state.outcome.is_none() && state.culprit.is_none();
    let heard_now = |host: &HostState| host.liveness == Liveness::Connected && host.node_started.is_some();
    if !runs || state.hosts.is_empty() || !state.hosts.iter().all(heard_now) {
        return Verdict::Unknown;
    }
    let since = state.hosts.iter().flat_map(|host| [host.since, host.node_started.unwrap_or_default()]).fold(heard, i64::max);
    let look = Look { state, terms, heard: since, now };
    match look.absent().or_else(|| look.gone()).or_else(|| look.silent()).or_else(|| look.late()) {
        Some(hang) => Verdict::Hangs(hang),
        None => Verdict::Fine,
    }
}

/// Whether `new` tells nothing that `old` has not told.
pub fn same(old: &Hang, new: &Hang) -> bool {
    let quiet = |hang: &Hang| matches!(hang.sign, Sign::Silent | Sign::Spinning);
    (old.sign == new.sign || quiet(old) && quiet(new)) && old.hosts == new.hosts && old.ranks == new.ranks
}

/// `90 s`, `5 min`, `2 h 10 min`.
pub fn span(millis: i64) -> String {
    match millis.max(0) / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

struct Look<'a> {
    state: &'a RunState,
    terms: Terms,
    heard: Millis,
    now: Millis,
}

impl Look<'_> {
    fn hang(&self, sign: Sign, of: &[&RankState], since: Millis, evidence: Vec<String>) -> Hang {
        let all = || (0..u32::try_from(self.state.hosts.len()).unwrap_or(u32::MAX)).collect();
        let hosts: BTreeSet<u32> = if of.is_empty() { all() } else { of.iter().map(|rank| rank.host).collect() };
        Hang { sign, hosts: hosts.into_iter().collect(), ranks: of.iter().map(|rank| rank.rank).collect(), since, evidence }
    }

    fn alive(&self) -> Vec<&RankState> {
        self.state.ranks.values().filter(|rank| rank.started.is_some() && rank.exit.is_none()).collect()
    }

    /// How long a silence may be.
    fn patience(&self, least: i64) -> i64 {
        self.terms.after.unwrap_or_else(|| least.max((self.state.pace.longest * TIMES).min(LEARNED)))
    }

    /// How long a start may take: what the inventory says only makes it longer.
    fn at_least(&self, least: i64) -> i64 {
        self.terms.after.unwrap_or_default().max(least)
    }

    /// Since when nothing was written.
    fn quiet_since(&self) -> Millis {
        let begun = self.state.ranks.values().filter_map(|rank| rank.started).max().unwrap_or_default();
        self.heard.max(self.state.pace.spoke).max(begun)
    }

    fn quiet(&self) -> i64 {
        self.now - self.quiet_since()
    }

    /// Ranks that have not begun while others run, or none that has.
    fn absent(&self) -> Option<Hang> {
        if self.state.hosts.iter().any(|host| host.node_exit.is_some()) {
            return None;
        }
        let begun: Vec<&RankState> = self.state.ranks.values().filter(|rank| rank.started.is_some()).collect();
        let Some(last) = begun.iter().filter_map(|rank| rank.started).max() else {
            let since = self.heard.max(self.state.pace.spoke);
            let line = format!("the launchers of {} hosts run and write nothing, and no rank has begun on any", self.state.hosts.len());
            return (self.now - since >= self.at_least(FIRST)).then(|| self.hang(Sign::Late, &[], since, vec![line]));
        };
        let since = last.max(self.heard);
        if self.now - since < self.at_least(TOGETHER) {
            return None;
        }
        let absent: Vec<&RankState> = self.state.ranks.values().filter(|rank| rank.started.is_none() && rank.exit.is_none()).collect();
        let empty = |host: &u32| self.state.ranks.values().all(|rank| rank.host != *host);
        let hosts: Vec<u32> = (0..).zip(&self.state.hosts).map(|(at, _)| at).filter(empty).collect();
        if absent.is_empty() && hosts.is_empty() {
            return None;
        }
        let mut hang = self.hang(Sign::Missing, &absent, since, vec![format!("{} ranks have begun and wait", begun.len())]);
        if absent.is_empty() {
            hang.hosts = hosts;
        }
        for host in hang.hosts.iter().take(3) {
            let said = self.state.hosts.get(*host as usize).and_then(|host| host.tail.last(1).pop());
            hang.evidence.push(match said {
                Some(line) => format!("its launcher on {} said last: {line}", self.state.host_name(*host)),
                None => format!("its launcher on {} runs and has said nothing", self.state.host_name(*host)),
            });
        }
        Some(hang)
    }

    /// Ranks that have ended while the others live on and have written nothing since. Those that ended well may have left the last work to others.
    fn gone(&self) -> Option<Hang> {
        let gone: Vec<&RankState> = self.state.ranks.values().filter(|rank| rank.exit.is_some()).collect();
        let alive = self.alive();
        let ended = gone.iter().map(|rank| rank.when).max()?;
        let since = ended.max(self.quiet_since());
        let (gpus, line) = self.gpus();
        let bad = gone.iter().any(|rank| rank.failed());
        let patience = match gpus {
            Gpus::Working => return None,
            Gpus::Spinning if bad => self.at_least(TOGETHER),
            Gpus::Spinning => self.patience(QUIET),
            Gpus::Unknown => self.patience(if bad { QUIET } else { LONG }),
        };
        if self.state.pace.spoke > ended + ECHO {
            return None;
        }
        if alive.is_empty() || self.now - since < patience {
            return None;
        }
        let ends = gone.iter().take(3).filter_map(|rank| Some(format!("rank {} ended: {}", rank.rank, rank.exit?)));
        let evidence = ends.chain(Some(format!("{} ranks live and write nothing", alive.len()))).chain(line).collect();
        Some(self.hang(Sign::Gone, &gone, since, evidence))
    }

    /// No rank writes.
    fn silent(&self) -> Option<Hang> {
        let alive = self.alive();
        let (gpus, line) = self.gpus();
        let all = self.state.ranks.values().all(|rank| rank.started.is_some());
        if alive.is_empty() || !all || gpus == Gpus::Working || self.quiet() < self.patience(QUIET) {
            return None;
        }
        let since = self.quiet_since();
        let last = alive.iter().max_by_key(|rank| (rank.spoke, std::cmp::Reverse(rank.rank)));
        let last = last.and_then(|rank| Some(format!("the last line, of rank {}: {}", rank.rank, rank.tail.last(1).pop()?)));
        let (behind, common) = behind(&alive);
        if !behind.is_empty() {
            let wrote = format!("{} ranks wrote last: {common}", alive.len() - behind.len());
            let said = behind.iter().take(3).map(|rank| match rank.tail.last(1).pop() {
                Some(line) => format!("rank {} has not; it wrote last: {line}", rank.rank),
                None => format!("rank {} has written nothing", rank.rank),
            });
            let evidence = Some(wrote).into_iter().chain(said).chain(line).collect();
            return Some(self.hang(Sign::Missing, &behind, since, evidence));
        }
        if gpus == Gpus::Spinning {
            return Some(self.hang(Sign::Spinning, &[], since, line.into_iter().chain(last).collect()));
        }
        let unknown = line.unwrap_or_else(|| "what the GPUs do is not known".to_owned());
        let evidence = [format!("{unknown}; silence alone is a weak sign")].into_iter().chain(last).collect();
        (self.quiet() >= self.patience(LONG)).then(|| self.hang(Sign::Silent, &[], since, evidence))
    }

    /// The run is not ready in time.
    fn late(&self) -> Option<Hang> {
        let waited = self.now - self.heard;
        // A training that is seen, or GPUs that work, are more than a line.
        let goes = !self.state.metrics.is_empty() || self.gpus().0 == Gpus::Working;
        let late = self.terms.marked && self.state.ready.is_none() && !goes && waited >= self.terms.after.unwrap_or(READY);
        late.then(|| {
            let line = format!("no line has met launch.ready_when; the ranks wrote last {} ago", span(self.quiet()));
            self.hang(Sign::Late, &[], self.heard, vec![line])
        })
    }

    /// What the GPUs of the run do, and the words for it.
    fn gpus(&self) -> (Gpus, Option<String>) {
        let (mut spinning, mut seen, mut power, mut working) = (0_usize, 0_usize, 0.0_f32, false);
        let mut unseen: Vec<&str> = Vec::new();
        for (at, host) in (0..).zip(&self.state.hosts) {
            let ours: BTreeSet<&str> = host.processes.iter().filter(|p| p.ours).map(|p| p.gpu.as_str()).collect();
            // Processes, and none of ours: those that spin are somebody else's.
            let foreign = ours.is_empty() && !host.processes.is_empty();
            let before = seen;
            for gpu in host.gpus.iter().filter(|gpu| ours.is_empty() || ours.contains(gpu.uuid.as_str())) {
                let looks: Vec<(f32, f32)> = host
                    .traces
                    .get(&gpu.index)
                    .into_iter()
                    .flatten()
                    .filter(|trace| self.now - trace.at <= WINDOW)
                    .filter_map(|trace| trace.utilization.zip(trace.power))
                    .collect();
                if looks.len() < LOOKS {
                    continue;
                }
                seen += 1;
                let mean = looks.iter().map(|(_, power)| power).sum::<f32>() / looks.len() as f32;
                power += mean;
                let usual = host.loads.get(&gpu.index).and_then(|load| load.usual).unwrap_or_default() * SHARE;
                // Where a training has been seen, what the GPU drew then is the better measure.
                let low = if self.state.metrics.is_empty() { usual.max(IDLE_POWER) } else { usual.min(WORK_POWER) };
                working |= mean > low;
                spinning += usize::from(!foreign && mean <= low && looks.iter().all(|(busy, _)| *busy >= BUSY));
            }
            if seen == before && self.alive().iter().any(|rank| rank.host == at) {
                unseen.push(&host.name);
            }
        }
        if seen == 0 {
            return (Gpus::Unknown, None);
        }
        let mean = power / seen as f32;
        let mut line =
            format!("{spinning} of {seen} GPUs are busy at {BUSY:.0} % or more, and draw {mean:.0} % of their power limit on average");
        if let [one, rest @ ..] = unseen.as_slice() {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            line = format!("{line}; those of {one}{more} are not seen");
        }
        let gpus = if working {
            Gpus::Working
        } else if spinning > 0 && unseen.is_empty() {
            Gpus::Spinning
        } else {
            Gpus::Unknown
        };
        (gpus, Some(line))
    }
}

/// A few ranks that have not written what most have written last, and did not write later; and that line.
fn behind<'a>(alive: &[&'a RankState]) -> (Vec<&'a RankState>, String) {
    let mut last: BTreeMap<String, Vec<&RankState>> = BTreeMap::new();
    let mut example = BTreeMap::new();
    for rank in alive {
        if let Some(line) = rank.tail.last(1).pop().filter(|line| !line.trim().is_empty()) {
            last.entry(shape(&line)).or_default().push(rank);
            example.entry(shape(&line)).or_insert(line);
        }
    }
    let none = (Vec::new(), String::new());
    let Some((common, most)) = last.iter().max_by_key(|(_, ranks)| ranks.len()).filter(|(_, ranks)| ranks.len() * 2 > alive.len()) else {
        return none;
    };
    let spoke = most.iter().map(|rank| rank.spoke).max().unwrap_or(0);
    let lines = || most.iter().map(|rank| rank.tail.lines);
    let (fewest, most_lines) = (lines().min().unwrap_or(0), lines().max().unwrap_or(0));
    // Who wrote later is ahead, unless it wrote less than any of them: then it came later to what they had done before.
    let after = |rank: &RankState| rank.tail.lines > most_lines || rank.spoke > spoke && rank.tail.lines >= fewest;
    let missed = |rank: &&&RankState| !after(rank) && rank.tail.last(TAIL).iter().all(|line| shape(line) != *common);
    let behind: Vec<&RankState> = alive.iter().filter(missed).copied().collect();
    // All others are expected to have come: else it is no queue at one place.
    if behind.is_empty() || behind.len() * 2 >= alive.len() { none } else { (behind, example.remove(common).unwrap_or_default()) }
}

/// A line without its numbers: ranks write the same with their own.
fn shape(line: &str) -> String {
    let mut out = String::new();
    for c in line.trim().chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
#[path = "hang_tests.rs"]
mod tests;
