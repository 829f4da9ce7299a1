//! Hosts out of other programs' files: a DeepSpeed hostfile, an Ansible inventory (INI or YAML), an ssh_config, a plain list.
//!
//! Uses the YAML door and the short forms of hosts. Pure: texts come in, an inventory's text goes out.

use std::collections::BTreeMap;

use super::expand;
use super::raw;
use super::tree::{Kind, Node};

/// What a file was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `name slots=8`.
    Hostfile,
    /// `[group]` and `name ansible_host=…`.
    AnsibleIni,
    /// `all: { hosts: { name: … } }`.
    AnsibleYaml,
    /// `Host alias`.
    SshConfig,
    /// One host a line.
    List,
}

/// A host as the other file knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Imported {
    name: String,
    address: Option<String>,
    user: Option<String>,
    port: Option<u16>,
    identity: Option<String>,
    gpus: Option<u32>,
}

/// What the text is, and its hosts in their order.
///
/// # Errors
/// What keeps it from being read, for a person.
pub fn read(text: &str) -> Result<(Form, Vec<Imported>), String> {
    let form = form(text);
    let hosts = match form {
        Form::Hostfile => hostfile(text)?,
        Form::AnsibleIni => ansible_ini(text)?,
        Form::AnsibleYaml => ansible_yaml(text)?,
        Form::SshConfig => ssh_config(text),
        Form::List => list(text)?,
    };
    if hosts.is_empty() {
        return Err(format!("no host in it; it was read as {}", said(form)));
    }
    let mut seen: Vec<Imported> = Vec::new();
    for host in hosts {
        if !expand::is_host(&host.name) {
            return Err(format!("`{}` cannot name a host; the file was read as {}", host.name, said(form)));
        }
        if seen.iter().all(|other| other.name != host.name) {
            seen.push(host);
        }
    }
    Ok((form, seen))
}

/// The form in words.
pub fn said(form: Form) -> &'static str {
    match form {
        Form::Hostfile => "a DeepSpeed hostfile",
        Form::AnsibleIni => "an Ansible inventory (INI)",
        Form::AnsibleYaml => "an Ansible inventory (YAML)",
        Form::SshConfig => "an ssh_config",
        Form::List => "a list of hosts",
    }
}

/// The lines that say something.
fn telling(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
}

fn form(text: &str) -> Form {
    let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_lowercase();
    if telling(text).any(|line| line.split_whitespace().skip(1).any(|word| word.starts_with("slots="))) {
        Form::Hostfile
    } else if telling(text).any(|line| matches!(first(line).as_str(), "host" | "match" | "hostname") && line.split_whitespace().count() > 1)
    {
        Form::SshConfig
    } else if telling(text).any(|line| line.starts_with('[') && line.ends_with(']') || line.contains("ansible_")) && !text.contains(":\n") {
        Form::AnsibleIni
    } else if telling(text).any(|line| line.ends_with(':')) {
        Form::AnsibleYaml
    } else {
        Form::List
    }
}

fn hostfile(text: &str) -> Result<Vec<Imported>, String> {
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        let slots = words.find_map(|word| word.strip_prefix("slots=")).and_then(|slots| slots.parse().ok());
        let slots = slots.ok_or_else(|| format!("`{line}` is no line of a hostfile: write it like gpu01 slots=8"))?;
        Ok(Imported { name, gpus: Some(slots), ..Imported::default() })
    };
    telling(text).map(read).collect()
}

/// What Ansible's variables say of a host.
fn ansible(name: &str, variables: &BTreeMap<String, String>) -> Imported {
    let of = |names: &[&str]| names.iter().find_map(|name| variables.get(*name)).cloned();
    Imported {
        name: name.to_owned(),
        address: of(&["ansible_host", "ansible_ssh_host"]).filter(|address| address != name),
        user: of(&["ansible_user", "ansible_ssh_user"]),
        port: of(&["ansible_port", "ansible_ssh_port"]).and_then(|port| port.parse().ok()),
        identity: of(&["ansible_ssh_private_key_file", "ansible_private_key_file"]),
        gpus: None,
    }
}

