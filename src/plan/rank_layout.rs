//! The ranks of each host: hosts in node-rank order with the addresses that ranks use.
//!
//! Static launchers give ranks densely by node rank; under c10d the store decides and this is only the count.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::inventory::{GpuSelection, InventoryHost, Job, Launcher};
use crate::model::rank::RankInfo;
use crate::plan::facts::HostFacts;
use crate::text::shell_template::variable;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankLayout {
    /// Fabric address of each host, in node-rank order.
    pub fabric_addresses: Vec<String>,
    /// Worker processes of each host, in node-rank order; `None` in a plan made without asking the hosts.
    pub nproc: Vec<Option<u32>>,
    /// The rendezvous port on the master; `None`: `auto`, in a plan made without asking the hosts.
    pub master_port: Option<u16>,
    /// How the ranks start.
    pub launcher: Launcher,
    /// Whether a script finds out which node it is on: what differs by node is then one of its variables.
    pub is_symbolic: bool,
}

impl RankLayout {
    /// The gang of a job.
    pub(crate) fn new(job: &Job, addresses: Vec<String>) -> RankLayout {
        let nproc = (0..addresses.len()).map(|host| job.nproc(host)).collect();
        RankLayout {
            fabric_addresses: addresses,
            nproc,
            master_port: job.launch.master_port,
            launcher: job.launch.launcher,
            is_symbolic: false,
        }
    }

    /// The gang of a job whose nodes are chosen when it starts.
    pub(crate) fn symbolic(job: &Job) -> RankLayout {
        let address = |node: usize| variable(if node == 0 { "ORCH_MASTER_ADDR" } else { "ORCH_ADDRESS" });
        RankLayout { is_symbolic: true, ..RankLayout::new(job, (0..job.hosts.len()).map(address).collect()) }
    }

    /// What differs by node, as text for a flag or a variable: a variable of the script, or the value.
    pub(crate) fn node_text(&self, name: &str, value: impl std::fmt::Display) -> String {
        if self.is_symbolic { variable(name) } else { value.to_string() }
    }

    /// Fabric address of node rank 0.
    pub(crate) fn master_address(&self) -> &str {
        self.fabric_addresses.first().map_or("", String::as_str)
    }

    /// Worker processes that run on a host; 0 where that is not known.
    pub(crate) fn local_world_size(&self, host: usize) -> u32 {
        if self.launcher == Launcher::Script { 1 } else { self.known_nproc(host).unwrap_or(0) }
    }

    fn known_nproc(&self, host: usize) -> Option<u32> {
        self.nproc.get(host).copied().flatten()
    }

    /// Whether the numbers of processes are not known yet.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.launcher != Launcher::Script && self.nproc.iter().any(Option::is_none)
    }

    /// Worker processes in all; 0 where that is not known.
    pub(crate) fn world_size(&self) -> u32 {
        if self.is_incomplete() { 0 } else { self.first_rank(self.nproc.len()) }
    }

    /// The rank of a host's first worker: as many as run on the hosts before it.
    pub(crate) fn first_rank(&self, host: usize) -> u32 {
        (0..host).fold(0, |sum, before| sum.saturating_add(self.local_world_size(before)))
    }

    /// GPUs of a host, as text for a flag or a variable.
    pub(crate) fn nproc_text(&self, host: usize) -> String {
        self.known_nproc(host).map_or_else(|| "<from the hosts: GPU count>".to_owned(), |n| n.to_string())
    }

    /// The rendezvous port, as text for a flag or a variable.
    pub(crate) fn port_text(&self) -> String {
        if self.is_symbolic && self.master_port.is_none() {
            return variable("ORCH_MASTER_PORT");
        }
        self.master_port.map_or_else(|| "<from the master: free port>".to_owned(), |port| port.to_string())
    }

    /// The total number of training processes, as text: under `script` one per GPU, however they are started.
    pub(crate) fn process_count_text(&self) -> String {
        let all: Option<Vec<u32>> = self.nproc.iter().copied().collect();
        all.map_or_else(
            || "<from the hosts: world size>".to_owned(),
            |each| each.iter().fold(0, |sum: u32, n| sum.saturating_add(*n)).to_string(),
        )
    }

    /// Every rank, where its place is known beforehand.
    pub(crate) fn ranks(&self) -> Vec<RankInfo> {
        if self.launcher.has_dynamic_ranks() {
            return Vec::new();
        }
        let sizes = (0..).zip(0..self.nproc.len()).map(|(node, host)| (node, self.local_world_size(host)));
        let places = sizes.flat_map(|(host, size)| (0..size).map(move |local_rank| (host, local_rank)));
        (0..self.world_size()).zip(places).map(|(rank, (host, local_rank))| RankInfo { rank, host, local_rank }).collect()
    }
}

