//! The diagnosis: the first cause, then other problems; ranks that were only affected are folded below.
//!
//! A rank's verdict comes from its log, else from its end. Among ranks the one that died first by corrected clocks decides, but one that
//! merely lost or missed another never hides the one that it lost.

mod host_findings;
mod late_exits;

use std::collections::BTreeMap;

use crate::event::{Exit, HangSymptom, LogFile, Outcome};
use crate::inventory::diagnosis_rules::{Blame, DiagnosisRule};
use crate::state::{RankState, RunState};
use crate::text::duration::format_rounded;
use crate::text::hostlist::fold_numbers;

use super::evidence::{Evidence, MAX_BURST_GAP, RuleHit};
use super::rule_set::RuleSet;
use super::{DiagnosisFinding, TemplateValues};

/// How many lines after an effect a cause may be printed and still be the cause.
const MAX_CAUSE_DELAY_LINES: u64 = 40;
/// How many findings there are at most.
const MAX_FINDINGS: usize = 20;
/// The rules of exceptions that no other rule knows.
const GENERIC_EXCEPTION_RULES: [&str; 2] = ["python-exception", "cpp-exception"];

/// What one rank, launcher or host says of itself.
#[derive(Clone)]
struct ProcessDiagnosis {
    rule_index: usize,
    groups: BTreeMap<String, String>,
    evidence: Vec<String>,
    /// How many lines of its log followed.
    lines_after: u64,
    /// The possible cause if no certain one was found.
    possible_cause: Option<Box<ProcessDiagnosis>>,
}

type RankDiagnosis<'a> = (&'a RankState, ProcessDiagnosis);

impl ProcessDiagnosis {
    fn new(rule_index: usize, groups: BTreeMap<String, String>, evidence: Vec<String>) -> ProcessDiagnosis {
        ProcessDiagnosis { rule_index, groups, evidence, lines_after: 0, possible_cause: None }
    }

    fn from_hit(hit: &RuleHit) -> ProcessDiagnosis {
        ProcessDiagnosis::new(hit.rule_index, hit.groups.clone(), vec![hit.text.clone()])
    }
}

/// All findings, the first cause first.
pub fn diagnose_run(evidence: &Evidence, state: &RunState) -> Vec<DiagnosisFinding> {
    let mut lost = state.unreachable_hosts().map(|(at, host)| (at, host.connection_error.as_str())).peekable();
    let hangs = state.hang.is_some() && !matches!(state.outcome, Some((Outcome::Ok, _)));
    if !hangs
        && state.culprit.is_none()
        && lost.peek().is_none()
        && state.failed_steps().next().is_none()
        && state.failed_ranks().is_empty()
    {
        return Vec::new();
    }
    let Some(rules) = evidence.rules() else { return Vec::new() };
    let diagnoser = Diagnoser { rules, evidence, state };
    let mut findings = diagnoser.diagnose_ranks();
    findings.extend(diagnoser.diagnose_launchers());
    findings.extend(diagnoser.diagnose_host_texts(state.failed_steps().map(|step| (step.info.host, step.note.as_str()))));
    findings.extend(diagnoser.diagnose_host_texts(lost));
    diagnoser.add_postmortem_findings(&mut findings);
    findings.extend(diagnoser.diagnose_hang().filter(|_| hangs));
    findings.truncate(MAX_FINDINGS);
    for finding in &mut findings {
        diagnoser.fill_location(finding);
    }
    findings
}

struct Diagnoser<'a> {
    rules: &'a RuleSet,
    evidence: &'a Evidence,
    state: &'a RunState,
}

