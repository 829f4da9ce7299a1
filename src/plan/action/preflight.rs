//! What must hold before anything changes, judged from the facts; and the way from each worker to the master's port.

use std::time::Duration;

use crate::inventory::{self, ContainerGpus, Gpus};
use crate::plan::action::{Do, Seen, Trouble};
use crate::plan::check::Answer;
use crate::plan::facts::{Docker, HostFacts};
use crate::plan::site::Site;
use crate::plan::words::Level;

/// Bytes that must be free under the run directory: a rank whose log cannot grow dies.
const MIN_FREE_KIB: u64 = 1 << 20;

/// Judges one host's facts.
#[derive(Debug, Clone)]
pub struct Check {
    /// Where.
    pub site: Site,
    /// The container that will be made; `None`: bare host.
    pub container: Option<inventory::Container>,
    /// What the inventory says of the host's GPUs.
    pub gpus: Gpus,
    /// Worker processes on this host.
    pub nproc: u32,
    /// The rendezvous port, on the master.
    pub port: Option<u16>,
    /// What the checks found on this host.
    pub found: Found,
}

/// What the checks of preflight found on one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// The failures, with the check's name.
    pub failed: Vec<(&'static str, Trouble)>,
    /// How many passed, and how many warn.
    pub counts: (usize, usize),
}

/// Checks that see what is judged from the facts as well; it is told once.
const COVERED: [&str; 6] = ["docker", "container-name", "disk", "gpu-count", "mounts", "master-port"];

impl Found {
    /// This host's part.
    pub fn of(answers: &[Answer], host: usize) -> Found {
        let mut found = Found::default();
        for answer in answers {
            let Some((_, cell)) = answer.cells.iter().find(|(h, _)| *h == host) else { continue };
            match cell.level {
                Level::Pass => found.counts.0 += 1,
                Level::Warn => found.counts.1 += 1,
                Level::Fail => {
                    found.failed.push((answer.check.name, Trouble::new(format!("{}: {}", answer.check.name, cell.what), &cell.hint)));
                }
                Level::Skipped => {}
            }
        }
        found
    }
}

impl Check {
    pub(super) fn observe(&self, facts: &HostFacts) -> Seen {
        let mut troubles = Vec::new();
        self.docker(facts, &mut troubles);
        self.gpus(facts, &mut troubles);
        self.disk(facts, &mut troubles);
        let host = &self.site.host;
        for (path, _) in facts.mounts.iter().filter(|(_, there)| !**there) {
            troubles.push(Trouble::new(
                format!("{path} is not on {host}"),
                "correct container.mounts, make it on the host, or give the mount `create: true`",
            ));
        }
        if let Some(port) = self.port.filter(|p| facts.busy.contains(p)) {
            troubles.push(Trouble::new(
                format!("port {port} is already in use on the master {host}"),
                format!("choose another launch.master_port, or end what listens there: `ss -ltnp 'sport = :{port}'`"),
            ));
        }
        let told = !troubles.is_empty();
        let more = self.found.failed.iter().filter(|(name, _)| !(told && COVERED.contains(name)));
        troubles.extend(more.map(|(_, trouble)| trouble.clone()));
        if troubles.is_empty() { Seen::Satisfied(self.note(facts)) } else { Seen::Impossible(troubles) }
    }

    fn note(&self, facts: &HostFacts) -> String {
        let gpus = match facts.gpus.len() {
            0 => "no GPUs".to_owned(),
            1 => "1 GPU".to_owned(),
            n => format!("{n} GPUs"),
        };
        let checks = match self.found.counts {
            (0, 0) => String::new(),
            (passed, 0) => format!(", {passed} checks passed"),
            (passed, 1) => format!(", {passed} checks passed, 1 warning"),
            (passed, warn) => format!(", {passed} checks passed, {warn} warnings"),
        };
        match &facts.docker {
            Docker::Usable(version) if self.container.is_some() => format!("docker {version}, {gpus}{checks}"),
            _ => format!("{gpus}{checks}"),
        }
    }

    fn docker(&self, facts: &HostFacts, troubles: &mut Vec<Trouble>) {
        if self.container.is_none() {
            return;
        }
        let host = &self.site.host;
        if let Docker::Unusable(says) = &facts.docker {
            troubles.push(docker_trouble(says, host, &facts.user, self.site.sudo));
        }
        if let Some(labels) = &facts.taken
            && *labels != format!("{}/{}", self.site.name, host)
        {
            troubles.push(Trouble::new(
                format!("the name {} is taken on {host} by a container that is not ours", self.site.container()),
                format!("look at it with `docker inspect {}`; rename or remove it, or change `name:`", self.site.container()),
            ));
        }
    }

