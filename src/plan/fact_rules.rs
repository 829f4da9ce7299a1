//! Facts of a host that prevent a launch: one rule per fact. The plan's preflight step uses it to refuse what cannot run, even if checks were skipped;
//! the preflight checks use it for their findings.

use crate::inventory::{ContainerGpus, ContainerSettings, GpuSelection};
use crate::plan::action::action_result::Issue;
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;

/// KiB that must be free under the run directory: a rank whose log cannot grow dies.
pub(crate) const MIN_FREE_KIB: u64 = 1 << 20;

/// A problem as a check says it, beside the host's name, and as the plan says it, which names the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FactProblem {
    pub finding: String,
    pub message: String,
    /// What to do next.
    pub hint: String,
}

impl FactProblem {
    /// In the plan's words.
    pub(crate) fn into_issue(self) -> Issue {
        Issue::new(self.message, self.hint)
    }
}

/// The ssh user's `uid:gid` as `docker run --user` takes it; a placeholder where the host was not asked.
pub(crate) fn user_ids(facts: &HostFacts, host: &str) -> String {
    match (facts.uid, facts.gid) {
        (Some(uid), Some(gid)) => format!("{uid}:{gid}"),
        _ => format!("<from {host}: uid:gid>"),
    }
}

/// Our container's name is another container's.
pub(crate) fn container_name_taken(facts: &HostFacts, context: &HostContext) -> Option<FactProblem> {
    let labels = facts.container_name_holder.as_ref()?;
    let (name, host) = (context.container_name(), &context.host);
    (*labels != format!("{}/{host}", context.name)).then(|| FactProblem {
        finding: format!("{name} is a container that orchestrate did not create"),
        message: format!("the name {name} is taken on {host} by a container that orchestrate did not create"),
        hint: format!("inspect it with `docker inspect {name}`; rename or remove it, or change `name`"),
    })
}

/// The source of a mount is missing; `target`: where the container has it.
pub(crate) fn mount_missing(path: &str, target: &str) -> FactProblem {
    FactProblem {
        finding: format!("{path} is missing"),
        message: format!("{path} is missing"),
        hint: format!(
            "create it there, or write the mount as `{{ from: {path}, to: {target}, create: true }}`, as for a directory that a task of `prepare` fills"
        ),
    }
}

/// Something listens on the port of the rendezvous.
pub(crate) fn master_port_in_use(facts: &HostFacts, port: u16, host: &str) -> Option<FactProblem> {
    let runs = facts.orphans.other_live_runs.join(", ");
    let hint = if runs.is_empty() {
        format!(
            "choose another launch.master_port (`auto` takes a free one), or stop what listens on it: `orchestrate ps --all` lists the runs; on {host}, `sudo ss -ltnp 'sport = :{port}'` lists the programs"
        )
    } else {
        format!(
            "choose another launch.master_port (`auto` takes a free one), or stop what listens on it, perhaps a live run: {runs}; on {host}, `sudo ss -ltnp 'sport = :{port}'` lists the programs"
        )
    };
    facts.busy_ports.contains(&port).then(|| FactProblem {
        finding: format!("port {port} is already in use"),
        message: format!("port {port} is already in use on the master {host}"),
        hint,
    })
}

/// Whether the job is to use GPUs on a host.
pub(crate) fn uses_gpus(container: Option<&ContainerSettings>, host: &GpuSelection, facts: &HostFacts) -> bool {
    match container {
        Some(container) => container.gpus != ContainerGpus::None,
        None => *host != GpuSelection::Any || !facts.gpu_lines.is_empty(),
    }
}

/// How many GPUs a host must have. `any`: where the inventory names none of them.
pub(crate) fn required_gpu_count(container: Option<&ContainerSettings>, host: &GpuSelection, any: u32) -> u32 {
    let listed = |list: &[u32]| list.iter().max().map_or(0, |m| m + 1);
    match (container.map(|c| &c.gpus), host) {
        (Some(ContainerGpus::List(list)), _) => listed(list),
        (Some(ContainerGpus::Count(n)), _) => *n,
        (_, GpuSelection::List(list)) => listed(list),
        (_, GpuSelection::Count(n)) => *n,
        (_, GpuSelection::Any) => any,
    }
}

/// The problem with docker, with what to do about it.
pub(crate) fn docker_issue(message: &str, host: &str, user: &str, sudo: bool) -> Issue {
    let error = message.trim();
    let low = error.to_lowercase();
    if sudo && (low.contains("password is required") || low.contains("a terminal is required") || low.contains("not allowed")) {
        return Issue::new(
            format!("{user} may not run docker through `sudo -n` on {host}: {error}"),
            "allow it in sudoers with NOPASSWD, or set ssh.become: none",
        );
    }
    if low.contains("not found") {
        return Issue::new(
            format!("docker is not installed on {host}"),
            "install docker on that host, or remove `container` to run on the bare host",
        );
    }
    if low.contains("permission denied") {
        return Issue::new(
            format!("{user} may not use docker on {host}: {error}"),
            format!("run `sudo usermod -aG docker {user}` on that host and log in again, or set ssh.become: sudo"),
        );
    }
    if low.contains("cannot connect") || low.contains("is the docker daemon running") {
        return Issue::new(
            format!("the docker daemon on {host} does not respond: {error}"),
            "run `sudo systemctl start docker` on that host",
        );
    }
    Issue::new(format!("docker on {host} is not usable: {error}"), "try `docker version` on that host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_errors_have_specific_hints() {
        for (message, expected) in [
            ("sh: 1: docker: not found", "docker is not installed"),
            ("permission denied while trying to connect to the Docker daemon socket", "may not use docker"),
            ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?", "does not respond"),
        ] {
            let trouble = docker_issue(message, "gpu01", "li", false);
            assert!(trouble.message.contains(expected), "{}", trouble.message);
            assert!(!trouble.hint.is_empty());
        }
    }
}
