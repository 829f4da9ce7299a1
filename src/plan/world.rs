//! Who is which rank: hosts in node-rank order with the addresses that ranks use.
//!
//! Uses `inventory` and facts. Static launchers give ranks densely by node rank; under c10d the store decides and this is only the count.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::inventory::{Gpus, Host, Job, Launcher};
use crate::plan::facts::HostFacts;
use crate::plan::words::RankInfo;

/// The gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct World {
    /// Fabric address of each host, in node-rank order.
    pub addresses: Vec<String>,
    /// Worker processes of each host, in node-rank order; `None` in a plan made without asking the hosts.
    pub nproc: Vec<Option<u32>>,
    /// The rendezvous port on the master; `None`: `auto`, in a plan made without asking the hosts.
    pub port: Option<u16>,
    /// Hosts.
    pub nodes: u32,
    /// How the ranks start.
    pub launcher: Launcher,
}

impl World {
    /// The gang of a job.
    pub fn new(job: &Job, addresses: Vec<String>) -> World {
        let hosts = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let nproc = (0..addresses.len()).map(|host| job.nproc(host)).collect();
        World { addresses, nproc, port: job.launch.master_port, nodes: hosts, launcher: job.launch.with }
    }

    /// Fabric address of node rank 0.
    pub fn master(&self) -> &str {
        self.addresses.first().map_or("", String::as_str)
    }

    /// Worker processes that run on a host; 0 where that is not known.
    pub fn local_size(&self, host: usize) -> u32 {
        match self.launcher {
            Launcher::Torchrun(_) | Launcher::Accelerate | Launcher::Deepspeed(_) | Launcher::Processes => self.given(host).unwrap_or(0),
            Launcher::Script => 1,
        }
    }

    fn given(&self, host: usize) -> Option<u32> {
        self.nproc.get(host).copied().flatten()
    }

    /// Whether the numbers of processes are not known yet.
    pub fn open(&self) -> bool {
        self.launcher != Launcher::Script && self.nproc.iter().any(Option::is_none)
    }

    /// Worker processes in all; 0 where that is not known.
    pub fn size(&self) -> u32 {
        if self.open() { 0 } else { self.first_rank(self.nproc.len()) }
    }

    /// The rank of a host's first worker: as many as run on the hosts before it.
    pub fn first_rank(&self, host: usize) -> u32 {
        (0..host).fold(0, |sum, before| sum.saturating_add(self.local_size(before)))
    }

    /// GPUs of a host, as text for a flag or a variable.
    pub fn nproc_text(&self, host: usize) -> String {
        self.given(host).map_or_else(|| "<from the hosts: GPU count>".to_owned(), |n| n.to_string())
    }

    /// The rendezvous port, as text for a flag or a variable.
    pub fn port_text(&self) -> String {
        self.port.map_or_else(|| "<from the master: free port>".to_owned(), |port| port.to_string())
    }

    /// Processes that train in all, as text: under `script` one a GPU, whatever starts them.
    pub fn processes_text(&self) -> String {
        let all: Option<Vec<u32>> = self.nproc.iter().copied().collect();
        all.map_or_else(
            || "<from the hosts: world size>".to_owned(),
            |each| each.iter().fold(0, |sum: u32, n| sum.saturating_add(*n)).to_string(),
        )
    }

    /// Every rank, where its place is known beforehand.
    pub fn ranks(&self) -> Vec<RankInfo> {
        if self.launcher.ranks_are_handed_out() {
            return Vec::new();
        }
        let sizes = (0..self.nodes).zip(0..self.nproc.len()).map(|(node, host)| (node, self.local_size(host)));
        let places = sizes.flat_map(|(host, size)| (0..size).map(move |local_rank| (host, local_rank)));
        (0..self.size()).zip(places).map(|(rank, (host, local_rank))| RankInfo { rank, host, local_rank }).collect()
    }
}

/// The address that ranks use to reach a host: what the inventory says; else its ssh address where an interface has it; else the source of
/// its routes to the other hosts; else, where no route is known or the ssh address is a name, the address at which our connection arrived.
///
/// # Errors
/// None of these is there, or the routes leave from several addresses.
pub fn fabric_address(host: &Host, facts: &HostFacts) -> Result<String, String> {
    if let Some(address) = &host.fabric_address {
        return Ok(plain(address));
    }
    let ssh = host.address.as_deref().map(plain);
    let has = |address: &str| facts.addresses.is_empty() || facts.addresses.iter().any(|a| a == address);
    match &ssh {
        Some(address) if address.parse::<IpAddr>().is_ok() && has(address) => Ok(address.clone()),
        Some(address) if address.parse::<IpAddr>().is_ok() && !facts.routes.is_empty() => {
            let sources: BTreeSet<&str> = facts.routes.values().map(String::as_str).collect();
            match sources.into_iter().collect::<Vec<_>>().as_slice() {
                [only] => Ok((*only).to_owned()),
                several => Err(format!(
                    "no interface of {} has {address}, and its routes to the other hosts leave from {}: which of them ranks shall use cannot be told",
                    host.name,
                    several.join(" and from ")
                )),
            }
        }
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

/// An address as the host itself writes it: `FD00::0001` is `fd00::1`. Names stay as they are.
fn plain(address: &str) -> String {
    address.parse::<IpAddr>().map_or_else(|_| address.to_owned(), |address| address.to_string())
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
        let routed = |sources: &[&str]| HostFacts {
            routes: sources.iter().enumerate().map(|(n, source)| (format!("203.0.113.{n}"), (*source).to_owned())).collect(),
            ..facts.clone()
        };
        let fabric = |sources: &[&str]| fabric_address(&host(Some("203.0.113.7")), &routed(sources));
        assert_eq!(fabric(&[]), Ok("10.0.0.5".to_owned()), "where it arrived");
        assert_eq!(fabric(&["10.1.0.5", "10.1.0.5"]), Ok("10.1.0.5".to_owned()), "by which it reaches the others");
        assert!(fabric(&["10.1.0.5", "10.2.0.5"]).is_err_and(|says| says.contains("leave from 10.1.0.5 and from 10.2.0.5")));
        assert_eq!(fabric_address(&host(Some("10.0.0.5")), &routed(&["10.1.0.5"])), Ok("10.0.0.5".to_owned()), "its own comes first");
        let six = HostFacts { addresses: vec!["::1".to_owned(), "fd00::1".to_owned()], ..HostFacts::default() };
        assert_eq!(fabric_address(&host(Some("FD00::0001")), &six), Ok("fd00::1".to_owned()), "however it is written");
        let given = Host { fabric_address: Some("fd00:0:0::1".to_owned()), ..host(None) };
        assert_eq!(fabric_address(&given, &six), Ok("fd00::1".to_owned()));
        let behind_nat = HostFacts { arrived_at: Some("192.168.9.9".to_owned()), ..facts };
        assert!(fabric_address(&host(Some("203.0.113.7")), &behind_nat).is_err());
    }
}
