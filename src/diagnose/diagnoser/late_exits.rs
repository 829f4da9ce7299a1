//! Findings about ranks that failed, but ended after the peers that lost them.

use super::super::DiagnosisFinding;
use super::{Diagnoser, GENERIC_EXCEPTION_RULES, RankDiagnosis};
use crate::event::Exit;
use crate::inventory::diagnosis_rules::Blame;

/// How many lines after the exception that ended a process, warnings of its end among them, may follow.
const MAX_LINES_AFTER_LAST_EXCEPTION: u64 = 20;
/// What a process may print only because it is stopped.
const RULES_OF_A_STOP: [&str; 2] = ["interrupted", "dl-killed"];

impl Diagnoser<'_> {
    /// The causes in the logs of ranks that were stopped. A process that failed may need seconds to end after its connections are closed: its
    /// peers can exit before it does. What only the stop may have caused is left out, and an exception after which the process went on.
    pub(super) fn add_causes_of_late_exits(&self, findings: &mut Vec<DiagnosisFinding>, others: &[RankDiagnosis<'_>]) {
        for (rank, diagnosis) in others.iter().filter(|(rank, _)| rank.has_failed()) {
            let rule = self.rule(diagnosis.rule_index);
            let explains = if GENERIC_EXCEPTION_RULES.contains(&rule.id.as_str()) {
                diagnosis.lines_after <= MAX_LINES_AFTER_LAST_EXCEPTION
            } else {
                matches!(rank.exit, Some(Exit::Code(1..=127))) && !RULES_OF_A_STOP.contains(&rule.id.as_str())
            };
            if rule.blame == Blame::Cause && explains {
                self.add_finding(findings, diagnosis.clone(), rank.host, Some(rank.rank));
            }
        }
    }
}
