//! The hosts: expanded short forms and ranges, several files merged by name, the master first, and the route to each.

use super::errors::{self, InventoryErrors};
use super::eval::{Evaluator, NPROC_LIMIT};
use super::host_entries::collect_hosts;
use super::name_syntax;
use super::problem::{Verdict, require};
use super::schema;
use super::yaml_tree::{SourceLocation, YamlKind, YamlNode, shorten};
use super::{Become, GpuSelection, HostKeyChecking, HostSshSettings, InventoryHost};
use crate::text::host_patterns;
use crate::text::host_patterns::SshDestination;

/// Splits every file's `hosts` off, and lays the files over each other: other keys one by one, hosts by name.
pub(super) fn merge_files(files: Vec<YamlNode>, errors: &mut InventoryErrors) -> (YamlNode, Vec<YamlNode>) {
    let mut tree: Option<YamlNode> = None;
    let mut members: Vec<(String, YamlNode)> = Vec::new();
    for mut file in files {
        let mut list = None;
        if let YamlKind::Map(entries) = &mut file.kind
            && let Some(at) = entries.iter().position(|entry| entry.key == "hosts")
        {
            list = Some(entries.remove(at).value);
        }
        let mut own: Vec<(String, YamlNode)> = Vec::new();
        for (name, node) in list.filter(|list| !list.is_null()).map(|list| collect_hosts(&list, errors)).unwrap_or_default() {
            match own.iter().find(|(other, _)| *other == name) {
                Some((_, first)) => {
                    let hint = format!("first defined at {}", first.location);
                    errors.report(&node.location, format!("duplicate host `{name}`"), hint);
                }
                None => own.push((name, node)),
            }
        }
        for (name, node) in own {
            match members.iter().position(|(other, _)| *other == name) {
                Some(at) => {
                    let (name, known) = members.remove(at);
                    members.insert(at, (name, known.merge(node)));
                }
                None => members.push((name, node)),
            }
        }
        tree = Some(match tree {
            Some(tree) => tree.merge(file),
            None => file,
        });
    }
    let tree = tree.unwrap_or_else(|| YamlNode::map(SourceLocation::whole_file(""), Vec::new()));
    (tree, members.into_iter().map(|(_, node)| node).collect())
}

/// A member's name, which [`merge_files`] has checked.
pub(super) fn host_node_name(host_node: &YamlNode) -> &str {
    host_node.get("name").and_then(YamlNode::as_text).unwrap_or_default()
}

/// Moves the master to rank 0.
pub(super) fn move_master_first(tree: &YamlNode, host_nodes: &mut Vec<YamlNode>, errors: &mut InventoryErrors) {
    let Some(node) = tree.get("master") else { return };
    let Some(wanted) = errors.read_text(node) else { return };
    match host_nodes.iter().position(|member| host_node_name(member) == wanted) {
        Some(at) => {
            let master = host_nodes.remove(at);
            host_nodes.insert(0, master);
        }
        None => {
            let names: Vec<String> = host_nodes.iter().map(|member| host_node_name(member).to_owned()).collect();
            let hint = format!("the hosts are {}", shorten(&host_patterns::compress_to_pattern(&names)));
            errors.report(&node.location, format!("no host is named `{}`", shorten(&wanted)), hint);
        }
    }
}

/// Every host that can be read. Two names for one machine would start its ranks twice.
pub(super) fn parse_hosts(evaluator: &Evaluator<'_>, host_nodes: &[YamlNode], errors: &mut InventoryErrors) -> Vec<InventoryHost> {
    let mut hosts: Vec<InventoryHost> = Vec::new();
    for (index, node) in host_nodes.iter().enumerate() {
        let Some(host) = parse_host(evaluator, index, errors) else { continue };
        let has_address = host.address.as_ref().is_some_and(|address| !address.is_empty());
        let same = |other: &&InventoryHost| {
            other.address == host.address && other.ssh.port == host.ssh.port && other.ssh.jump_hosts == host.ssh.jump_hosts
        };
        if let Some(first) = hosts.iter().find(same).filter(|_| has_address) {
            let location = node.get("address").map_or(&node.location, |node| &node.location);
            errors.report(
                location,
                format!("`{}` has this address too", first.name),
                "list each machine once, or set ssh ports that differ",
            );
        }
        hosts.push(host);
    }
    hosts
}

