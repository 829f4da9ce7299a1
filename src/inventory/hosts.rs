//! Who the hosts are: short forms and ranges written out, several files laid over each other by name, the master first, and the way to each.
//!
//! Uses templates, whose names must all be known before anything is connected. Knows nothing of launches.

use super::check::{self, Check};
use super::expand::{self, Short};
use super::names;
use super::schema::{self, nearest};
use super::scope::{NPROC_LIMIT, Scope};
use super::tree::{Entry, Kind, Node, Place, shorten};
use super::{Become, Gpus, Host, HostKeys, Ssh};

/// Splits every file's `hosts` off, and lays the files over each other: other keys one by one, hosts by name.
pub(super) fn merge(files: Vec<Node>, check: &mut Check) -> (Node, Vec<Node>) {
    let mut tree: Option<Node> = None;
    let mut members: Vec<(String, Node)> = Vec::new();
    for mut file in files {
        let mut list = None;
        if let Kind::Map(entries) = &mut file.kind
            && let Some(at) = entries.iter().position(|entry| entry.key == "hosts")
        {
            list = Some(entries.remove(at).value);
        }
        let mut own: Vec<(String, Node)> = Vec::new();
        for (name, node) in list.filter(|list| !list.is_null()).map(|list| collect(&list, check)).unwrap_or_default() {
            match own.iter().find(|(other, _)| *other == name) {
                Some((_, first)) => {
                    let hint = format!("it is first given at {}", first.place);
                    check.wrong(&node.place, format!("the host `{name}` is given twice"), hint);
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
    let tree = tree.unwrap_or_else(|| Node::map(Place::whole(""), Vec::new()));
    (tree, members.into_iter().map(|(_, node)| node).collect())
}

/// The hosts of one list, each as a mapping with its name.
fn collect(list: &Node, check: &mut Check) -> Vec<(String, Node)> {
    let mut hosts = Vec::new();
    let hint = "write one host a line: - gpu01, - gpu[01-16], - root@10.0.0.9:2222 or - { name: gpu01, gpus: 8 }";
    for item in check.list(list, hint) {
        if hosts.len() > expand::NAME_LIMIT {
            check.wrong(&list.place, format!("more than {} hosts", expand::NAME_LIMIT), "");
            break;
        }
        match &item.kind {
            Kind::Map(entries) => hosts.extend(long(item, entries, check)),
            Kind::Scalar { text, .. } if !item.is_null() => hosts.extend(named(text, item, check).into_iter().map(|(name, short)| {
                let mut entries = vec![named_entry(&name, &item.place)];
                entries.extend(ssh_entry(&short, &item.place));
                (name, Node::map(item.place.clone(), entries))
            })),
            Kind::Scalar { .. } | Kind::List(_) | Kind::Unknown(_) => {
                check.wrong(&item.place, format!("{} where a host is expected", item.what()), hint);
            }
        }
    }
    hosts
}

/// A host written as a mapping; its name, and its address with it, may be a range.
fn long(item: &Node, entries: &[Entry], check: &mut Check) -> Vec<(String, Node)> {
    let Some(name) = item.get("name") else {
        let hint = match entries.iter().find_map(|entry| nearest(&entry.key, ["name"]).map(|_| &entry.key)) {
            Some(near) => format!("did you mean `name` where `{near}` stands?"),
            None => "give it a name: a host's name, an alias of ssh_config, or an address".to_owned(),
        };
        check.wrong(&item.place, "a host without a `name`", hint);
        return Vec::new();
    };
    let Some(text) = check.text(name) else { return Vec::new() };
    let names = named(&text, name, check);
    let addresses = addresses(item, names.len(), check);
    let made = names.into_iter().enumerate().map(|(i, (name, short))| {
        let base = Node::map(item.place.clone(), ssh_entry(&short, &item.place).into_iter().collect());
        let mut node = base.merge(item.clone());
        if let Kind::Map(entries) = &mut node.kind {
            for entry in entries {
                match entry.key.as_str() {
                    "name" => entry.value = Node::scalar(entry.value.place.clone(), &name, false),
                    "address" => {
                        let place = entry.value.place.clone();
                        match &addresses {
                            Addresses::AsWritten => {}
                            Addresses::Each(all) => entry.value = Node::scalar(place, all.get(i).cloned().unwrap_or_default(), false),
                            Addresses::Wrong => entry.value = Node { place, kind: Kind::Unknown(String::new()) },
                        }
                    }
                    _ => {}
                }
            }
        }
        (name, node)
    });
    made.collect()
}

/// The addresses of the hosts that one entry means.
enum Addresses {
    /// One text for all: a template, or one host's address.
    AsWritten,
    Each(Vec<String>),
    /// And that was said.
    Wrong,
}

fn addresses(item: &Node, count: usize, check: &mut Check) -> Addresses {
    let Some(node) = item.get("address") else { return Addresses::AsWritten };
    let Kind::Scalar { text, .. } = &node.kind else { return Addresses::AsWritten };
    if text.contains("{{") || !text.contains('[') || text.contains(':') {
        return Addresses::AsWritten;
    }
    match expand::expand(text) {
        Ok(all) if all.len() == count => Addresses::Each(all),
        Ok(all) => {
            let says = format!("{} addresses for {count} host{}", all.len(), if count == 1 { "" } else { "s" });
            check.wrong(&node.place, says, "give both ranges the same length");
            Addresses::Wrong
        }
        Err(why) => {
            check.wrong(&node.place, format!("`{}`: {why}", shorten(text)), "write a range like 10.0.0.[1-16]");
            Addresses::Wrong
        }
    }
}

/// The hosts that one name means.
fn named(text: &str, node: &Node, check: &mut Check) -> Vec<(String, Short)> {
    let hint = "write it like gpu01, gpu[01-16], root@10.0.0.9:2222 or \"[fd00::1]:22\"";
    if text.contains("{{") {
        check.wrong(&node.place, "a template cannot name a host", "write the name out");
        return Vec::new();
    }
    let found = expand::short(text).and_then(|short| Ok((expand::expand(&short.host)?, short)));
    let (names, short) = match found {
        Ok(found) => found,
        Err(why) => {
            check.wrong(&node.place, format!("`{}`: {why}", shorten(text)), hint);
            return Vec::new();
        }
    };
    if let Some(bad) = names.iter().find(|name| !expand::is_host(name)) {
        let says = if bad.is_empty() { "an empty name".to_owned() } else { format!("`{}` cannot name a host", shorten(bad)) };
        check.wrong(&node.place, says, hint);
        return Vec::new();
    }
    names.into_iter().map(|name| (name, short.clone())).collect()
}

fn named_entry(name: &str, place: &Place) -> Entry {
    let at = place.inside("name");
    Entry { key: "name".to_owned(), place: at.clone(), value: Node::scalar(at, name, false) }
}

/// User and port of a short form as the `ssh` mapping that they stand for.
fn ssh_entry(short: &Short, place: &Place) -> Option<Entry> {
    let at = place.inside("ssh");
    let entry = |key: &str, text: String, plain| {
        let at = at.inside(key);
        Entry { key: key.to_owned(), place: at.clone(), value: Node::scalar(at, text, plain) }
    };
    let mut entries = Vec::new();
    entries.extend(short.user.as_ref().map(|user| entry("user", user.clone(), false)));
    entries.extend(short.port.map(|port| entry("port", port.to_string(), true)));
    (!entries.is_empty()).then(|| Entry { key: "ssh".to_owned(), place: at.clone(), value: Node::map(at.clone(), entries) })
}

/// A member's name, which [`merge`] has checked.
pub(super) fn name(member: &Node) -> &str {
    match member.get("name").map(|node| &node.kind) {
        Some(Kind::Scalar { text, .. }) => text,
        _ => "",
    }
}

/// Moves the master to rank 0.
pub(super) fn master_first(tree: &Node, members: &mut Vec<Node>, check: &mut Check) {
    let Some(node) = tree.get("master") else { return };
    let Some(wanted) = check.text(node) else { return };
    match members.iter().position(|member| name(member) == wanted) {
        Some(at) => {
            let master = members.remove(at);
            members.insert(0, master);
        }
        None => {
            let names: Vec<String> = members.iter().map(|member| name(member).to_owned()).collect();
            let hint = format!("the hosts are {}", shorten(&expand::fold(&names)));
            check.wrong(&node.place, format!("no host is called `{}`", shorten(&wanted)), hint);
        }
    }
}

/// Everything about one host that a connection needs.
pub(super) fn host(scope: &Scope<'_>, index: usize, check: &mut Check) -> Option<Host> {
    let facts = scope.facts();
    let member = facts.members.get(index)?;
    let empty = Node::map(member.place.clone(), Vec::new());
    let common = facts.tree.get("ssh").filter(|node| matches!(node.kind, Kind::Map(_))).cloned().unwrap_or_else(|| empty.clone());
    let own = member.get("ssh").filter(|node| matches!(node.kind, Kind::Map(_))).cloned().unwrap_or(empty);
    let ssh = ssh(&early(scope, &common.merge(own), index, check), check);
    let address = |key: &str, check: &mut Check| {
        let node = early(scope, member.get(key)?, index, check);
        check.text_that(&node, names::address)
    };
    let (address, fabric_address) = (address("address", check), address("fabric_address", check));
    let gpus = member.get("gpus").map(|node| gpus(&early(scope, node, index, check), check)).unwrap_or_default();
    Some(Host { name: name(member).to_owned(), address, fabric_address, gpus, ssh })
}

/// Evaluates what must be known before a host is connected.
pub(super) fn early(scope: &Scope<'_>, node: &Node, host: usize, check: &mut Check) -> Node {
    let node = scope.eval(node, Some(host));
    deny_unknown(&node, check);
    node
}

fn deny_unknown(node: &Node, check: &mut Check) {
    match &node.kind {
        Kind::Unknown(text) if !text.is_empty() => {
            let hint = "use vars, name, nnodes, host.name or host.rank here";
            check.wrong(&node.place, format!("{text} is not known before the hosts are connected"), hint);
        }
        Kind::List(items) => items.iter().for_each(|item| deny_unknown(item, check)),
        Kind::Map(entries) => entries.iter().for_each(|entry| deny_unknown(&entry.value, check)),
        Kind::Unknown(_) | Kind::Scalar { .. } => {}
    }
}

fn gpus(node: &Node, check: &mut Check) -> Gpus {
    match &node.kind {
        Kind::List(_) => Gpus::List(indexes(node, check)),
        Kind::Unknown(_) => Gpus::Any,
        Kind::Scalar { .. } | Kind::Map(_) => check.number(node, 0, NPROC_LIMIT).map_or(Gpus::Any, Gpus::Count),
    }
}

/// GPU indexes, none of them twice.
pub(super) fn indexes(node: &Node, check: &mut Check) -> Vec<u32> {
    let mut list = Vec::new();
    for item in node.items() {
        match check.number(item, 0, NPROC_LIMIT - 1) {
            Some(index) if list.contains(&index) => check.wrong(&item.place, format!("GPU {index} is given twice"), "name each GPU once"),
            Some(index) => list.push(index),
            None => {}
        }
    }
    if node.items().is_empty() {
        check.wrong(&node.place, "an empty list of GPUs", "leave the key out for whatever there is");
    }
    list
}

fn ssh(node: &Node, check: &mut Check) -> Ssh {
    let mut ssh = Ssh::default();
    for entry in node.entries().iter().filter(|entry| !entry.value.is_null()) {
        let value = &entry.value;
        match entry.key.as_str() {
            "user" => ssh.user = check.text_that(value, names::user),
            "port" => ssh.port = check.port(value),
            "identity" => ssh.identity = check.texts(value),
            "config" => ssh.config = check.text_that(value, not_empty),
            "known_hosts" => ssh.known_hosts = check.text_that(value, not_empty),
            "jump" => ssh.jump = Some(jump(value, check)),
            "password" => ssh.password = check.text_that(value, valid_variable),
            "host_keys" => ssh.host_keys = check.word(value, &[("strict", HostKeys::Strict), ("accept-new", HostKeys::AcceptNew)]),
            "connect_timeout" => ssh.connect_timeout = positive(value, check),
            "keepalive" => ssh.keepalive = positive(value, check),
            "give_up" => ssh.give_up = positive(value, check),
            "become" => ssh.r#become = check.word(value, &[("none", Become::None), ("sudo", Become::Sudo)]).unwrap_or_default(),
            _ => {}
        }
    }
    ssh
}

fn positive(node: &Node, check: &mut Check) -> Option<std::time::Duration> {
    let duration = check.duration(node)?;
    if duration.is_zero() {
        check.wrong(&node.place, "a time of zero", "write it like 10s");
        return None;
    }
    Some(duration)
}

fn not_empty(text: &str) -> Result<(), (String, String)> {
    if text.is_empty() { Err(("an empty path".to_owned(), "leave the key out for the default".to_owned())) } else { Ok(()) }
}

pub(super) fn valid_variable(text: &str) -> Result<(), (String, String)> {
    if crate::shell::is_variable(text) {
        return Ok(());
    }
    // The text may be the password itself: it is not repeated.
    Err(("not the name of a variable".to_owned(), "write the NAME of the laptop's variable that holds it, like SSH_PASSWORD".to_owned()))
}

fn jump(node: &Node, check: &mut Check) -> Vec<String> {
    let hops = check.texts(node);
    for hop in &hops {
        if !names::valid_jump(hop) {
            check.wrong(&node.place, format!("`{}` is not a jump host", shorten(hop)), "write it like bastion or user@bastion:2222");
        }
    }
    hops
}

/// Compares the keys of every host, and what two hosts may not share.
pub(super) fn keys(tree: &Node, members: &[Node], check: &mut Check) {
    if let Some(ssh) = tree.get("ssh") {
        check.block(ssh, &schema::SSH);
    }
    for member in members {
        check.block(member, &schema::HOST);
        if let Some(ssh) = member.get("ssh") {
            check.block(ssh, &schema::SSH);
        }
    }
}

/// Two names for one machine would start its ranks twice.
pub(super) fn distinct(hosts: &[Host], members: &[Node], check: &mut Check) {
    for (index, host) in hosts.iter().enumerate() {
        let Some(address) = host.address.as_ref().filter(|address| !address.is_empty()) else { continue };
        let same =
            |other: &&Host| other.address.as_ref() == Some(address) && other.ssh.port == host.ssh.port && other.ssh.jump == host.ssh.jump;
        let first = hosts.iter().take(index).find(same);
        if let (Some(first), Some(member)) = (first, members.get(index)) {
            let place = member.get("address").map_or(&member.place, |node| &node.place);
            check.wrong(
                place,
                format!("`{}` has this address too", first.name),
                "give each machine once, or say the ssh port that differs",
            );
        }
    }
}

/// `secrets`: names of the laptop's variables.
pub(super) fn secrets(node: &Node, check: &mut Check) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for item in check.list(node, "write it like [HF_TOKEN, WANDB_API_KEY]") {
        let Some(name) = check.text(item) else { continue };
        if let Err((says, hint)) = check::variable(&name) {
            // The text may be the secret itself: it is not repeated.
            let says = if crate::shell::is_variable(&name) { says } else { "not the name of a variable".to_owned() };
            check.wrong(&item.place, says, hint);
        } else if names.contains(&name) {
            check.wrong(&item.place, format!("`{name}` is given twice"), "name it once");
        } else {
            names.push(name);
        }
    }
    names
}
