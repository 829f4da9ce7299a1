//! Findings about hosts: launchers, steps, connections, post-mortems.

use super::super::DiagnosisFinding;
use super::super::evidence::RuleHit;
use super::{Diagnoser, ProcessDiagnosis};
use crate::event::LogFile;
use crate::inventory::diagnosis_rules::Blame;

/// Xids that programs cause, mostly: what CUDA says of them is nearer to the cause (NVIDIA, XID errors).
const APPLICATION_XIDS: [&str; 4] = ["13", "31", "43", "45"];

fn xid_code(finding: &DiagnosisFinding) -> &str {
    finding.values.matched.get("xid").map_or("", String::as_str)
}

/// Whether a rule matches errors of CUDA and NCCL that a GPU fault causes.
fn is_gpu_rule(rule: &str) -> bool {
    ["cuda", "nccl", "gpu", "ecc"].iter().any(|word| rule.starts_with(word))
}

impl Diagnoser<'_> {
    /// Launchers that failed before any of their ranks.
    pub(super) fn diagnose_launchers(&self) -> Vec<DiagnosisFinding> {
        let Some(culprit) = self.state.culprit.as_ref().filter(|culprit| culprit.ranks.is_empty()) else { return Vec::new() };
        let mut found: Vec<DiagnosisFinding> = Vec::new();
        for host in &culprit.hosts {
            let exit = self.state.hosts.get(*host as usize).and_then(|known| known.launcher_exit).map(|(exit, _)| exit);
            let Some(verdict) = self
                .diagnose_log(*host, LogFile::Launcher)
                .or_else(|| self.diagnose_postmortem(*host))
                .or_else(|| self.diagnose_exit(exit?))
            else {
                continue;
            };
            self.add_finding(&mut found, verdict, *host, None);
        }
        found
    }

    /// The evidence of docker, the kernel or the disks of a host for a process that died there without a message.
    pub(super) fn diagnose_postmortem(&self, host: u32) -> Option<ProcessDiagnosis> {
        let role = |hit: &RuleHit| self.rule(hit.rule_index).blame;
        let guilty = self.evidence.postmortem_hits(host).iter().filter(|hit| matches!(role(hit), Blame::Cause | Blame::PossibleCause));
        guilty.min_by_key(|hit| (role(hit) == Blame::PossibleCause, hit.rule_index)).map(ProcessDiagnosis::from_hit)
    }

    /// Findings from the hosts; a GPU fault that the kernel reports comes before the errors of CUDA and NCCL that it causes.
    pub(super) fn add_postmortem_findings(&self, findings: &mut Vec<DiagnosisFinding>) {
        let hosts: Vec<u32> = findings.first().map(|first| first.hosts.clone()).unwrap_or_default();
        for (host, hit) in hosts.iter().flat_map(|host| self.evidence.postmortem_hits(*host).iter().map(move |hit| (*host, hit))) {
            let rule = self.rule(hit.rule_index);
            if rule.blame != Blame::Cause || findings.iter().any(|known| known.rule == rule.id && known.hosts.contains(&host)) {
                continue;
            }
            let mut finding = self.build_finding(ProcessDiagnosis::from_hit(hit));
            finding.hosts = vec![host];
            match findings.first_mut() {
                Some(first) if rule.id == "xid" && !APPLICATION_XIDS.contains(&xid_code(&finding)) && is_gpu_rule(&first.rule) => {
                    (finding.ranks, finding.affected) = (first.ranks.clone(), std::mem::take(&mut first.affected));
                    findings.insert(0, finding);
                }
                _ => findings.push(finding),
            }
        }
    }

    /// What hosts or their steps say of their failure, in words that a rule knows.
    pub(super) fn diagnose_host_texts<'t>(&self, texts: impl Iterator<Item = (u32, &'t str)>) -> Vec<DiagnosisFinding> {
        let mut found = Vec::new();
        for (host, text) in texts {
            if let Some(verdict) = self.diagnose_text(text) {
                self.add_finding(&mut found, verdict, host, None);
            }
        }
        found
    }
}
