//! Who is which rank: hosts in node-rank order with the addresses that ranks use.
//!
//! Uses `inventory` and facts. Static launchers give ranks densely by node rank; under c10d the store decides and this is only the count.

use std::net::IpAddr;

use crate::inventory::{Gpus, Host, Job, Launcher, Rendezvous};
use crate::plan::facts::HostFacts;
use crate::plan::words::RankInfo;

/// The gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// Fabric address of each host, in node-rank order.
    pub addresses: Vec<String>,
    /// Worker processes a host; `None` in a plan made without asking the hosts.
    pub nproc: Option<u32>,
    /// The rendezvous port on the master.
    pub port: u16,
    /// Hosts.
    pub nodes: u32,
    /// How the ranks start.
    pub launcher: Launcher,
}

impl World {
    /// The gang of a job.
    pub fn new(job: &Job, addresses: Vec<String>, port: u16) -> World {
        let hosts = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        World { addresses, nproc: job.nproc_per_node, port, nodes: hosts, launcher: job.launch.with }
    }

    /// Fabric address of node rank 0.
    pub fn master(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    /// Worker processes that run on one host; 0 where that is not known.
    pub fn local_size(&self) -> u32 {
        match self.launcher {
            Launcher::Torchrun(_) => self.nproc.unwrap_or(0),
            Launcher::Script => 1,
        }
    }

    /// Worker processes in all; 0 where that is not known.
    pub fn size(&self) -> u32 {
        self.nodes.saturating_mul(self.local_size())
    }

    /// GPUs a host, as text for a flag or a variable.
    pub fn nproc_text(&self) -> String {
        self.nproc.map_or_else(|| "<from the hosts: GPU count>".to_owned(), |n| n.to_string())
    }

    /// Processes that train in all, as text: under `script` one a GPU, whatever starts them.
    pub fn processes_text(&self) -> String {
        self.nproc.map_or_else(|| "<from the hosts: world size>".to_owned(), |n| self.nodes.saturating_mul(n).to_string())
    }

    /// Every rank, where its place is known beforehand.
    pub fn ranks(&self) -> Vec<RankInfo> {
        if self.launcher == Launcher::Torchrun(Rendezvous::C10d) {
            return Vec::new();
        }
        let each = self.local_size();
        (0..self.size()).map(|rank| RankInfo { rank, host: rank / each.max(1), local_rank: rank % each.max(1) }).collect()
    }
}

/// The address that ranks use to reach a host: what the inventory says; else its ssh address where an interface has it; else, where the ssh
/// address is a name, the address at which our connection arrived.
pub fn fabric_address(host: &Host, facts: &HostFacts) -> Result<String, String> {
    if let Some(address) = &host.fabric_address {
        return Ok(address.clone());
    }
    let has = |address: &str| facts.addresses.is_empty() || facts.addresses.iter().any(|a| a == address);
    match &host.address {
        Some(address) if address.parse::<IpAddr>().is_ok() && has(address) => Ok(address.clone()),
        _ => match &facts.arrived_at {
            Some(address) if has(address) => Ok(address.clone()),
            _ => Err(format!(
                "no interface of {} has the address that ssh connects to; it has {}",
                host.name,
                if facts.addresses.is_empty() { "none that can be seen".to_owned() } else { facts.addresses.join(" ") }
            )),
        },
    }
}

/// How many GPUs the inventory and the host give to this run.
pub fn given_gpus(host: &Host, facts: &HostFacts) -> u32 {
    match &host.gpus {
        Gpus::Any => u32::try_from(facts.gpus.len()).unwrap_or(0),
        Gpus::Count(count) => *count,
        Gpus::List(list) => u32::try_from(list.len()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Ssh;

    fn host(address: Option<&str>) -> Host {
        Host { name: "gpu01".to_owned(), address: address.map(str::to_owned), fabric_address: None, gpus: Gpus::Any, ssh: Ssh::default() }
    }

    #[test]
    fn the_fabric_address_is_one_of_the_hosts_own() {
        let facts = HostFacts {
            addresses: vec!["127.0.0.1".to_owned(), "10.0.0.5".to_owned()],
            arrived_at: Some("10.0.0.5".to_owned()),
            ..HostFacts::default()
        };
        assert_eq!(fabric_address(&host(Some("10.0.0.5")), &facts), Ok("10.0.0.5".to_owned()));
        assert_eq!(fabric_address(&host(Some("gpu01.lan")), &facts), Ok("10.0.0.5".to_owned()));
        assert_eq!(fabric_address(&host(None), &facts), Ok("10.0.0.5".to_owned()));
        let behind_nat = HostFacts { arrived_at: Some("192.168.9.9".to_owned()), ..facts };
        assert!(fabric_address(&host(Some("203.0.113.7")), &behind_nat).is_err());
    }
}