/// The address that ranks use to reach a host: what the inventory says; else its ssh address where an interface has it; else the source of
/// its routes to the other hosts; else, where no route is known or the ssh address is a name, the address at which our connection arrived.
///
/// # Errors
/// None of these is there, or the routes leave from several addresses.
pub(crate) fn resolve_fabric_address(host: &InventoryHost, facts: &HostFacts) -> Result<String, String> {
    if let Some(address) = &host.fabric_address {
        return Ok(normalize_address(address));
    }
    let ssh = host.address.as_deref().map(normalize_address);
    let has = |address: &str| facts.addresses.is_empty() || facts.addresses.iter().any(|a| a == address);
    match &ssh {
        Some(address) if address.parse::<IpAddr>().is_ok() && has(address) => Ok(address.clone()),
        Some(address) if address.parse::<IpAddr>().is_ok() && !facts.route_sources.is_empty() => {
            let sources: BTreeSet<&str> = facts.route_sources.values().map(String::as_str).collect();
            match sources.into_iter().collect::<Vec<_>>().as_slice() {
                [only] => Ok((*only).to_owned()),
                several => Err(format!(
                    "no interface of {} has {address}, and its routes to the other hosts leave from {}: several addresses fit: set fabric_address",
                    host.name,
                    several.join(" and from ")
                )),
            }
        }
        _ => match &facts.ssh_address {
            Some(address) if has(address) => Ok(address.clone()),
            _ => Err(format!(
                "no interface of {} has the address that ssh connects to; its addresses are {}",
                host.name,
                if facts.addresses.is_empty() { "none known".to_owned() } else { facts.addresses.join(" ") }
            )),
        },
    }
}

/// An address as the host itself writes it: `FD00::0001` is `fd00::1`. Names stay as they are.
fn normalize_address(address: &str) -> String {
    address.parse::<IpAddr>().map_or_else(|_| address.to_owned(), |address| address.to_string())
}

/// How many GPUs the inventory and the host give to this run.
pub(crate) fn usable_gpu_count(host: &InventoryHost, facts: &HostFacts) -> u32 {
    match &host.gpus {
        GpuSelection::Any => u32::try_from(facts.gpu_lines.len()).unwrap_or(0),
        GpuSelection::Count(count) => *count,
        GpuSelection::List(list) => u32::try_from(list.len()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::HostSshSettings;

    fn host_with_address(address: Option<&str>) -> InventoryHost {
        InventoryHost {
            name: "gpu01".to_owned(),
            address: address.map(str::to_owned),
            fabric_address: None,
            gpus: GpuSelection::Any,
            ssh: HostSshSettings::default(),
        }
    }

    #[test]
    fn fabric_address_belongs_to_the_host() {
        let facts = HostFacts {
            addresses: vec!["127.0.0.1".to_owned(), "10.0.0.5".to_owned()],
            ssh_address: Some("10.0.0.5".to_owned()),
            ..HostFacts::default()
        };
        assert_eq!(resolve_fabric_address(&host_with_address(Some("10.0.0.5")), &facts), Ok("10.0.0.5".to_owned()));
        assert_eq!(resolve_fabric_address(&host_with_address(Some("gpu01.lan")), &facts), Ok("10.0.0.5".to_owned()));
        assert_eq!(resolve_fabric_address(&host_with_address(None), &facts), Ok("10.0.0.5".to_owned()));
        let routed = |sources: &[&str]| HostFacts {
            route_sources: sources.iter().enumerate().map(|(n, source)| (format!("203.0.113.{n}"), (*source).to_owned())).collect(),
            ..facts.clone()
        };
        let fabric = |sources: &[&str]| resolve_fabric_address(&host_with_address(Some("203.0.113.7")), &routed(sources));
        assert_eq!(fabric(&[]), Ok("10.0.0.5".to_owned()), "where it arrived");
        assert_eq!(fabric(&["10.1.0.5", "10.1.0.5"]), Ok("10.1.0.5".to_owned()), "by which it reaches the others");
        assert!(fabric(&["10.1.0.5", "10.2.0.5"]).is_err_and(|expected| expected.contains("leave from 10.1.0.5 and from 10.2.0.5")));
        assert_eq!(
            resolve_fabric_address(&host_with_address(Some("10.0.0.5")), &routed(&["10.1.0.5"])),
            Ok("10.0.0.5".to_owned()),
            "its own comes first"
        );
        let six = HostFacts { addresses: vec!["::1".to_owned(), "fd00::1".to_owned()], ..HostFacts::default() };
        assert_eq!(resolve_fabric_address(&host_with_address(Some("FD00::0001")), &six), Ok("fd00::1".to_owned()), "however it is written");
        let given = InventoryHost { fabric_address: Some("fd00:0:0::1".to_owned()), ..host_with_address(None) };
        assert_eq!(resolve_fabric_address(&given, &six), Ok("fd00::1".to_owned()));
        let behind_nat = HostFacts { ssh_address: Some("192.168.9.9".to_owned()), ..facts };
        assert!(resolve_fabric_address(&host_with_address(Some("203.0.113.7")), &behind_nat).is_err());
    }
}
