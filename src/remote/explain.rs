//! Tells how a host is reached and where every setting of it came from.
//!
//! Uses `hop`, `resolve` and `ssh_config`. Decides nothing: what holds was decided by them.

use super::resolve::Step;
use super::ssh_config::Origin;
use crate::inventory::Ssh;

/// One setting of a hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The keyword of ssh_config.
    pub name: &'static str,
    /// Its values.
    pub value: String,
    /// `inventory`, `file:line`, `default`, or `ssh -G`, which does not say where it found it.
    pub origin: String,
}

/// One hop of the way to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopSettings {
    /// The name it was asked for by.
    pub name: String,
    /// Whether it is a jump host.
    pub jump: bool,
    /// Its settings; HostName, User and Port first.
    pub settings: Vec<Setting>,
}

/// The settings of one hop; `ssh`: what the inventory says of the host at the end of the way.
pub(super) fn explain(step: &Step, ssh: &Ssh) -> HopSettings {
    let Step { hop, options } = step;
    let mut settings: Vec<Setting> = Vec::new();
    let mut tell = |name: &'static str, value: String, origin: &Origin| {
        let origin = origin.to_string();
        match settings.last_mut().filter(|s| s.name == name && s.origin == origin) {
            Some(same) => same.value = format!("{} {value}", same.value),
            None => settings.push(Setting { name, value, origin }),
        }
    };
    let by_inventory = |name: &str| match name {
        "UserKnownHostsFile" | "GlobalKnownHostsFile" => ssh.known_hosts.is_some(),
        "StrictHostKeyChecking" => ssh.host_keys.is_some(),
        "ConnectTimeout" => ssh.connect_timeout.is_some(),
        "ServerAliveInterval" => ssh.keepalive.is_some(),
        _ => false,
    };
    let origin = |name: &str| match options.value(name) {
        _ if by_inventory(name) => Origin::Inventory,
        Some(value) => value.origin.clone(),
        None => Origin::Default,
    };
    // What always has a value, as it was decided.
    tell("HostName", hop.host.clone(), &origin("HostName"));
    tell("User", hop.user.clone(), &origin("User"));
    tell("Port", hop.port.to_string(), &origin("Port"));
    for path in &ssh.identity {
        tell("IdentityFile", path.clone(), &Origin::Inventory);
    }
    if let Some(path) = &ssh.known_hosts {
        tell("UserKnownHostsFile", path.clone(), &Origin::Inventory);
    }
    let strict = if hop.policy.accept_new { "accept-new" } else { "yes" };
    tell("StrictHostKeyChecking", strict.to_owned(), &origin("StrictHostKeyChecking"));
    tell("ConnectTimeout", hop.connect_timeout.as_secs().to_string(), &origin("ConnectTimeout"));
    let keepalive = hop.keepalive.map_or("none".to_owned(), |every| every.as_secs().to_string());
    tell("ServerAliveInterval", keepalive, &origin("ServerAliveInterval"));
    let told = ["HostName", "User", "Port", "StrictHostKeyChecking", "ConnectTimeout", "ServerAliveInterval"];
    for (name, values) in options.iter().filter(|(name, _)| !told.contains(name) && !by_inventory(name)) {
        if name == "IdentityFile" && values.iter().all(|v| v.origin == Origin::Default) {
            tell(name, "~/.ssh/id_*".to_owned(), &Origin::Default);
            continue;
        }
        // That a way which is known needs no command is no setting.
        let shut = name == "ProxyCommand" && options.named("ProxyJump");
        values.iter().filter(|_| !shut).for_each(|v| tell(name, v.text.to_string(), &v.origin));
    }
    HopSettings { name: hop.name.clone(), jump: hop.jump, settings }
}