/// Everything about one host that a connection needs.
fn parse_host(evaluator: &Evaluator<'_>, index: usize, errors: &mut InventoryErrors) -> Option<InventoryHost> {
    let facts = evaluator.inputs();
    let member = facts.host_nodes.get(index)?;
    let empty = YamlNode::map(member.location.clone(), Vec::new());
    let common = facts.tree.get_map("ssh").cloned().unwrap_or_else(|| empty.clone());
    let own = member.get_map("ssh").cloned().unwrap_or(empty);
    let ssh = parse_ssh(&evaluate_before_connect(evaluator, &common.merge(own), index, errors), errors);
    let address = |key: &str, errors: &mut InventoryErrors| {
        let node = evaluate_before_connect(evaluator, member.get(key)?, index, errors);
        errors.validated_text(&node, name_syntax::validate_address)
    };
    let (address, fabric_address) = (address("address", errors), address("fabric_address", errors));
    let gpus =
        member.get("gpus").map(|node| parse_gpus(&evaluate_before_connect(evaluator, node, index, errors), errors)).unwrap_or_default();
    Some(InventoryHost { name: host_node_name(member).to_owned(), address, fabric_address, gpus, ssh })
}

/// The login node of a cluster: `host`, `user@host` or `user@host:port`, with the inventory's `ssh` beneath.
pub(super) fn parse_login_host(evaluator: &Evaluator<'_>, login: &str, errors: &mut InventoryErrors) -> Option<InventoryHost> {
    let SshDestination { user, host: name, port } = host_patterns::parse_destination(login).ok()?;
    let common = evaluator.inputs().tree.get_map("ssh");
    let ssh = common.map(|node| parse_ssh(&evaluate_before_connect(evaluator, node, 0, errors), errors)).unwrap_or_default();
    let ssh = HostSshSettings { user: user.or(ssh.user), port: port.or(ssh.port), ..ssh };
    Some(InventoryHost { name, ssh, ..InventoryHost::default() })
}

/// Evaluates what must be known before a host is connected.
pub(super) fn evaluate_before_connect(evaluator: &Evaluator<'_>, node: &YamlNode, host: usize, errors: &mut InventoryErrors) -> YamlNode {
    let node = evaluator.evaluate(node, Some(host));
    reject_unknown_values(&node, errors);
    node
}

fn reject_unknown_values(node: &YamlNode, errors: &mut InventoryErrors) {
    match &node.kind {
        YamlKind::Unknown(text) if !text.is_empty() => {
            let hint = "use vars, name, nnodes, host.name or host.rank here";
            errors.report(&node.location, format!("{text} is unknown until the hosts are connected"), hint);
        }
        YamlKind::List(items) => items.iter().for_each(|item| reject_unknown_values(item, errors)),
        YamlKind::Map(entries) => entries.iter().for_each(|entry| reject_unknown_values(&entry.value, errors)),
        YamlKind::Unknown(_) | YamlKind::Scalar { .. } => {}
    }
}

fn parse_gpus(node: &YamlNode, errors: &mut InventoryErrors) -> GpuSelection {
    match &node.kind {
        YamlKind::List(_) => GpuSelection::List(parse_gpu_indexes(node, errors)),
        YamlKind::Unknown(_) => GpuSelection::Any,
        YamlKind::Scalar { .. } | YamlKind::Map(_) => {
            errors.read_number(node, 0, NPROC_LIMIT).map_or(GpuSelection::Any, GpuSelection::Count)
        }
    }
}

/// GPU indexes, none of them twice.
pub(super) fn parse_gpu_indexes(node: &YamlNode, errors: &mut InventoryErrors) -> Vec<u32> {
    let mut list = Vec::new();
    for item in node.items() {
        match errors.read_number(item, 0, NPROC_LIMIT - 1) {
            Some(index) if list.contains(&index) => errors.report(&item.location, format!("duplicate GPU {index}"), "list each GPU once"),
            Some(index) => list.push(index),
            None => {}
        }
    }
    if node.items().is_empty() {
        errors.report(&node.location, "an empty list of GPUs", "remove the key to use all GPUs");
    }
    list
}