impl Diagnoser<'_> {
    fn rule(&self, index: usize) -> &DiagnosisRule {
        &self.rules.rules()[index]
    }

    fn blame(&self, diagnosis: &ProcessDiagnosis) -> Blame {
        self.rule(diagnosis.rule_index).blame
    }

    fn build_finding(&self, diagnosis: ProcessDiagnosis) -> DiagnosisFinding {
        let rule = self.rule(diagnosis.rule_index);
        DiagnosisFinding {
            rule: rule.id.clone(),
            blame: rule.blame,
            ranks: Vec::new(),
            hosts: Vec::new(),
            evidence: diagnosis.evidence,
            values: TemplateValues { matched: diagnosis.groups, ..TemplateValues::default() },
            summary: rule.summary.clone(),
            explanation: rule.explanation.clone(),
            next_step: rule.next_step.clone(),
            affected: Vec::new(),
        }
    }

    /// What every text may name: where it was, and the rank that failed first, or else the first of its ranks.
    fn fill_location(&self, finding: &mut DiagnosisFinding) {
        for list in [&mut finding.ranks, &mut finding.hosts, &mut finding.affected] {
            list.sort_unstable();
            list.dedup();
        }
        let hosts = finding.hosts.iter().map(|host| self.state.host_name(*host).to_owned());
        let names: Vec<String> = hosts.collect();
        let failed_first = self.state.culprit.iter().flat_map(|culprit| &culprit.ranks).find(|rank| finding.ranks.contains(rank));
        let rank = failed_first.or(finding.ranks.first()).map_or_else(|| "<n>".to_owned(), u32::to_string);
        let one = names.first().cloned().unwrap_or_default();
        let advice = self.evidence.advice_formatter();
        finding.next_step.en = advice.complete_commands(&finding.next_step.en);
        finding.next_step.zh = advice.complete_commands(&finding.next_step.zh);
        let known = [
            ("ssh", advice.ssh_args(&one)),
            ("one", one),
            ("on", names.join(",")),
            ("hosts", names.join(", ")),
            ("ranks", fold_numbers(&finding.ranks)),
            ("rank", rank),
        ];
        finding.values.known = known.map(|(name, text)| (name.to_owned(), text)).into();
    }

    /// A finding that no line gives, but what is known of all.
    fn build_finding_by_id(&self, id: &str, groups: BTreeMap<String, String>, evidence: Vec<String>) -> Option<DiagnosisFinding> {
        let rule = self.rules.find_rule(id)?;
        Some(self.build_finding(ProcessDiagnosis::new(rule, groups, evidence)))
    }

    /// What a log says of its process.
    fn diagnose_log(&self, host: u32, file: LogFile) -> Option<ProcessDiagnosis> {
        let seen = self.evidence.log_scan(host, file)?;
        let recent: Vec<&RuleHit> = seen.hits.iter().filter(|hit| hit.last_line + MAX_BURST_GAP >= seen.line_count).collect();
        let exception = |hit: &RuleHit| GENERIC_EXCEPTION_RULES.contains(&self.rule(hit.rule_index).id.as_str());
        let earliest =
            |wanted: &dyn Fn(&RuleHit) -> bool| recent.iter().filter(|hit| wanted(hit)).min_by_key(|hit| (hit.first_line, hit.rule_index));
        let role = |hit: &RuleHit| self.rule(hit.rule_index).blame;
        let cause = earliest(&|hit| role(hit) == Blame::Cause && !exception(hit));
        let felt = earliest(&|hit| matches!(role(hit), Blame::Effect | Blame::PeerTimeout));
        let plain = earliest(&exception);
        let hint = earliest(&|hit| role(hit) == Blame::PossibleCause);
        let chosen = match (cause, felt, plain) {
            (Some(cause), Some(felt), _) if cause.first_line <= felt.first_line + MAX_CAUSE_DELAY_LINES => cause,
            (Some(cause), None, _) => cause,
            (_, Some(felt), Some(plain)) if plain.first_line < felt.first_line => plain,
            (_, Some(felt), _) => felt,
            (None, None, Some(plain)) => plain,
            (None, None, None) => return hint.map(|hit| ProcessDiagnosis::from_hit(hit)),
        };
        let waits = role(chosen) == Blame::PeerTimeout;
        Some(ProcessDiagnosis {
            lines_after: seen.line_count.saturating_sub(chosen.last_line + 1),
            possible_cause: hint.filter(|_| waits).map(|hit| Box::new(ProcessDiagnosis::from_hit(hit))),
            ..ProcessDiagnosis::from_hit(chosen)
        })
    }

    /// What an end says.
    fn diagnose_exit(&self, exit: Exit) -> Option<ProcessDiagnosis> {
        let rule = self.rules.match_exit(exit)?;
        let number = match exit {
            Exit::Code(number) | Exit::Signal(number) => number.to_string(),
            Exit::Killed => "9".to_owned(),
        };
        let groups = BTreeMap::from([("code".to_owned(), number.clone()), ("signal".to_owned(), number)]);
        Some(ProcessDiagnosis::new(rule, groups, Vec::new()))
    }

    fn diagnose_rank(&self, rank: &RankState) -> Option<ProcessDiagnosis> {
        let (host, file) = rank.log();
        let log = self.diagnose_log(host, file);
        log.or_else(|| self.diagnose_postmortem(rank.host)).or_else(|| self.diagnose_exit(rank.exit?))
    }

    /// The ranks' findings: the causes in the order of the exits; if the first ones only lost a peer, the causes in the logs of the stopped
    /// ranks; else the ranks that the others waited for, failures without a known message, or the effects.
    fn diagnose_ranks(&self) -> Vec<DiagnosisFinding> {
        let failed = self.state.failed_ranks();
        let (diagnosed, unexplained) = self.diagnose_failed_ranks(&failed);
        let others = self.diagnose_other_ranks();
        let affected: Vec<u32> = diagnosed
            .iter()
            .chain(&others)
            // An exit alone proves nothing: a launcher ends its other ranks as well.
            .filter(|(_, diagnosis)| matches!(self.blame(diagnosis), Blame::Effect | Blame::PeerTimeout) && !diagnosis.evidence.is_empty())
            .map(|(rank, _)| rank.rank)
            .collect();
        let is_cause = |diagnosis: &ProcessDiagnosis| matches!(self.blame(diagnosis), Blame::Cause | Blame::PossibleCause);
        let (causes, effects): (Vec<_>, Vec<_>) = diagnosed.into_iter().partition(|(_, diagnosis)| is_cause(diagnosis));
        let mut findings: Vec<DiagnosisFinding> = Vec::new();
        for (rank, diagnosis) in causes {
            self.add_finding(&mut findings, diagnosis, rank.host, Some(rank.rank));
        }
        let only_lost_peers =
            unexplained.is_empty() && !effects.is_empty() && effects.iter().all(|(_, end)| self.blame(end) == Blame::Effect);
        if findings.is_empty() && only_lost_peers {
            self.add_causes_of_late_exits(&mut findings, &others);
        }
        self.add_ranks_with_same_cause(&mut findings, &others);
        if findings.is_empty() {
            findings.extend(self.diagnose_peer_timeouts(effects.iter().chain(&others), &affected));
        }
        if findings.is_empty() {
            findings.extend(self.diagnose_unexplained_failures(&unexplained));
        }
        if findings.is_empty() {
            self.add_effects(&mut findings, effects);
        }
        if let Some(first) = findings.first_mut() {
            first.affected = affected.into_iter().filter(|rank| !first.ranks.contains(rank)).collect();
        }
        findings
    }

    /// The failed ranks with their diagnosis, those that failed first before the others; and the ranks without one.
    fn diagnose_failed_ranks<'s>(&self, failed: &[&'s RankState]) -> (Vec<RankDiagnosis<'s>>, Vec<&'s RankState>) {
        let is_culprit = |rank: &RankState| self.state.culprit.as_ref().is_some_and(|culprit| culprit.ranks.contains(&rank.rank));
        let (first, later): (Vec<&RankState>, Vec<&RankState>) = failed.iter().copied().partition(|rank| is_culprit(rank));
        let (mut diagnosed, mut unexplained) = (Vec::new(), Vec::new());
        for rank in first.into_iter().chain(later) {
            match self.diagnose_rank(rank) {
                Some(diagnosis) => diagnosed.push((rank, diagnosis)),
                None => unexplained.push(rank),
            }
        }
        (diagnosed, unexplained)
    }

    /// What the logs of the ranks show that did not fail by themselves: an effect, or a cause that was about to end them.
    fn diagnose_other_ranks(&self) -> Vec<RankDiagnosis<'_>> {
        let others = self.state.ranks.values().filter(|rank| !rank.has_failed() || rank.was_stopped);
        others
            .filter_map(|rank| {
                let (host, file) = rank.log();
                self.diagnose_log(host, file).map(|diagnosis| (rank, diagnosis))
            })
            .collect()
    }

    fn add_ranks_with_same_cause(&self, findings: &mut [DiagnosisFinding], others: &[RankDiagnosis<'_>]) {
        for (rank, diagnosis) in others {
            let rule = self.rule(diagnosis.rule_index);
            if let Some(same) = findings.iter_mut().find(|finding| finding.rule == rule.id && rule.blame == Blame::Cause) {
                same.ranks.push(rank.rank);
                same.hosts.push(rank.host);
            }
        }
    }

    /// The ranks that others waited for in vain, if any did: they live, or lived until the stop, and report no missing peer.
    fn diagnose_peer_timeouts<'s>(
        &self,
        diagnosed: impl Iterator<Item = &'s RankDiagnosis<'s>>,
        affected: &[u32],
    ) -> Option<DiagnosisFinding> {
        let mut timeouts =
            diagnosed.map(|(_, diagnosis)| diagnosis).filter(|diagnosis| self.blame(diagnosis) == Blame::PeerTimeout).peekable();
        timeouts.peek()?;
        // The waiting ranks may name them.
        let named: Vec<u32> = timeouts
            .filter_map(|diagnosis| diagnosis.groups.get("absent"))
            .flat_map(|text| text.split(','))
            .filter_map(|text| text.trim().parse().ok())
            .collect();
        let asked = |exit: Option<Exit>| matches!(exit, None | Some(Exit::TERM | Exit::Code(143)));
        let away = |rank: &&RankState| !affected.contains(&rank.rank) && (asked(rank.exit) || rank.was_stopped);
        let mut away: Vec<&RankState> = self.state.ranks.values().filter(away).collect();
        if away.iter().any(|rank| named.contains(&rank.rank)) {
            away.retain(|rank| named.contains(&rank.rank));
        }
        let first = away.first()?;
        let last = first.recent_lines.last_lines(3).into_iter().rfind(|line| !line.trim().is_empty() && line != "Terminated");
        let mut finding = self.build_finding_by_id("rank-missing", BTreeMap::new(), last.into_iter().collect())?;
        (finding.ranks, finding.hosts) = away.iter().map(|rank| (rank.rank, rank.host)).unzip();
        Some(finding)
    }

    /// Timeouts come first: they are more specific than a lost peer.
    fn add_effects(&self, findings: &mut Vec<DiagnosisFinding>, effects: Vec<RankDiagnosis<'_>>) {
        let (timeouts, others): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|(_, diagnosis)| self.blame(diagnosis) == Blame::PeerTimeout);
        for (rank, mut diagnosis) in timeouts.into_iter().chain(others) {
            let possible_cause = diagnosis.possible_cause.take().map(|cause| *cause);
            self.add_finding(findings, possible_cause.unwrap_or(diagnosis), rank.host, Some(rank.rank));
        }
    }

    /// Adds to the finding of the same rule, if there is one.
    fn add_finding(&self, findings: &mut Vec<DiagnosisFinding>, diagnosis: ProcessDiagnosis, host: u32, rank: Option<u32>) {
        let finding = self.build_finding(diagnosis);
        let at = findings.iter().position(|known| known.rule == finding.rule).unwrap_or_else(|| {
            findings.push(finding);
            findings.len() - 1
        });
        findings[at].hosts.push(host);
        findings[at].ranks.extend(rank);
    }

    /// Ranks that failed without a line that matches a rule.
    fn diagnose_unexplained_failures(&self, silent: &[&RankState]) -> Option<DiagnosisFinding> {
        let first = silent.first()?;
        let Some(Exit::Code(code)) = first.exit else { return None };
        let groups = BTreeMap::from([("code".to_owned(), code.to_string())]);
        let mut finding = self.build_finding_by_id("silent-exit", groups, first.recent_lines.last_line().into_iter().collect())?;
        (finding.ranks, finding.hosts) = silent.iter().map(|rank| (rank.rank, rank.host)).unzip();
        Some(finding)
    }

    /// The reported hang of the run.
    fn diagnose_hang(&self) -> Option<DiagnosisFinding> {
        let (hang, at) = self.state.hang.as_ref()?;
        let id = match hang.symptom {
            HangSymptom::RankMissing => "hang-missing",
            HangSymptom::RankExited => "hang-gone",
            HangSymptom::Spinning => "hang-spinning",
            HangSymptom::Silent => "hang-silent",
            HangSymptom::NotReady => "hang-late",
        };
        let groups = BTreeMap::from([("span".to_owned(), format_rounded(at - hang.since))]);
        let finding = self.build_finding_by_id(id, groups, hang.evidence.clone())?;
        Some(DiagnosisFinding { ranks: hang.ranks.clone(), hosts: hang.hosts.clone(), ..finding })
    }

    fn diagnose_text(&self, text: &str) -> Option<ProcessDiagnosis> {
        text.lines().find_map(|line| {
            let (rule, groups) = self.rules.match_line(line.as_bytes())?;
            (self.rule(rule).blame == Blame::Cause).then(|| ProcessDiagnosis::new(rule, groups, vec![line.to_owned()]))
        })
    }
}
