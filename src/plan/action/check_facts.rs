//! What must hold before anything changes, judged from the facts; and the way from each worker to the master's port.

use std::time::Duration;

use crate::inventory::{self, ContainerGpus, GpuSelection};
use crate::plan::action::{Execution, Issue, Observation};
use crate::plan::facts::{DockerStatus, HostFacts};
use crate::plan::host_context::HostContext;

/// Bytes that must be free under the run directory: a rank whose log cannot grow dies.
const MIN_FREE_KIB: u64 = 1 << 20;

/// Judges one host's facts.
#[derive(Debug, Clone)]
pub struct CheckFacts {
    /// Where.
    pub context: HostContext,
    /// The container that will be made; `None`: bare host.
    pub container: Option<inventory::ContainerSettings>,
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
    pub failures: Vec<(&'static str, Issue)>,
    /// How many passed, and how many warn.
    pub pass_warn_counts: (usize, usize),
}

/// Checks that see what is judged from the facts as well; it is told once.
const CHECKS_COVERED_BY_FACTS: [&str; 6] = ["docker", "container-name", "disk", "gpu-count", "mounts", "master-port"];

impl CheckFacts {
    pub(super) fn observe(&self, facts: &HostFacts) -> Observation {
        let mut troubles = Vec::new();
        self.check_docker(facts, &mut troubles);
        self.check_gpus(facts, &mut troubles);
        self.check_disk(facts, &mut troubles);
        let host = &self.context.host;
        for (path, _) in facts.existing_mounts.iter().filter(|(_, there)| !**there) {
            troubles.push(Issue::new(
                format!("{path} is not on {host}"),
                "correct container.mounts, make it on the host, or give the mount `create: true`",
            ));
        }
        if let Some(port) = self.port.filter(|p| facts.busy_ports.contains(p)) {
            troubles.push(Issue::new(
                format!("port {port} is already in use on the master {host}"),
                format!("choose another launch.master_port, or end what listens there: `ss -ltnp 'sport = :{port}'`"),
            ));
        }
        let told = !troubles.is_empty();
        let more = self.check_summary.failures.iter().filter(|(name, _)| !(told && CHECKS_COVERED_BY_FACTS.contains(name)));
        troubles.extend(more.map(|(_, trouble)| trouble.clone()));
        if troubles.is_empty() { Observation::Satisfied(self.summary(facts)) } else { Observation::Impossible(troubles) }
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

    fn check_docker(&self, facts: &HostFacts, troubles: &mut Vec<Issue>) {
        if self.container.is_none() {
            return;
        }
        let host = &self.context.host;
        if let DockerStatus::Unusable(says) = &facts.docker {
            troubles.push(docker_issue(says, host, &facts.user, self.context.docker_needs_sudo));
        }
        if let Some(labels) = &facts.name_holder
            && *labels != format!("{}/{}", self.context.name, host)
        {
            troubles.push(Issue::new(
                format!("the name {} is taken on {host} by a container that is not ours", self.context.container_name()),
                format!("look at it with `docker inspect {}`; rename or remove it, or change `name:`", self.context.container_name()),
            ));
        }
    }

    fn check_gpus(&self, facts: &HostFacts, troubles: &mut Vec<Issue>) {
        let wants = match &self.container {
            Some(c) => c.gpus != ContainerGpus::None,
            None => self.gpus != GpuSelection::Any || !facts.gpu_lines.is_empty(),
        };
        if !wants {
            return;
        }
        let host = &self.context.host;
        let there = u32::try_from(facts.gpu_lines.len()).unwrap_or(u32::MAX);
        let needed = match (&self.gpus, self.container.as_ref().map(|c| &c.gpus)) {
            (_, Some(ContainerGpus::List(list))) => list.iter().max().map_or(0, |m| m + 1),
            (_, Some(ContainerGpus::Count(n))) => *n,
            (GpuSelection::List(list), _) => list.iter().max().map_or(0, |m| m + 1),
            (GpuSelection::Count(n), _) => *n,
            (GpuSelection::Any, _) => self.nproc,
        };
        if let Some(ContainerGpus::Count(count)) = self.container.as_ref().map(|c| &c.gpus) {
            let idle = super::container::choose_gpus(*count, &self.gpus, facts.idle_gpus().as_deref()).len();
            if there >= *count && idle < *count as usize {
                let hint = "wait for the others' work to end (`nvidia-smi` there names it), or lower container.gpus";
                troubles.push(Issue::new(format!("{idle} of {there} GPUs on {host} are idle, {count} needed"), hint));
            }
        }
        if there < needed.max(1) {
            let why = facts.gpu_error.as_ref().map(|e| format!(": {e}")).unwrap_or_default();
            troubles.push(Issue::new(
                format!("{there} GPUs on {host}, {needed} needed{why}"),
                "check `nvidia-smi -L` there; lower launch.nproc_per_node or hosts[].gpus, or set container.gpus: none for a CPU run",
            ));
        }
    }

    fn check_disk(&self, facts: &HostFacts, troubles: &mut Vec<Issue>) {
        let host = &self.context.host;
        if !facts.is_writable {
            troubles.push(Issue::new(
                format!("{} cannot be made on {host}: {} is not writable for {}", facts.run_dir, facts.nearest_dir, facts.user),
                "set run_dir to a directory that the ssh user owns",
            ));
        }
        if facts.disk_kib.1 > 0 && facts.disk_kib.0 < MIN_FREE_KIB {
            troubles.push(Issue::new(
                format!("{} MiB free under {} on {host}, 1024 needed", facts.disk_kib.0 / 1024, facts.run_dir),
                "free space there, or set run_dir to another disk",
            ));
        }
    }
}

/// What is wrong with docker, in words that say what to do.
pub fn docker_issue(says: &str, host: &str, user: &str, sudo: bool) -> Issue {
    let says = says.trim();
    let low = says.to_lowercase();
    if sudo && (low.contains("password is required") || low.contains("a terminal is required") || low.contains("not allowed")) {
        return Issue::new(
            format!("{user} may not run docker through `sudo -n` on {host}: {says}"),
            "allow it in sudoers with NOPASSWD, or set ssh.become: none",
        );
    }
    if low.contains("not found") {
        return Issue::new(
            format!("there is no docker on {host}"),
            "install docker there, or leave `container` out to run on the bare host",
        );
    }
    if low.contains("permission denied") {
        return Issue::new(
            format!("{user} may not use docker on {host}: {says}"),
            format!("`sudo usermod -aG docker {user}` there and log in again, or set ssh.become: sudo"),
        );
    }
    if low.contains("cannot connect") || low.contains("is the docker daemon running") {
        return Issue::new(format!("the docker daemon on {host} does not answer: {says}"), "`sudo systemctl start docker` there");
    }
    Issue::new(format!("docker on {host} is not usable: {says}"), "try `docker version` there")
}

/// Tries whether the master's port can be reached from a worker, through that worker's own sshd.
#[derive(Debug, Clone)]
pub struct ReachMaster {
    /// The master's fabric address.
    pub address: String,
    /// The rendezvous port.
    pub port: u16,
}

impl ReachMaster {
    pub(super) fn execution(&self) -> Execution {
        Execution::Connect { address: self.address.clone(), port: self.port, timeout: Duration::from_secs(6) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_errors_have_specific_hints() {
        for (says, expected) in [
            ("sh: 1: docker: not found", "there is no docker"),
            ("permission denied while trying to connect to the Docker daemon socket", "may not use docker"),
            ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "does not answer"),
        ] {
            let trouble = docker_issue(says, "gpu01", "li", false);
            assert!(trouble.message.contains(expected), "{}", trouble.message);
            assert!(!trouble.hint.is_empty());
        }
    }
}
