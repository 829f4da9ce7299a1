//! Who is to blame: of all that was seen, the first cause; then what else went wrong; what others only felt is folded beneath.
//!
//! A rank's verdict comes from its log, else from its end. Among ranks the one that died first by corrected clocks decides, but one that
//! merely lost or missed another never hides the one that it lost.

use std::collections::BTreeMap;

use crate::event::{Exit, LogFile, Outcome, Sign};
use crate::inventory::rules::Role;
use crate::state::{Liveness, RankState, RunState};

use super::Finding;
use super::evidence::{BURST, Evidence, Hit};
use super::matcher::Rules;

/// How many lines after an effect a cause may be told and still be the cause.
const NEAR: u64 = 40;
/// How many findings there are at most.
const MOST: usize = 20;
/// Xids that programs cause, mostly: what CUDA says of them is nearer to the cause (NVIDIA, XID errors).
const OF_PROGRAMS: [&str; 4] = ["13", "31", "43", "45"];
/// The rules of exceptions that no other rule knows.
const EXCEPTIONS: [&str; 2] = ["python-exception", "cpp-exception"];

/// What one rank, launcher or host says of itself.
struct Verdict {
    rule: usize,
    groups: BTreeMap<String, String>,
    evidence: Vec<String>,
    /// What may be the cause where nobody is to blame.
    hint: Option<Box<Verdict>>,
}

impl Verdict {
    fn of(hit: &Hit) -> Verdict {
        Verdict { rule: hit.rule, groups: hit.groups.clone(), evidence: vec![hit.text.clone()], hint: None }
    }
}

/// All findings, the first cause first.
pub fn findings(evidence: &Evidence, state: &RunState) -> Vec<Finding> {
    let Some(rules) = evidence.rules() else { return Vec::new() };
    let lost = state.hosts.iter().any(|host| host.liveness == Liveness::Unreachable);
    let hangs = state.hang.is_some() && !matches!(state.outcome, Some((Outcome::Ok, _)));
    if !hangs && state.culprit.is_none() && !lost && state.failed_steps().next().is_none() && state.failed_ranks().is_empty() {
        return Vec::new();
    }
    let court = Court { rules, evidence, state };
    let mut found = court.ranks();
    found.extend(court.launchers());
    found.extend(court.steps());
    found.extend(court.hosts());
    court.machines(&mut found);
    found.extend(court.hang().filter(|_| hangs));
    found.truncate(MOST);
    for finding in &mut found {
        court.place(finding);
    }
    found
}

struct Court<'a> {
    rules: &'a Rules,
    evidence: &'a Evidence,
    state: &'a RunState,
}

