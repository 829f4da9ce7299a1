//! The entries of `hosts`: names, ranges and addresses in their short and long forms.

use super::errors::InventoryErrors;
use super::schema::nearest_word;
use super::yaml_tree::{SourceLocation, YamlEntry, YamlKind, YamlNode, shorten};
use crate::text::host_patterns;
use crate::text::host_patterns::SshDestination;

/// The hosts of one list, each as a mapping with its name.
pub(super) fn collect_hosts(list: &YamlNode, errors: &mut InventoryErrors) -> Vec<(String, YamlNode)> {
    let mut hosts = Vec::new();
    let hint = "write one host per line: - gpu01, - gpu[01-16], - root@10.0.0.9:2222 or - { name: gpu01, gpus: 8 }";
    for item in errors.read_list(list, hint) {
        if hosts.len() > host_patterns::MAX_HOSTS {
            errors.report(&list.location, format!("more than {} hosts", host_patterns::MAX_HOSTS), "");
            break;
        }
        match &item.kind {
            YamlKind::Map(entries) => hosts.extend(expand_host_mapping(item, entries, errors)),
            YamlKind::Scalar { text, .. } if !item.is_null() => {
                hosts.extend(expand_host_text(text, item, errors).into_iter().map(|short| {
                    let mut entries = vec![name_entry(&short.host, &item.location)];
                    entries.extend(ssh_entry(&short, &item.location));
                    (short.host, YamlNode::map(item.location.clone(), entries))
                }))
            }
            YamlKind::Scalar { .. } | YamlKind::List(_) | YamlKind::Unknown(_) => {
                errors.report(&item.location, format!("expected a host, found {}", item.describe()), hint);
            }
        }
    }
    hosts
}

/// A host written as a mapping; its name, and its address with it, may be a range.
fn expand_host_mapping(item: &YamlNode, entries: &[YamlEntry], errors: &mut InventoryErrors) -> Vec<(String, YamlNode)> {
    let Some(name) = item.get("name") else {
        let hint = match entries.iter().find_map(|entry| nearest_word(&entry.key, ["name"]).map(|_| &entry.key)) {
            Some(near) => format!("did you mean `name` instead of `{near}`?"),
            None => "add a name: a host name, an alias of ssh_config, or an address".to_owned(),
        };
        errors.report(&item.location, "a host without a `name`", hint);
        return Vec::new();
    };
    let Some(text) = errors.read_text(name) else { return Vec::new() };
    let names = expand_host_text(&text, name, errors);
    let addresses = parse_addresses(item, names.len(), errors);
    let made = names.into_iter().enumerate().map(|(i, short)| {
        let base = YamlNode::map(item.location.clone(), ssh_entry(&short, &item.location).into_iter().collect());
        let mut node = base.merge(item.clone());
        if let YamlKind::Map(entries) = &mut node.kind {
            for entry in entries {
                match entry.key.as_str() {
                    "name" => entry.value = YamlNode::scalar(entry.value.location.clone(), &short.host, false),
                    "address" => {
                        let source = entry.value.location.clone();
                        match &addresses {
                            EntryAddresses::Shared => {}
                            EntryAddresses::PerHost(all) => {
                                entry.value = YamlNode::scalar(source, all.get(i).cloned().unwrap_or_default(), false)
                            }
                            EntryAddresses::Invalid => entry.value = YamlNode { location: source, kind: YamlKind::Unknown(String::new()) },
                        }
                    }
                    _ => {}
                }
            }
        }
        (short.host, node)
    });
    made.collect()
}

/// The addresses of the hosts that one entry means.
enum EntryAddresses {
    /// One text for all: a template, or one host's address.
    Shared,
    PerHost(Vec<String>),
    /// And that was reported.
    Invalid,
}

fn parse_addresses(item: &YamlNode, count: usize, errors: &mut InventoryErrors) -> EntryAddresses {
    let Some(node) = item.get("address") else { return EntryAddresses::Shared };
    let YamlKind::Scalar { text, .. } = &node.kind else { return EntryAddresses::Shared };
    if text.contains("{{") || !text.contains('[') || text.contains(':') {
        return EntryAddresses::Shared;
    }
    match host_patterns::expand_pattern(text) {
        Ok(all) if all.len() == count => EntryAddresses::PerHost(all),
        Ok(all) => {
            let message = match count {
                1 => format!("{} addresses for 1 host", all.len()),
                _ => format!("{} addresses for {count} hosts", all.len()),
            };
            errors.report(&node.location, message, "make both ranges equally long");
            EntryAddresses::Invalid
        }
        Err(why) => {
            errors.report(&node.location, format!("`{}`: {why}", shorten(text)), "write a range, for example 10.0.0.[1-16]");
            EntryAddresses::Invalid
        }
    }
}

/// The hosts that one name means.
fn expand_host_text(text: &str, node: &YamlNode, errors: &mut InventoryErrors) -> Vec<SshDestination> {
    let hint = "for example gpu01, gpu[01-16], root@10.0.0.9:2222 or \"[fd00::1]:22\"";
    if text.contains("{{") {
        errors.report(&node.location, "a host name cannot be a template", "write the name itself");
        return Vec::new();
    }
    let hosts = match host_patterns::expand_destination(text) {
        Ok(hosts) => hosts,
        Err(why) => {
            errors.report(&node.location, format!("`{}`: {why}", shorten(text)), hint);
            return Vec::new();
        }
    };
    if let Some(bad) = hosts.iter().map(|host| &host.host).find(|name| !host_patterns::is_host_name(name)) {
        let message = if bad.is_empty() { "an empty name".to_owned() } else { format!("`{}` is not a host name", shorten(bad)) };
        errors.report(&node.location, message, hint);
        return Vec::new();
    }
    hosts
}

fn name_entry(name: &str, location: &SourceLocation) -> YamlEntry {
    let at = location.child("name");
    YamlEntry::new("name", at.clone(), YamlNode::scalar(at, name, false))
}

/// User and port of a short form as the `ssh` mapping that they stand for.
fn ssh_entry(short: &SshDestination, location: &SourceLocation) -> Option<YamlEntry> {
    let at = location.child("ssh");
    let entry = |key: &str, text: String, plain| {
        let at = at.child(key);
        YamlEntry::new(key, at.clone(), YamlNode::scalar(at, text, plain))
    };
    let mut entries = Vec::new();
    entries.extend(short.user.as_ref().map(|user| entry("user", user.clone(), false)));
    entries.extend(short.port.map(|port| entry("port", port.to_string(), true)));
    (!entries.is_empty()).then(|| YamlEntry::new("ssh", at.clone(), YamlNode::map(at, entries)))
}