/// `gpu[01:16]` as `gpu[01-16]`, written out.
fn ansible_names(pattern: &str) -> Result<Vec<String>, String> {
    let inside = |text: &str| {
        let mut depth = 0_u32;
        text.chars()
            .map(|c| {
                match c {
                    '[' => depth += 1,
                    ']' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if c == ':' && depth > 0 { '-' } else { c }
            })
            .collect::<String>()
    };
    expand::expand(&inside(pattern)).map_err(|why| format!("`{pattern}`: {why}"))
}

fn ansible_ini(text: &str) -> Result<Vec<Imported>, String> {
    let mut hosts: Vec<(String, BTreeMap<String, String>, Vec<String>)> = Vec::new();
    let mut groups: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let (mut group, mut kind) = ("ungrouped".to_owned(), String::new());
    for line in telling(text) {
        if let Some(head) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let (name, of) = head.split_once(':').unwrap_or((head, ""));
            (group, kind) = (name.to_owned(), of.to_owned());
            continue;
        }
        let pair = |word: &str| word.split_once('=').map(|(k, v)| (k.trim().to_owned(), v.trim().trim_matches(['"', '\'']).to_owned()));
        match kind.as_str() {
            "vars" => groups.entry(group.clone()).or_default().extend(pair(line)),
            "children" => {}
            _ => {
                let mut words = line.split_whitespace();
                let names = ansible_names(words.next().unwrap_or_default())?;
                let own: BTreeMap<String, String> = words.take_while(|word| !word.starts_with('#')).filter_map(pair).collect();
                for name in names {
                    match hosts.iter_mut().find(|(other, ..)| *other == name) {
                        Some((_, variables, groups)) => {
                            variables.extend(own.clone());
                            groups.push(group.clone());
                        }
                        None => hosts.push((name, own.clone(), vec!["all".to_owned(), group.clone()])),
                    }
                }
            }
        }
    }
    let with_groups = |(name, own, of): (String, BTreeMap<String, String>, Vec<String>)| {
        let mut all: BTreeMap<String, String> =
            of.iter().filter_map(|group| groups.get(group)).flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
        all.extend(own);
        ansible(&name, &all)
    };
    Ok(hosts.into_iter().map(with_groups).collect())
}

fn ansible_yaml(text: &str) -> Result<Vec<Imported>, String> {
    let (node, problems) = raw::parse("", text);
    let Some(node) = node else {
        return Err(problems.first().map_or_else(|| "not YAML".to_owned(), |p| format!("line {}: {}", p.line, p.says)));
    };
    let mut hosts = Vec::new();
    for group in node.entries() {
        yaml_group(&group.value, &BTreeMap::new(), &mut hosts)?;
    }
    Ok(hosts)
}

fn words(node: Option<&Node>) -> BTreeMap<String, String> {
    let text = |node: &Node| match &node.kind {
        Kind::Scalar { text, .. } => Some(text.clone()),
        Kind::Unknown(_) | Kind::List(_) | Kind::Map(_) => None,
    };
    node.map(Node::entries).unwrap_or_default().iter().filter_map(|entry| Some((entry.key.clone(), text(&entry.value)?))).collect()
}

fn yaml_group(group: &Node, above: &BTreeMap<String, String>, hosts: &mut Vec<Imported>) -> Result<(), String> {
    let mut variables = above.clone();
    variables.extend(words(group.get("vars")));
    for host in group.get("hosts").map(Node::entries).unwrap_or_default() {
        let mut own = variables.clone();
        own.extend(words(Some(&host.value)));
        hosts.extend(ansible_names(&host.key)?.iter().map(|name| ansible(name, &own)));
    }
    for child in group.get("children").map(Node::entries).unwrap_or_default() {
        yaml_group(&child.value, &variables, hosts)?;
    }
    Ok(())
}

/// The aliases that mean one host; what they mean stays in the file.
fn ssh_config(text: &str) -> Vec<Imported> {
    let line = |line: &'_ str| -> Vec<String> {
        let mut words = line.split([' ', '\t', '=']).filter(|word| !word.is_empty());
        match words.next().map(str::to_lowercase).as_deref() {
            Some("host") => words.filter(|name| !name.contains(['*', '?', '!'])).map(|name| name.trim_matches('"').to_owned()).collect(),
            _ => Vec::new(),
        }
    };
    telling(text).flat_map(line).map(|name| Imported { name, ..Imported::default() }).collect()
}

fn list(text: &str) -> Result<Vec<Imported>, String> {
    let mut hosts = Vec::new();
    for word in telling(text).flat_map(|line| line.split([' ', '\t', ',']).collect::<Vec<_>>()).filter(|word| !word.is_empty()) {
        let found = expand::short(word).and_then(|short| Ok((expand::expand(&short.host)?, short)));
        let (names, short) = found.map_err(|why| format!("`{word}`: {why}"))?;
        hosts.extend(names.into_iter().map(|name| Imported { name, user: short.user.clone(), port: short.port, ..Imported::default() }));
    }
    Ok(hosts)
}

/// A commented inventory. `ssh_config`: the file to be used instead of the user's own.
pub fn write(name: &str, hosts: &[Imported], from: Option<&str>, ssh_config: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(from) = from {
        text.push_str(&format!("# Hosts from {from}.\n"));
    }
    text.push_str(&format!("name: {name}                      # names containers, labels and run directories\n\nhosts:                           # the order is the node rank; the first is the master\n"));
    for host in hosts {
        text.push_str(&format!("  - {}\n", line(host)));
    }
    if hosts.is_empty() {
        text.push_str("  - gpu01                        # a name of ~/.ssh/config, or user@address:port\n  - gpu02\n");
    }
    text.push('\n');
    match ssh_config {
        Some(file) => text.push_str(&format!("ssh: {{ config: {} }}              # used instead of ~/.ssh/config\n\n", yaml(file))),
        None => {
            text.push_str("# ssh: { user: root, identity: ~/.ssh/id_ed25519, jump: [bastion] }   # what ~/.ssh/config does not say\n\n")
        }
    }
    text.push_str(
        "# container:                     # without it the ranks run on the bare hosts\n\
         #   image: registry/team/train:1\n\
         #   mounts: [/data:/data:ro]\n\
         # env: { OMP_NUM_THREADS: 8 }\n\n\
         launch:\n  \
         with: torchrun                 # torchrun | accelerate | deepspeed | processes | script\n  \
         # nproc_per_node: 8            # default: the GPUs of each host\n  \
         master_port: auto              # one that is free on the master\n  \
         command: [train.py]            # the script and its words; the launcher's flags are built from the hosts\n\n\
         teardown: always               # always | on-success | never\n",
    );
    text
}

