//! Reports the route to a host and the origin of every setting.

use super::route_resolver::ResolvedHop;
use crate::inventory::HostSshSettings;
use crate::ssh_config::SettingOrigin;

/// One setting of a hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopSetting {
    /// The keyword of ssh_config.
    pub name: &'static str,
    pub value: String,
    /// `inventory`, `file:line`, `default`, or `ssh -G`, which does not report the origin.
    pub origin: String,
}

/// One hop of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HopReport {
    /// Requested name.
    pub name: String,
    pub is_jump: bool,
    /// Its settings; HostName, User and Port first.
    pub settings: Vec<HopSetting>,
}

/// The settings of one hop; `ssh`: the inventory's settings for the target host.
pub(super) fn describe_hop(step: &ResolvedHop, ssh: &HostSshSettings) -> HopReport {
    let ResolvedHop { hop, options } = step;
    let mut settings: Vec<HopSetting> = Vec::new();
    let mut push_setting = |name: &'static str, value: String, origin: &SettingOrigin| {
        let origin = origin.to_string();
        match settings.last_mut().filter(|s| s.name == name && s.origin == origin) {
            Some(same) => same.value = format!("{} {value}", same.value),
            None => settings.push(HopSetting { name, value, origin }),
        }
    };
    let by_inventory = |name: &str| match name {
        "UserKnownHostsFile" | "GlobalKnownHostsFile" => ssh.known_hosts_file.is_some(),
        "StrictHostKeyChecking" => ssh.host_key_checking.is_some(),
        "ConnectTimeout" => ssh.connect_timeout.is_some(),
        "ServerAliveInterval" => ssh.keepalive_interval.is_some(),
        _ => false,
    };
    let origin = |name: &str| match options.first_value(name) {
        _ if by_inventory(name) => SettingOrigin::Inventory,
        Some(value) => value.origin.clone(),
        None => SettingOrigin::Default,
    };
    // Settings that always have a value, as resolved.
    push_setting("HostName", hop.host.clone(), &origin("HostName"));
    push_setting("User", hop.user.clone(), &origin("User"));
    push_setting("Port", hop.port.to_string(), &origin("Port"));
    for path in &ssh.identity_files {
        push_setting("IdentityFile", path.clone(), &SettingOrigin::Inventory);
    }
    if let Some(path) = &ssh.known_hosts_file {
        push_setting("UserKnownHostsFile", path.clone(), &SettingOrigin::Inventory);
    }
    let strict = if hop.host_key_policy.accept_new { "accept-new" } else { "yes" };
    push_setting("StrictHostKeyChecking", strict.to_owned(), &origin("StrictHostKeyChecking"));
    push_setting("ConnectTimeout", hop.connect_timeout.as_secs().to_string(), &origin("ConnectTimeout"));
    let keepalive = hop.keepalive_interval.map_or("none".to_owned(), |every| every.as_secs().to_string());
    push_setting("ServerAliveInterval", keepalive, &origin("ServerAliveInterval"));
    let shown = ["HostName", "User", "Port", "StrictHostKeyChecking", "ConnectTimeout", "ServerAliveInterval"];
    for (name, values) in options.iter().filter(|(name, _)| !shown.contains(name) && !by_inventory(name)) {
        if name == "IdentityFile" && values.iter().all(|v| v.origin == SettingOrigin::Default) {
            push_setting(name, "~/.ssh/id_*".to_owned(), &SettingOrigin::Default);
            continue;
        }
        // That a known route needs no command is not a setting.
        let shut = name == "ProxyCommand" && options.is_set("ProxyJump");
        values.iter().filter(|_| !shut).for_each(|v| push_setting(name, v.text.to_string(), &v.origin));
    }
    HopReport { name: hop.name.clone(), is_jump: hop.is_jump, settings }
}
