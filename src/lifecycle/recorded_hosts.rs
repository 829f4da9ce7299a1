//! Hosts that hold parts of a run but are not in the inventory.

use crate::inventory::{Become, ContainerEngine, HostSshSettings, InventoryHost, is_valid_host_name};
use crate::lifecycle::session::Session;
use crate::plan::facts::{ContainerFacts, HostFacts, OrphanFacts};
use crate::plan::protocol::run_record::RunRecordHost;

/// A host that the record of a run names and the inventory does not.
#[derive(Debug, Clone)]
pub(crate) struct RecordedHost {
    pub(crate) host: InventoryHost,
    pub(crate) in_container: bool,
    jump: Vec<String>,
}

impl RecordedHost {
    /// `name (user@address:port via jump)`.
    pub(crate) fn describe(&self) -> String {
        let InventoryHost { name, address, ssh, .. } = &self.host;
        let user = ssh.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        let port = ssh.port.map_or_else(String::new, |port| format!(":{port}"));
        let jump = if self.jump.is_empty() { String::new() } else { format!(" via {}", self.jump.join(",")) };
        format!("{name} ({user}{}{port}{jump})", address.as_deref().unwrap_or(name))
    }
}

pub(crate) fn describe_hosts(recorded: &[RecordedHost]) -> String {
    recorded.iter().map(RecordedHost::describe).collect::<Vec<_>>().join(", ")
}

impl Session {
    /// The hosts that a run's record names and the inventory does not.
    pub(crate) fn recorded_hosts(&self, facts: &[Option<HostFacts>]) -> Vec<RecordedHost> {
        let mut found: Vec<RecordedHost> = Vec::new();
        let current = facts.iter().flatten().filter_map(HostFacts::run_record);
        let orphaned = facts.iter().flatten().flat_map(|facts| &facts.orphans.run_records);
        for record in current.chain(orphaned) {
            for host in record.hosts.iter().filter(|_| record.name == self.inventory.name && !record.boundary_voided) {
                let known = self.inventory.hosts.iter().any(|h| h.name == host.name) || found.iter().any(|f| f.host.name == host.name);
                if !known {
                    let jump = host.jump.clone().unwrap_or_default();
                    found.push(RecordedHost { in_container: record.in_container, jump, host: host_from_record(host, self.default_ssh()) });
                }
            }
        }
        found
    }

    /// Inventory hosts under an earlier name: one that a container, a process, or a directory without a record still carries. They are the same
    /// machines, so no other machine is contacted.
    pub(crate) fn renamed_hosts(&self, facts: &[Option<HostFacts>]) -> Vec<RecordedHost> {
        let mut found: Vec<RecordedHost> = Vec::new();
        for (host, facts) in self.inventory.hosts.iter().zip(facts) {
            let Some(facts) = facts else { continue };
            let OrphanFacts { containers, processes, host_names: dirs, run_records: records, .. } = &facts.orphans;
            let owned = containers.iter().filter(|c| self.owns_container(c, facts)).map(|c| (&c.host, true));
            let has_record = |name: &String| records.iter().any(|record| record.hosts.iter().any(|host| host.name == *name));
            let dirs = dirs.iter().filter(|name| !has_record(name)).map(|name| (name, !facts.containers.is_empty()));
            for (name, in_container) in owned.chain(processes.iter().map(|p| (&p.host, false))).chain(dirs) {
                let known = self.inventory.hosts.iter().any(|h| h.name == *name) || found.iter().any(|f| f.host.name == *name);
                if !known && is_valid_host_name(name) {
                    let address = host.address.clone().or_else(|| Some(host.name.clone()));
                    let jump = host.ssh.jump_hosts.clone().unwrap_or_default();
                    found.push(RecordedHost { in_container, jump, host: InventoryHost { name: name.clone(), address, ..host.clone() } });
                }
            }
        }
        found
    }

    /// A container belongs to this user if its files are in this user's run directory; if that is unknown, if this user launched it.
    pub(crate) fn owns_container(&self, found: &ContainerFacts, facts: &HostFacts) -> bool {
        match found.run_dir.as_str() {
            "" => found.owner == self.local.identity.owner,
            dir => dir == facts.run_dir && facts.orphans.foreign_dir.is_none(),
        }
    }

    /// Whether the host is an inventory host under another name: same address, user and port.
    pub(crate) fn is_renamed(&self, recorded: &RecordedHost) -> bool {
        let endpoint =
            |host: &InventoryHost| (host.address.clone().unwrap_or_else(|| host.name.clone()), host.ssh.user.clone(), host.ssh.port);
        self.inventory.hosts.iter().any(|host| endpoint(host) == endpoint(&recorded.host))
    }

    fn default_ssh(&self) -> Option<&HostSshSettings> {
        self.inventory.hosts.first().map(|h| &h.ssh)
    }

    /// Adds the hosts to the session, so that they are cleaned too.
    pub(crate) fn add_recorded_hosts(&mut self, recorded: Vec<RecordedHost>) {
        if recorded.iter().any(|host| host.in_container) && self.inventory.engine.is_none() {
            self.inventory.engine = Some(ContainerEngine::default());
        }
        self.add_hosts(recorded.into_iter().map(|recorded| recorded.host).collect());
    }

    /// Asks whether to contact hosts that only the record names; `--yes` agrees.
    pub(crate) fn confirm_reaching_hosts(&self, recorded: &[RecordedHost]) -> bool {
        let names = describe_hosts(recorded);
        if self.local.assume_yes {
            self.notice(format!("also contacting hosts that only the run's record names: {names}"), false);
            return true;
        }
        self.local
            .console
            .confirm(&format!("The run's record also names hosts that are not in the inventory: {names}. Connect to them too?"))
    }
}

fn host_from_record(host: &RunRecordHost, default_ssh: Option<&HostSshSettings>) -> InventoryHost {
    let mut ssh = default_ssh.cloned().unwrap_or_default();
    ssh.user.clone_from(&host.user);
    ssh.port = host.port;
    ssh.jump_hosts.clone_from(&host.jump);
    ssh.r#become = if host.sudo { Become::Sudo } else { Become::None };
    InventoryHost {
        name: host.name.clone(),
        address: host.address.clone(),
        fabric_address: Some(host.fabric_address.clone()),
        gpus: crate::inventory::GpuSelection::Any,
        ssh,
    }
}