impl Court<'_> {
    fn role(&self, verdict: &Verdict) -> Role {
        self.rules.all()[verdict.rule].role
    }

    fn finding(&self, verdict: Verdict) -> Finding {
        let rule = &self.rules.all()[verdict.rule];
        Finding {
            rule: rule.id.clone(),
            role: rule.role,
            ranks: Vec::new(),
            hosts: Vec::new(),
            evidence: verdict.evidence,
            groups: verdict.groups,
            what: rule.what.clone(),
            why: rule.why.clone(),
            next: rule.next.clone(),
            felt: Vec::new(),
        }
    }

    /// What every text may name: where it was, and the first rank.
    fn place(&self, finding: &mut Finding) {
        for list in [&mut finding.ranks, &mut finding.hosts, &mut finding.felt] {
            list.sort_unstable();
            list.dedup();
        }
        let hosts = finding.hosts.iter().map(|host| self.state.host_name(*host).to_owned());
        let names: Vec<String> = hosts.collect();
        let rank = finding.ranks.first().map_or_else(|| "<n>".to_owned(), u32::to_string);
        let one = names.first().cloned().unwrap_or_default();
        let advice = self.evidence.advice();
        finding.next.en = advice.complete(&finding.next.en);
        finding.next.zh = advice.complete(&finding.next.zh);
        finding.groups.insert("ssh".to_owned(), advice.ssh(&one));
        let known = [("one", one), ("on", names.join(",")), ("hosts", names.join(", ")), ("ranks", ranges(&finding.ranks)), ("rank", rank)];
        finding.groups.extend(known.map(|(name, text)| (name.to_owned(), text)));
    }

    /// A finding that no line gives, but what is known of all.
    fn known(&self, id: &str, groups: BTreeMap<String, String>, evidence: Vec<String>) -> Option<Finding> {
        let rule = self.rules.named(id)?;
        Some(self.finding(Verdict { rule, groups, evidence, hint: None }))
    }

    /// What a log says of its process.
    fn log(&self, host: u32, file: LogFile) -> Option<Verdict> {
        let seen = self.evidence.of(host, file)?;
        let recent: Vec<&Hit> = seen.hits.iter().filter(|hit| hit.last + BURST >= seen.lines).collect();
        let exception = |hit: &Hit| EXCEPTIONS.contains(&self.rules.all()[hit.rule].id.as_str());
        let earliest = |wanted: &dyn Fn(&Hit) -> bool| recent.iter().filter(|hit| wanted(hit)).min_by_key(|hit| (hit.first, hit.rule));
        let role = |hit: &Hit| self.rules.all()[hit.rule].role;
        let cause = earliest(&|hit| role(hit) == Role::Cause && !exception(hit));
        let felt = earliest(&|hit| matches!(role(hit), Role::Effect | Role::Wait));
        let plain = earliest(&exception);
        let hint = earliest(&|hit| role(hit) == Role::Hint);
        let chosen = match (cause, felt, plain) {
            (Some(cause), Some(felt), _) if cause.first <= felt.first + NEAR => cause,
            (Some(cause), None, _) => cause,
            (_, Some(felt), Some(plain)) if plain.first < felt.first => plain,
            (_, Some(felt), _) => felt,
            (None, None, Some(plain)) => plain,
            (None, None, None) => return hint.map(|hit| Verdict::of(hit)),
        };
        let waits = role(chosen) == Role::Wait;
        Some(Verdict { hint: hint.filter(|_| waits).map(|hit| Box::new(Verdict::of(hit))), ..Verdict::of(chosen) })
    }

    /// What an end says.
    fn end(&self, exit: Exit) -> Option<Verdict> {
        let (code, signal) = match exit {
            Exit::Code(code) => (Some(code), None),
            Exit::Signal(signal) => (None, Some(signal)),
            Exit::Killed => (None, Some(9)),
        };
        let rule = self.rules.end(code, signal)?;
        let number = code.or(signal).unwrap_or_default().to_string();
        let groups = BTreeMap::from([("code".to_owned(), number.clone()), ("signal".to_owned(), number)]);
        Some(Verdict { rule, groups, evidence: Vec::new(), hint: None })
    }

    fn rank(&self, rank: &RankState) -> Option<Verdict> {
        let log = self.log(rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart });
        log.or_else(|| self.machine(rank.host)).or_else(|| self.end(rank.exit?))
    }

    /// The ranks' findings: causes in the order of deaths, or whom the others waited for, or what they felt.
    fn ranks(&self) -> Vec<Finding> {
        let failed = self.state.failed_ranks();
        let blamed = |rank: &RankState| self.state.culprit.as_ref().is_some_and(|culprit| culprit.ranks.contains(&rank.rank));
        let mut told: Vec<(&RankState, Verdict)> = Vec::new();
        let mut silent: Vec<&RankState> = Vec::new();
        let (first, later): (Vec<&RankState>, Vec<&RankState>) = failed.iter().partition(|rank| blamed(rank));
        for rank in first.into_iter().chain(later) {
            match self.rank(rank) {
                Some(verdict) => told.push((rank, verdict)),
                None => silent.push(rank),
            }
        }
        // What those who were stopped by us said counts as felt, or as a cause that was about to kill them.
        let others = self.state.ranks.values().filter(|rank| failed.iter().all(|known| known.rank != rank.rank));
        let said: Vec<(&RankState, Verdict)> = others
            .filter_map(|rank| {
                let file = LogFile::Rank { rank: rank.rank, restart: rank.restart };
                self.log(rank.host, file).map(|verdict| (rank, verdict))
            })
            .collect();
        let felt: Vec<u32> = told
            .iter()
            .chain(&said)
            // An end alone says nothing: a launcher ends its other ranks as well.
            .filter(|(_, verdict)| matches!(self.role(verdict), Role::Effect | Role::Wait) && !verdict.evidence.is_empty())
            .map(|(rank, _)| rank.rank)
            .collect();
        let mut found: Vec<Finding> = Vec::new();
        let guilty = |verdict: &Verdict| matches!(self.role(verdict), Role::Cause | Role::Hint);
        let (causes, effects): (Vec<_>, Vec<_>) = told.into_iter().partition(|(_, verdict)| guilty(verdict));
        for (rank, verdict) in causes {
            self.add(&mut found, rank, verdict);
        }
        if !found.is_empty() {
            for (rank, verdict) in &said {
                let rule = &self.rules.all()[verdict.rule];
                if let Some(same) = found.iter_mut().find(|known| known.rule == rule.id && rule.role == Role::Cause) {
                    same.ranks.push(rank.rank);
                    same.hosts.push(rank.host);
                }
            }
        }
        if found.is_empty() {
            let waits = effects.iter().chain(&said).filter(|(_, verdict)| self.role(verdict) == Role::Wait);
            let named: Vec<&str> = waits.clone().filter_map(|(_, verdict)| verdict.groups.get("absent").map(String::as_str)).collect();
            if waits.count() > 0 {
                found.extend(self.missing(&felt, &named));
            }
        }
        if found.is_empty() {
            found.extend(self.silent(&silent));
        }
        if found.is_empty() {
            // Those who waited tell more than those who lost somebody.
            let (waits, others): (Vec<_>, Vec<_>) = effects.into_iter().partition(|(_, verdict)| self.role(verdict) == Role::Wait);
            for (rank, mut verdict) in waits.into_iter().chain(others) {
                let hint = verdict.hint.take().map(|hint| *hint);
                self.add(&mut found, rank, hint.unwrap_or(verdict));
            }
        }
        if let Some(first) = found.first_mut() {
            first.felt = felt.into_iter().filter(|rank| !first.ranks.contains(rank)).collect();
        }
        found
    }

    fn add(&self, found: &mut Vec<Finding>, rank: &RankState, verdict: Verdict) {
        let mut finding = self.finding(verdict);
        match found.iter_mut().find(|known| known.rule == finding.rule) {
            Some(known) => {
                known.ranks.push(rank.rank);
                known.hosts.push(rank.host);
            }
            None => {
                finding.ranks.push(rank.rank);
                finding.hosts.push(rank.host);
                found.push(finding);
            }
        }
    }

    /// Ranks that others waited for: they live, or lived until they were asked to end, and complain of nobody. Who waited may have `named` them.
    fn missing(&self, felt: &[u32], named: &[&str]) -> Option<Finding> {
        let asked = |exit: Option<Exit>| matches!(exit, None | Some(Exit::Signal(15) | Exit::Code(143)));
        let away = |rank: &&RankState| !felt.contains(&rank.rank) && (asked(rank.exit) || self.state.was_stopped(rank));
        let mut away: Vec<&RankState> = self.state.ranks.values().filter(away).collect();
        let named: Vec<u32> = named.iter().flat_map(|text| text.split(',')).filter_map(|text| text.trim().parse().ok()).collect();
        if away.iter().any(|rank| named.contains(&rank.rank)) {
            away.retain(|rank| named.contains(&rank.rank));
        }
        let first = away.first()?;
        let numbers: Vec<u32> = away.iter().map(|rank| rank.rank).collect();
        let hosts: Vec<u32> = away.iter().map(|rank| rank.host).collect();
        let last = first.tail.last(3).into_iter().rfind(|line| !line.trim().is_empty() && line != "Terminated");
        let mut finding = self.known("rank-missing", BTreeMap::new(), last.into_iter().collect())?;
        (finding.ranks, finding.hosts) = (numbers, hosts);
        Some(finding)
    }

    /// Ranks that failed and said nothing that a rule knows.
    fn silent(&self, silent: &[&RankState]) -> Option<Finding> {
        let first = silent.first()?;
        let Some(Exit::Code(code)) = first.exit else { return None };
        let groups = BTreeMap::from([("code".to_owned(), code.to_string())]);
        let mut finding = self.known("silent-exit", groups, first.tail.last(1))?;
        (finding.ranks, finding.hosts) = silent.iter().map(|rank| (rank.rank, rank.host)).unzip();
        Some(finding)
    }

    /// Launchers that failed before any rank of theirs.
    fn launchers(&self) -> Vec<Finding> {
        let Some(culprit) = self.state.culprit.as_ref().filter(|culprit| culprit.ranks.is_empty()) else { return Vec::new() };
        let mut found: Vec<Finding> = Vec::new();
        for host in &culprit.hosts {
            let exit = self.state.hosts.get(*host as usize).and_then(|known| known.node_exit).map(|(exit, _)| exit);
            let Some(verdict) = self.log(*host, LogFile::Node).or_else(|| self.machine(*host)).or_else(|| self.end(exit?)) else {
                continue;
            };
            self.join(&mut found, verdict, *host);
        }
        found
    }

    fn join(&self, found: &mut Vec<Finding>, verdict: Verdict, host: u32) {
        let finding = self.finding(verdict);
        match found.iter_mut().find(|known| known.rule == finding.rule) {
            Some(known) => known.hosts.push(host),
            None => found.push(Finding { hosts: vec![host], ..finding }),
        }
    }

    /// What docker, the kernel or the disks of a host say of a process that died there without a word of its own.
    fn machine(&self, host: u32) -> Option<Verdict> {
        let role = |hit: &Hit| self.rules.all()[hit.rule].role;
        let guilty = self.evidence.host(host).iter().filter(|hit| matches!(role(hit), Role::Cause | Role::Hint));
        guilty.min_by_key(|hit| (role(hit) == Role::Hint, hit.rule)).map(Verdict::of)
    }

    /// What hosts say besides; a fault of a GPU that the kernel tells comes before what CUDA and NCCL made of it.
    fn machines(&self, found: &mut Vec<Finding>) {
        let hosts: Vec<u32> = found.first().map(|first| first.hosts.clone()).unwrap_or_default();
        for (host, hit) in hosts.iter().flat_map(|host| self.evidence.host(*host).iter().map(move |hit| (*host, hit))) {
            let rule = &self.rules.all()[hit.rule];
            if rule.role != Role::Cause || found.iter().any(|known| known.rule == rule.id && known.hosts.contains(&host)) {
                continue;
            }
            let mut finding = self.finding(Verdict::of(hit));
            finding.hosts = vec![host];
            match found.first_mut() {
                Some(first) if rule.id == "xid" && !OF_PROGRAMS.contains(&xid(&finding)) && of_a_gpu(&first.rule) => {
                    (finding.ranks, finding.felt) = (first.ranks.clone(), std::mem::take(&mut first.felt));
                    found.insert(0, finding);
                }
                _ => found.push(finding),
            }
        }
    }

    /// Steps that failed with words that a rule knows.
    fn steps(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for step in self.state.failed_steps() {
            if let Some(verdict) = self.text(&step.note) {
                self.join(&mut found, verdict, step.info.host);
            }
        }
        found
    }

    /// Hosts that cannot be reached, with words that a rule knows.
    fn hosts(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for (at, host) in (0_u32..).zip(&self.state.hosts).filter(|(_, host)| host.liveness == Liveness::Unreachable) {
            if let Some(verdict) = self.text(&host.error) {
                self.join(&mut found, verdict, at);
            }
        }
        found
    }

    /// How the run seems to hang, as it was told.
    fn hang(&self) -> Option<Finding> {
        let (hang, at) = self.state.hang.as_ref()?;
        let id = match hang.sign {
            Sign::Missing => "hang-missing",
            Sign::Gone => "hang-gone",
            Sign::Spinning => "hang-spinning",
            Sign::Silent => "hang-silent",
            Sign::Late => "hang-late",
        };
        let groups = BTreeMap::from([("span".to_owned(), super::hang::span(at - hang.since))]);
        let finding = self.known(id, groups, hang.evidence.clone())?;
        Some(Finding { ranks: hang.ranks.clone(), hosts: hang.hosts.clone(), ..finding })
    }

    fn text(&self, text: &str) -> Option<Verdict> {
        text.lines().find_map(|line| {
            let (rule, groups) = self.rules.line(line.as_bytes())?;
            let verdict = Verdict { rule, groups, evidence: vec![line.to_owned()], hint: None };
            matches!(self.role(&verdict), Role::Cause).then_some(verdict)
        })
    }
}

fn xid(finding: &Finding) -> &str {
    finding.groups.get("xid").map_or("", String::as_str)
}

/// Whether a rule tells of what a fault of a GPU makes CUDA and NCCL say.
fn of_a_gpu(rule: &str) -> bool {
    ["cuda", "nccl", "gpu", "ecc"].iter().any(|word| rule.starts_with(word))
}

/// `1-3,7`.
fn ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let run = |(from, to): &(u32, u32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}
