//! The request for the facts of a host, and its script.

use std::time::Duration;

use crate::inventory::smoke_test;
use crate::inventory::{ContainerGpus, Inventory, InventoryHost, Job};
use crate::model::remote_command::RemoteCommand;
use crate::plan::host_context::{HostContext, SAFE_READ_SH};
use crate::text::shell_quote::{join_quoted, quote};

/// What the script reports beyond what it always reports.
#[derive(Debug, Clone, Default)]
pub struct FactsRequest {
    /// Whether to query docker.
    pub docker: bool,
    /// The image whose id is reported.
    pub image: Option<String>,
    /// Host paths that are tested for existence.
    pub mounts: Vec<String>,
    /// Ports that should be free.
    pub ports: Vec<u16>,
    /// Whether to report idle GPUs.
    pub idle_gpus: bool,
    /// Whether to find a free port.
    pub free_port: bool,
    /// Addresses of the other hosts, whose routes are reported.
    pub peers: Vec<String>,
    /// Whether to search for leftovers under other names of the host, and for processes without a directory.
    pub orphans: bool,
}

/// The facts script of one host.
pub fn facts_command(context: &HostContext, request: &FactsRequest) -> RemoteCommand {
    let ports: Vec<String> = request.ports.iter().map(u16::to_string).collect();
    let script = format!(
        "{}docker={}\nname={} smoke={} host={} run_dir={}\nwant_docker={} container={} image={}\nmounts={}\nports={}\nwant_idle={}\nwant_port={} want_left={}\npeers={}\n{}{}",
        context.script_preamble(),
        quote(&context.docker_command()),
        quote(&context.name),
        quote(&smoke_test::smoke_test_name(&context.name)),
        quote(&context.host),
        quote(&context.run_dir_root),
        if request.docker { "1" } else { "''" },
        quote(&context.container_name()),
        quote(request.image.as_deref().unwrap_or_default()),
        quote(&join_quoted(&request.mounts)),
        quote(&ports.join(" ")),
        if request.idle_gpus { "1" } else { "''" },
        if request.free_port { "1" } else { "''" },
        if request.orphans { "1" } else { "''" },
        quote(&request.peers.join(" ")),
        SAFE_READ_SH,
        include_str!("../../assets/facts.sh"),
    );
    RemoteCommand::from_script("gather facts", script, Duration::from_secs(90))
}

/// The request to a host for this job.
pub(crate) fn facts_request(inventory: &Inventory, job: Option<&Job>, host: usize) -> FactsRequest {
    let part = job.and_then(|j| j.hosts.get(host));
    let container = part.and_then(|p| p.container.as_ref());
    FactsRequest {
        docker: inventory.engine.is_some(),
        image: container.map(|c| c.image.clone()),
        mounts: container.map_or(Vec::new(), |c| c.mounts.iter().filter(|m| !m.create_source).map(|m| m.source.clone()).collect()),
        free_port: host == 0 && job.is_some_and(|j| j.launch.master_port.is_none()),
        idle_gpus: container.is_some_and(|c| matches!(c.gpus, ContainerGpus::Count(_))),
        ports: match job {
            // Beside the job's own, those at which a smoke may meet.
            Some(job) if host == 0 => job.launch.master_port.map_or(Vec::new(), |port| [vec![port], nearby_ports(port)].concat()),
            _ => Vec::new(),
        },
        peers: if job.is_some() { peer_addresses(inventory, host) } else { Vec::new() },
        orphans: false,
    }
}

/// The most hosts whose routes are reported.
const MAX_PEERS: usize = 128;

/// The addresses of the other hosts, if the host needs its routes to them: the address that ssh connects to need not be its own.
fn peer_addresses(inventory: &Inventory, host: usize) -> Vec<String> {
    let address = |host: &InventoryHost| {
        let known = host.fabric_address.clone().or_else(|| host.address.clone())?;
        known.parse::<std::net::IpAddr>().is_ok().then_some(known)
    };
    let Some(own) = inventory.hosts.get(host).filter(|own| own.fabric_address.is_none()) else { return Vec::new() };
    let Some(here) = address(own) else { return Vec::new() };
    let others = inventory.hosts.iter().enumerate().filter(|(index, _)| *index != host).filter_map(|(_, other)| address(other));
    others.filter(|other| *other != here).take(MAX_PEERS).collect()
}

/// The ports beside the job's at which a smoke may meet, the first one before the others.
pub(crate) fn nearby_ports(port: u16) -> Vec<u16> {
    (1..=8).filter_map(|n| port.checked_add(n)).chain((1..=8).filter_map(|n| port.checked_sub(n)).filter(|p| *p >= 1024)).take(8).collect()
}
