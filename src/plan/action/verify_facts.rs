//! What must hold before anything changes, judged from the facts, and what the checks found.

use crate::inventory::{ContainerGpus, ContainerSettings, GpuSelection};
use crate::plan::action::{Issue, Observation};
use crate::plan::fact_rules::{self, docker_issue, mount_missing};
use crate::plan::facts::{DockerStatus, HostFacts};
use crate::plan::host_context::HostContext;

/// Judges one host's facts.
#[derive(Debug, Clone)]
pub struct VerifyHostFacts {
    pub context: HostContext,
    /// The container that will be made; `None`: bare host.
    pub container: Option<ContainerSettings>,
    /// What the inventory says of the host's GPUs.
    pub gpus: GpuSelection,
    /// Worker processes on this host.
    pub nproc: u32,
    /// The rendezvous port, on the master.
    pub port: Option<u16>,
    /// What the checks found on this host.
    pub check_summary: HostCheckSummary,
}

/// What the checks of preflight found on one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostCheckSummary {
    /// The failures, with the check's name.
    pub failures: Vec<CheckIssue>,
    /// How many passed, and how many warn.
    pub pass_warn_counts: (usize, usize),
}

/// A problem, with the name of the check that judges it.
type CheckIssue = (&'static str, Issue);

impl VerifyHostFacts {
    pub(super) fn observe(&self, facts: &HostFacts) -> Observation {
        let mut troubles = Vec::new();
        self.check_docker(facts, &mut troubles);
        self.check_gpus(facts, &mut troubles);
        self.check_disk(facts, &mut troubles);
        let host = &self.context.host;
        let missing =
            facts.existing_mounts.iter().filter(|(_, there)| !**there).map(|(path, _)| mount_missing(path, &self.mount_target(path)));
        let port = self.port.and_then(|port| fact_rules::master_port_in_use(facts, port, host));
        troubles.extend(missing.map(|problem| ("mounts", problem.into_issue())));
        troubles.extend(port.map(|problem| ("master-port", problem.into_issue())));
        // What the facts show and a check as well is reported once.
        let is_new = |(name, _): &&CheckIssue| !troubles.iter().any(|(known, _)| known == name);
        let more: Vec<CheckIssue> = self.check_summary.failures.iter().filter(is_new).cloned().collect();
        troubles.extend(more);
        if troubles.is_empty() {
            Observation::Satisfied(self.summary(facts))
        } else {
            Observation::Impossible(troubles.into_iter().map(|(_, issue)| issue).collect())
        }
    }

    /// Where the container has the mount of this source, whose `~` the host has expanded.
    fn mount_target(&self, source: &str) -> String {
        let mounts = self.container.iter().flat_map(|container| &container.mounts);
        let is_source = |own: &str| own == source || own.strip_prefix('~').is_some_and(|rest| source.ends_with(rest));
        mounts.into_iter().find(|mount| is_source(&mount.source)).map_or_else(|| "…".to_owned(), |mount| mount.target.clone())
    }

    fn summary(&self, facts: &HostFacts) -> String {
        let gpus = match facts.gpu_lines.len() {
            0 => "no GPUs".to_owned(),
            1 => "1 GPU".to_owned(),
            n => format!("{n} GPUs"),
        };
        let checks = match self.check_summary.pass_warn_counts {
            (0, 0) => String::new(),
            (passed, 0) => format!(", {passed} checks passed"),
            (passed, 1) => format!(", {passed} checks passed, 1 warning"),
            (passed, warn) => format!(", {passed} checks passed, {warn} warnings"),
        };
        match &facts.docker {
            DockerStatus::Usable(version) if self.container.is_some() => format!("docker {version}, {gpus}{checks}"),
            _ => format!("{gpus}{checks}"),
        }
    }

    fn check_docker(&self, facts: &HostFacts, issues: &mut Vec<CheckIssue>) {
        if self.container.is_none() {
            return;
        }
        let host = &self.context.host;
        if let DockerStatus::Unusable(message) = &facts.docker {
            issues.push(("docker", docker_issue(message, host, &facts.user, self.context.docker_needs_sudo)));
        }
        issues.extend(fact_rules::container_name_taken(facts, &self.context).map(|problem| ("container-name", problem.into_issue())));
    }

    fn check_gpus(&self, facts: &HostFacts, issues: &mut Vec<CheckIssue>) {
        let container = self.container.as_ref();
        if !fact_rules::uses_gpus(container, &self.gpus, facts) {
            return;
        }
        let host = &self.context.host;
        let there = u32::try_from(facts.gpu_lines.len()).unwrap_or(u32::MAX);
        let needed = fact_rules::required_gpu_count(container, &self.gpus, self.nproc);
        if let Some(ContainerGpus::Count(count)) = container.map(|c| &c.gpus) {
            let idle = super::gpus_flag::choose_gpus(*count, &self.gpus, facts.idle_gpus().as_deref()).len();
            if there >= *count && idle < *count as usize {
                let hint = "wait for the other jobs to end (`nvidia-smi` on that host lists them), or lower container.gpus";
                issues.push(("gpu-idle", Issue::new(format!("{idle} of {there} GPUs on {host} are idle, {count} needed"), hint)));
            }
        }
        if there < needed.max(1) {
            let why = facts.gpu_error.as_ref().map(|e| format!(": {e}")).unwrap_or_default();
            let issue = Issue::new(
                format!("{there} GPUs on {host}, {needed} needed{why}"),
                "check `nvidia-smi -L` there; lower launch.nproc_per_node or hosts[].gpus, or set container.gpus: none for a CPU run",
            );
            issues.push(("gpu-count", issue));
        }
    }

    fn check_disk(&self, facts: &HostFacts, issues: &mut Vec<CheckIssue>) {
        let host = &self.context.host;
        if !facts.is_writable {
            let issue = Issue::new(
                format!("cannot create {} on {host}: {} is not writable for {}", facts.run_dir, facts.nearest_dir, facts.user),
                "set run_dir to a directory that the ssh user owns",
            );
            issues.push(("run-dir", issue));
        }
        if facts.disk_kib.1 > 0 && facts.disk_kib.0 < fact_rules::MIN_FREE_KIB {
            let issue = Issue::new(
                format!("{} MiB free under {} on {host}, 1024 needed", facts.disk_kib.0 / 1024, facts.run_dir),
                "free space on that host, or set run_dir to another disk",
            );
            issues.push(("disk", issue));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_failure_is_left_out_only_where_a_fact_shows_the_same() {
        let failures = ["disk", "mounts", "gpu-idle"].map(|name| (name, Issue::new(name, ""))).to_vec();
        let step = VerifyHostFacts {
            context: HostContext::new("n", "h", "/r"),
            container: None,
            gpus: GpuSelection::Any,
            nproc: 1,
            port: None,
            check_summary: HostCheckSummary { failures, pass_warn_counts: (0, 0) },
        };
        let facts = HostFacts { is_writable: true, existing_mounts: [("/data".to_owned(), false)].into(), ..HostFacts::default() };
        let Observation::Impossible(issues) = step.observe(&facts) else { panic!("it passed") };
        assert_eq!(issues.iter().map(|issue| issue.message.as_str()).collect::<Vec<_>>(), ["/data is missing", "disk", "gpu-idle"]);
    }
}