fn parse_ssh(node: &YamlNode, errors: &mut InventoryErrors) -> HostSshSettings {
    let mut ssh = HostSshSettings::default();
    for entry in node.entries().iter().filter(|entry| !entry.value.is_null()) {
        let value = &entry.value;
        match entry.key.as_str() {
            "user" => ssh.user = errors.validated_text(value, name_syntax::validate_user),
            "port" => ssh.port = errors.read_port(value),
            "identity" => ssh.identity_files = errors.read_text_list(value),
            "config" => ssh.config_file = errors.validated_text(value, validate_not_empty),
            "known_hosts" => ssh.known_hosts_file = errors.validated_text(value, validate_not_empty),
            "jump" => ssh.jump_hosts = Some(parse_jump_hosts(value, errors)),
            "password" => ssh.password_variable = errors.validated_text(value, validate_env_name),
            "host_keys" => {
                ssh.host_key_checking =
                    errors.read_choice(value, &[("strict", HostKeyChecking::Strict), ("accept-new", HostKeyChecking::AcceptNew)])
            }
            "connect_timeout" => ssh.connect_timeout = parse_positive_duration(value, errors),
            "keepalive" => ssh.keepalive_interval = parse_positive_duration(value, errors),
            "give_up" => ssh.give_up_after = parse_positive_duration(value, errors),
            "become" => ssh.r#become = errors.read_choice(value, &[("none", Become::None), ("sudo", Become::Sudo)]).unwrap_or_default(),
            _ => {}
        }
    }
    ssh
}

fn parse_positive_duration(node: &YamlNode, errors: &mut InventoryErrors) -> Option<std::time::Duration> {
    let duration = errors.read_duration(node)?;
    if duration.is_zero() {
        errors.report(&node.location, "a duration of zero", "for example 10s");
        return None;
    }
    Some(duration)
}

fn validate_not_empty(text: &str) -> Verdict {
    require(!text.is_empty(), "an empty path", "remove the key to use the default")
}

pub(super) fn validate_env_name(text: &str) -> Verdict {
    // The text may be the password itself: it is not repeated.
    let hint = "write the name of the environment variable on the laptop that holds it, for example SSH_PASSWORD";
    require(crate::text::shell_quote::is_variable_name(text), "not a variable name", hint)
}

fn parse_jump_hosts(node: &YamlNode, errors: &mut InventoryErrors) -> Vec<String> {
    let hops = errors.read_text_list(node);
    for hop in &hops {
        if !name_syntax::is_valid_jump_host(hop) {
            errors.report(&node.location, format!("`{}` is not a jump host", shorten(hop)), "for example bastion or user@bastion:2222");
        }
    }
    hops
}

/// Compares the keys of every host, and what two hosts may not share.
pub(super) fn check_keys(tree: &YamlNode, host_nodes: &[YamlNode], errors: &mut InventoryErrors) {
    if let Some(ssh) = tree.get("ssh") {
        errors.check_keys(ssh, &schema::SSH_SCHEMA);
    }
    for member in host_nodes {
        errors.check_keys(member, &schema::HOST_SCHEMA);
        if let Some(ssh) = member.get("ssh") {
            errors.check_keys(ssh, &schema::SSH_SCHEMA);
        }
    }
}

/// `secrets`: names of the laptop's variables.
pub(super) fn parse_secrets(node: &YamlNode, errors: &mut InventoryErrors) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for item in errors.read_list(node, "for example [HF_TOKEN, WANDB_API_KEY]") {
        let Some(name) = errors.read_text(item) else { continue };
        if let Err((message, hint)) = errors::validate_variable_name(&name) {
            // The text may be the secret itself: it is not repeated.
            let message = if crate::text::shell_quote::is_variable_name(&name) { message } else { "not a variable name".to_owned() };
            errors.report(&item.location, message, hint);
        } else if names.contains(&name) {
            errors.report(&item.location, format!("duplicate `{name}`"), "list it once");
        } else {
            names.push(name);
        }
    }
    names
}