    fn gpus(&self, facts: &HostFacts, troubles: &mut Vec<Trouble>) {
        let wants = match &self.container {
            Some(c) => c.gpus != ContainerGpus::None,
            None => self.gpus != Gpus::Any || !facts.gpus.is_empty(),
        };
        if !wants {
            return;
        }
        let host = &self.site.host;
        let there = u32::try_from(facts.gpus.len()).unwrap_or(u32::MAX);
        let needed = match (&self.gpus, self.container.as_ref().map(|c| &c.gpus)) {
            (_, Some(ContainerGpus::List(list))) => list.iter().max().map_or(0, |m| m + 1),
            (_, Some(ContainerGpus::Count(n))) => *n,
            (Gpus::List(list), _) => list.iter().max().map_or(0, |m| m + 1),
            (Gpus::Count(n), _) => *n,
            (Gpus::Any, _) => self.nproc,
        };
        if let Some(ContainerGpus::Count(count)) = self.container.as_ref().map(|c| &c.gpus) {
            let idle = super::container::chosen(*count, &self.gpus, facts.idle_gpus().as_deref()).len();
            if there >= *count && idle < *count as usize {
                let hint = "wait for the others' work to end (`nvidia-smi` there names it), or lower container.gpus";
                troubles.push(Trouble::new(format!("{idle} of {there} GPUs on {host} are idle, {count} needed"), hint));
            }
        }
        if there < needed.max(1) {
            let why = facts.gpu_error.as_ref().map(|e| format!(": {e}")).unwrap_or_default();
            troubles.push(Trouble::new(
                format!("{there} GPUs on {host}, {needed} needed{why}"),
                "check `nvidia-smi -L` there; lower launch.nproc_per_node or hosts[].gpus, or set container.gpus: none for a CPU run",
            ));
        }
    }

    fn disk(&self, facts: &HostFacts, troubles: &mut Vec<Trouble>) {
        let host = &self.site.host;
        if !facts.writable {
            troubles.push(Trouble::new(
                format!("{} cannot be made on {host}: {} is not writable for {}", facts.run_dir, facts.nearest, facts.user),
                "set run_dir to a directory that the ssh user owns",
            ));
        }
        if facts.disk.1 > 0 && facts.disk.0 < MIN_FREE_KIB {
            troubles.push(Trouble::new(
                format!("{} MiB free under {} on {host}, 1024 needed", facts.disk.0 / 1024, facts.run_dir),
                "free space there, or set run_dir to another disk",
            ));
        }
    }
}

/// What is wrong with docker, in words that say what to do.
pub fn docker_trouble(says: &str, host: &str, user: &str, sudo: bool) -> Trouble {
    let says = says.trim();
    let low = says.to_lowercase();
    if sudo && (low.contains("password is required") || low.contains("a terminal is required") || low.contains("not allowed")) {
        return Trouble::new(
            format!("{user} may not run docker through `sudo -n` on {host}: {says}"),
            "allow it in sudoers with NOPASSWD, or set ssh.become: none",
        );
    }
    if low.contains("not found") {
        return Trouble::new(
            format!("there is no docker on {host}"),
            "install docker there, or leave `container` out to run on the bare host",
        );
    }
    if low.contains("permission denied") {
        return Trouble::new(
            format!("{user} may not use docker on {host}: {says}"),
            format!("`sudo usermod -aG docker {user}` there and log in again, or set ssh.become: sudo"),
        );
    }
    if low.contains("cannot connect") || low.contains("is the docker daemon running") {
        return Trouble::new(format!("the docker daemon on {host} does not answer: {says}"), "`sudo systemctl start docker` there");
    }
    Trouble::new(format!("docker on {host} is not usable: {says}"), "try `docker version` there")
}

/// Tries whether the master's port can be reached from a worker, through that worker's own sshd.
#[derive(Debug, Clone)]
pub struct Reach {
    /// The master's fabric address.
    pub address: String,
    /// The rendezvous port.
    pub port: u16,
}

impl Reach {
    pub(super) fn command(&self) -> Do {
        Do::Reach { address: self.address.clone(), port: self.port, within: Duration::from_secs(6) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_docker_complaint_has_its_remedy() {
        for (says, expected) in [
            ("sh: 1: docker: not found", "there is no docker"),
            ("permission denied while trying to connect to the Docker daemon socket", "may not use docker"),
            ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "does not answer"),
        ] {
            let trouble = docker_trouble(says, "gpu01", "li", false);
            assert!(trouble.what.contains(expected), "{}", trouble.what);
            assert!(!trouble.hint.is_empty());
        }
    }
}