fn line(host: &Imported) -> String {
    let Imported { name, address, user, port, identity, gpus } = host;
    let mut ssh = Vec::new();
    ssh.extend(user.as_ref().map(|user| format!("user: {}", yaml(user))));
    ssh.extend(port.map(|port| format!("port: {port}")));
    ssh.extend(identity.as_ref().map(|identity| format!("identity: {}", yaml(identity))));
    let mut keys = vec![format!("name: {}", yaml(name))];
    keys.extend(address.as_ref().map(|address| format!("address: {}", yaml(address))));
    keys.extend(gpus.map(|gpus| format!("gpus: {gpus}")));
    if !ssh.is_empty() {
        keys.push(format!("ssh: {{ {} }}", ssh.join(", ")));
    }
    if keys.len() == 1 { yaml(name) } else { format!("{{ {} }}", keys.join(", ")) }
}

/// A scalar that means exactly this text.
fn yaml(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_./-".contains(&b))
        && !matches!(text.to_lowercase().as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n");
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Inventory, Known, Source};

    /// What the written inventory says of its hosts.
    fn through(text: &str, form: Form) -> Vec<String> {
        let (found, hosts) = read(text).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(found, form);
        let written = write("train", &hosts, Some("a file"), None);
        let inventory =
            Inventory::load(&[Source { name: "i".to_owned(), text: written.clone() }], &[]).unwrap_or_else(|p| panic!("{written}\n{p:#?}"));
        inventory.job(&Known { gpus: vec![Some(8); hosts.len()], ..Known::default() }).unwrap_or_else(|p| panic!("{p:#?}"));
        let of = |host: &crate::inventory::Host| {
            let ssh = &host.ssh;
            let port = ssh.port.map(|port| format!(":{port}")).unwrap_or_default();
            let user = ssh.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
            let at = host.address.as_ref().map(|address| format!("={address}")).unwrap_or_default();
            format!("{user}{}{at}{port} {:?} {}", host.name, host.gpus, ssh.identity.join(" ")).trim_end().to_owned()
        };
        inventory.hosts.iter().map(of).collect()
    }

    #[test]
    fn each_form_becomes_an_inventory() {
        assert_eq!(through("# nodes\ngpu01 slots=8\ngpu02 slots=8\n", Form::Hostfile), ["gpu01 Count(8)", "gpu02 Count(8)"]);
        let ini = "[gpu]\ngpu[01:02] ansible_user=root\nn1 ansible_host=10.0.0.1 ansible_port=2222\n[gpu:vars]\nansible_user=li\n\
                   ansible_ssh_private_key_file=~/.ssh/id\n[all:children]\ngpu\n";
        let expected = ["root@gpu01 Any ~/.ssh/id", "root@gpu02 Any ~/.ssh/id", "li@n1=10.0.0.1:2222 Any ~/.ssh/id"];
        assert_eq!(through(ini, Form::AnsibleIni), expected);
        let yaml = "all:\n  vars:\n    ansible_user: li\n  children:\n    gpu:\n      hosts:\n        n1:\n          ansible_host: 10.0.0.1\n        n[2:3]:\n";
        assert_eq!(through(yaml, Form::AnsibleYaml), ["li@n1=10.0.0.1 Any", "li@n2 Any", "li@n3 Any"]);
        let config = "Host gpu01 gpu02\n  HostName 10.0.0.1\nHost *\n  User li\nHost=bastion\n";
        assert_eq!(through(config, Form::SshConfig), ["gpu01 Any", "gpu02 Any", "bastion Any"]);
        assert_eq!(through("gpu01\nroot@10.0.0.9:2222\nn[1-2]\n", Form::List), ["gpu01 Any", "root@10.0.0.9:2222 Any", "n1 Any", "n2 Any"]);
        assert!(read("# nothing\n").is_err());
        assert!(read("gpu01 slots=eight\n").is_err());
        assert!(read("a/b\n").is_err());
    }

    #[test]
    fn without_a_file_it_is_an_example_that_loads() {
        let text = write("train", &[], None, None);
        let inventory = Inventory::load(&[Source { name: "i".to_owned(), text }], &[]).unwrap_or_else(|p| panic!("{p:#?}"));
        assert_eq!(inventory.hosts.len(), 2);
    }
}
