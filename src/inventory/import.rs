//! Hosts out of other programs' files: a DeepSpeed hostfile, an Ansible inventory (INI or YAML), an ssh_config, a plain list.
//!
//! Pure: texts come in, an inventory's text goes out.

use std::collections::BTreeMap;

use super::yaml_parser;
use super::yaml_tree::{YamlKind, YamlNode};
use crate::text::host_patterns;

/// What a file was taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ImportFormat {
    /// `name slots=8`.
    Hostfile,
    /// `[group]` and `name ansible_host=…`.
    AnsibleIni,
    /// `all: { hosts: { name: … } }`.
    AnsibleYaml,
    /// `Host alias`.
    SshConfig,
    /// One host a line.
    PlainList,
}

/// A host as the other file knows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ImportedHost {
    name: String,
    address: Option<String>,
    user: Option<String>,
    port: Option<u16>,
    identity_file: Option<String>,
    gpus: Option<u32>,
    /// Docker runs through `sudo -n`.
    becomes_root: bool,
}

/// What the text is, and its hosts in their order.
///
/// # Errors
/// What keeps it from being read, for a person.
pub(crate) fn read_hosts(text: &str) -> Result<(ImportFormat, Vec<ImportedHost>), String> {
    let form = detect_format(text);
    let hosts = match form {
        ImportFormat::Hostfile => parse_hostfile(text)?,
        ImportFormat::AnsibleIni => parse_ansible_ini(text)?,
        ImportFormat::AnsibleYaml => parse_ansible_yaml(text)?,
        ImportFormat::SshConfig => parse_ssh_config(text),
        ImportFormat::PlainList => parse_plain_list(text)?,
    };
    if hosts.is_empty() {
        return Err(format!("no hosts found; the file was read as {}", describe_format(form)));
    }
    let mut seen: Vec<ImportedHost> = Vec::new();
    for host in hosts {
        if !host_patterns::is_host_name(&host.name) {
            return Err(format!("`{}` is not a host name; the file was read as {}", host.name, describe_format(form)));
        }
        if seen.iter().all(|other| other.name != host.name) {
            seen.push(host);
        }
    }
    Ok((form, seen))
}

/// The form in words.
pub(crate) fn describe_format(format: ImportFormat) -> &'static str {
    match format {
        ImportFormat::Hostfile => "a DeepSpeed hostfile",
        ImportFormat::AnsibleIni => "an Ansible inventory (INI)",
        ImportFormat::AnsibleYaml => "an Ansible inventory (YAML)",
        ImportFormat::SshConfig => "an ssh_config",
        ImportFormat::PlainList => "a list of hosts",
    }
}

/// The lines that say something.
fn content_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
}

fn detect_format(text: &str) -> ImportFormat {
    let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_lowercase();
    if content_lines(text).any(|line| line.split_whitespace().skip(1).any(|word| word.starts_with("slots="))) {
        ImportFormat::Hostfile
    } else if content_lines(text)
        .any(|line| matches!(first(line).as_str(), "host" | "match" | "hostname") && line.split_whitespace().count() > 1)
    {
        ImportFormat::SshConfig
    } else if content_lines(text).any(|line| line.starts_with('[') && line.ends_with(']') || line.contains("ansible_"))
        && !text.contains(":\n")
    {
        ImportFormat::AnsibleIni
    } else if content_lines(text).any(|line| line.ends_with(':')) {
        ImportFormat::AnsibleYaml
    } else {
        ImportFormat::PlainList
    }
}

fn parse_hostfile(text: &str) -> Result<Vec<ImportedHost>, String> {
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default().to_owned();
        let slots = words.find_map(|word| word.strip_prefix("slots=")).and_then(|slots| slots.parse().ok());
        let slots = slots.ok_or_else(|| format!("`{line}` is not a line of a hostfile: write for example gpu01 slots=8"))?;
        Ok(ImportedHost { name, gpus: Some(slots), ..ImportedHost::default() })
    };
    content_lines(text).map(read).collect()
}

/// What Ansible's variables say of a host.
fn host_from_ansible_vars(name: &str, variables: &BTreeMap<String, String>) -> ImportedHost {
    let of = |names: &[&str]| names.iter().find_map(|name| variables.get(*name)).cloned();
    ImportedHost {
        name: name.to_owned(),
        address: of(&["ansible_host", "ansible_ssh_host"]).filter(|address| address != name),
        user: of(&["ansible_user", "ansible_ssh_user"]),
        port: of(&["ansible_port", "ansible_ssh_port"]).and_then(|port| port.parse().ok()),
        identity_file: of(&["ansible_ssh_private_key_file", "ansible_private_key_file"]),
        gpus: None,
        becomes_root: of(&["ansible_become"]).is_some_and(|value| matches!(value.to_lowercase().as_str(), "yes" | "true" | "on" | "1")),
    }
}

/// `gpu[01:16]` as `gpu[01-16]`, written out.
fn expand_ansible_pattern(pattern: &str) -> Result<Vec<String>, String> {
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
    host_patterns::expand_pattern(&inside(pattern)).map_err(|why| format!("`{pattern}`: {why}"))
}

fn parse_ansible_ini(text: &str) -> Result<Vec<ImportedHost>, String> {
    let mut hosts: Vec<(String, BTreeMap<String, String>, Vec<String>)> = Vec::new();
    let mut groups: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let (mut group, mut kind) = ("ungrouped".to_owned(), String::new());
    for line in content_lines(text) {
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
                let names = expand_ansible_pattern(words.next().unwrap_or_default())?;
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
        host_from_ansible_vars(&name, &all)
    };
    Ok(hosts.into_iter().map(with_groups).collect())
}

fn parse_ansible_yaml(text: &str) -> Result<Vec<ImportedHost>, String> {
    let (node, problems) = yaml_parser::parse_document("", text);
    let Some(node) = node else {
        return Err(problems.first().map_or_else(|| "not YAML".to_owned(), |p| format!("line {}: {}", p.line, p.message)));
    };
    let mut hosts = Vec::new();
    for group in node.entries() {
        parse_ansible_group(&group.value, &BTreeMap::new(), &mut hosts)?;
    }
    Ok(hosts)
}

fn text_values(node: Option<&YamlNode>) -> BTreeMap<String, String> {
    let text = |node: &YamlNode| match &node.kind {
        YamlKind::Scalar { text, .. } => Some(text.clone()),
        YamlKind::Unknown(_) | YamlKind::List(_) | YamlKind::Map(_) => None,
    };
    node.map(YamlNode::entries).unwrap_or_default().iter().filter_map(|entry| Some((entry.key.clone(), text(&entry.value)?))).collect()
}

fn parse_ansible_group(group: &YamlNode, above: &BTreeMap<String, String>, hosts: &mut Vec<ImportedHost>) -> Result<(), String> {
    let mut variables = above.clone();
    variables.extend(text_values(group.get("vars")));
    for host in group.get("hosts").map(YamlNode::entries).unwrap_or_default() {
        let mut own = variables.clone();
        own.extend(text_values(Some(&host.value)));
        hosts.extend(expand_ansible_pattern(&host.key)?.iter().map(|name| host_from_ansible_vars(name, &own)));
    }
    for child in group.get("children").map(YamlNode::entries).unwrap_or_default() {
        parse_ansible_group(&child.value, &variables, hosts)?;
    }
    Ok(())
}

/// The aliases that mean one host; what they mean stays in the file.
fn parse_ssh_config(text: &str) -> Vec<ImportedHost> {
    let line = |line: &'_ str| -> Vec<String> {
        let mut words = line.split([' ', '\t', '=']).filter(|word| !word.is_empty());
        match words.next().map(str::to_lowercase).as_deref() {
            Some("host") => words.filter(|name| !name.contains(['*', '?', '!'])).map(|name| name.trim_matches('"').to_owned()).collect(),
            _ => Vec::new(),
        }
    };
    content_lines(text).flat_map(line).map(|name| ImportedHost { name, ..ImportedHost::default() }).collect()
}

fn parse_plain_list(text: &str) -> Result<Vec<ImportedHost>, String> {
    let mut hosts = Vec::new();
    for word in content_lines(text).flat_map(|line| line.split([' ', '\t', ',']).collect::<Vec<_>>()).filter(|word| !word.is_empty()) {
        let found = host_patterns::parse_destination(word).and_then(|short| Ok((host_patterns::expand_pattern(&short.host)?, short)));
        let (names, short) = found.map_err(|why| format!("`{word}`: {why}"))?;
        hosts.extend(names.into_iter().map(|name| ImportedHost {
            name,
            user: short.user.clone(),
            port: short.port,
            ..ImportedHost::default()
        }));
    }
    Ok(hosts)
}

/// A commented inventory. `ssh_config`: the file to be used instead of the user's own.
pub(crate) fn write_inventory(name: &str, hosts: &[ImportedHost], from: Option<&str>, ssh_config: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(from) = from {
        text.push_str(&format!("# Hosts from {from}.\n"));
    }
    text.push_str(&format!("name: {name}                      # names containers, labels and run directories\n\nhosts:                           # the order is the node rank; the first is the master\n"));
    for host in hosts {
        text.push_str(&format!("  - {}\n", format_host(host)));
    }
    if hosts.is_empty() {
        text.push_str("  - gpu01                        # an alias of ~/.ssh/config, or user@address:port\n  - gpu02\n");
    }
    text.push('\n');
    match ssh_config {
        Some(file) => text.push_str(&format!("ssh: {{ config: {} }}              # used instead of ~/.ssh/config\n\n", quote_yaml(file))),
        None => {
            text.push_str("# ssh: { user: root, identity: ~/.ssh/id_ed25519, jump: [bastion] }   # what ~/.ssh/config does not set\n\n")
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
         master_port: auto              # a free port on the master\n  \
         command: [train.py]            # the script and its arguments; orchestrate adds the launcher's flags\n\n\
         teardown: always               # always | on-success | never\n",
    );
    text
}

fn format_host(host: &ImportedHost) -> String {
    let ImportedHost { name, address, user, port, identity_file: identity, gpus, becomes_root } = host;
    let mut ssh = Vec::new();
    ssh.extend(user.as_ref().map(|user| format!("user: {}", quote_yaml(user))));
    ssh.extend(port.map(|port| format!("port: {port}")));
    ssh.extend(identity.as_ref().map(|identity| format!("identity: {}", quote_yaml(identity))));
    ssh.extend(becomes_root.then(|| "become: sudo".to_owned()));
    let mut keys = vec![format!("name: {}", quote_yaml(name))];
    keys.extend(address.as_ref().map(|address| format!("address: {}", quote_yaml(address))));
    keys.extend(gpus.map(|gpus| format!("gpus: {gpus}")));
    if !ssh.is_empty() {
        keys.push(format!("ssh: {{ {} }}", ssh.join(", ")));
    }
    if keys.len() == 1 { quote_yaml(name) } else { format!("{{ {} }}", keys.join(", ")) }
}

/// A scalar that means exactly this text.
fn quote_yaml(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_./-".contains(&b))
        && !matches!(text.to_lowercase().as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n");
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Inventory, InventorySource, RuntimeValues};

    /// What the written inventory says of its hosts.
    fn import_and_load(text: &str, form: ImportFormat) -> Vec<String> {
        let (found, hosts) = read_hosts(text).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(found, form);
        let written = write_inventory("train", &hosts, Some("a file"), None);
        let inventory = Inventory::load(&[InventorySource { name: "i".to_owned(), text: written.clone() }], &[])
            .unwrap_or_else(|p| panic!("{written}\n{p:#?}"));
        inventory
            .job(&RuntimeValues { gpu_counts: vec![Some(8); hosts.len()], ..RuntimeValues::default() })
            .unwrap_or_else(|p| panic!("{p:#?}"));
        let of = |host: &crate::inventory::InventoryHost| {
            let ssh = &host.ssh;
            let port = ssh.port.map(|port| format!(":{port}")).unwrap_or_default();
            let user = ssh.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
            let at = host.address.as_ref().map(|address| format!("={address}")).unwrap_or_default();
            format!("{user}{}{at}{port} {:?} {}", host.name, host.gpus, ssh.identity_files.join(" ")).trim_end().to_owned()
        };
        inventory.hosts.iter().map(of).collect()
    }

    #[test]
    fn every_format_imports_as_valid_inventory() {
        assert_eq!(
            import_and_load("# nodes\ngpu01 slots=8\ngpu02 slots=8\n", ImportFormat::Hostfile),
            ["gpu01 Count(8)", "gpu02 Count(8)"]
        );
        let ini = "[gpu]\ngpu[01:02] ansible_user=root\nn1 ansible_host=10.0.0.1 ansible_port=2222\n[gpu:vars]\nansible_user=li\n\
                   ansible_ssh_private_key_file=~/.ssh/id\n[all:children]\ngpu\n";
        let expected = ["root@gpu01 Any ~/.ssh/id", "root@gpu02 Any ~/.ssh/id", "li@n1=10.0.0.1:2222 Any ~/.ssh/id"];
        assert_eq!(import_and_load(ini, ImportFormat::AnsibleIni), expected);
        let yaml = "all:\n  vars:\n    ansible_user: li\n  children:\n    gpu:\n      hosts:\n        n1:\n          ansible_host: 10.0.0.1\n        n[2:3]:\n";
        assert_eq!(import_and_load(yaml, ImportFormat::AnsibleYaml), ["li@n1=10.0.0.1 Any", "li@n2 Any", "li@n3 Any"]);
        let config = "Host gpu01 gpu02\n  HostName 10.0.0.1\nHost *\n  User li\nHost=bastion\n";
        assert_eq!(import_and_load(config, ImportFormat::SshConfig), ["gpu01 Any", "gpu02 Any", "bastion Any"]);
        assert_eq!(
            import_and_load("gpu01\nroot@10.0.0.9:2222\nn[1-2]\n", ImportFormat::PlainList),
            ["gpu01 Any", "root@10.0.0.9:2222 Any", "n1 Any", "n2 Any"]
        );
        assert!(read_hosts("# nothing\n").is_err());
        assert!(read_hosts("gpu01 slots=eight\n").is_err());
        assert!(read_hosts("a/b\n").is_err());
    }

    #[test]
    fn ansible_become_becomes_sudo() {
        let hosts = read_hosts("[gpu]\ngpu01 ansible_become=yes\ngpu02 ansible_become=false\n").expect("hosts").1;
        let text = write_inventory("train", &hosts, None, None);
        assert!(text.contains("  - { name: gpu01, ssh: { become: sudo } }\n  - gpu02\n"), "{text}");
        Inventory::load(&[InventorySource { name: "made.yaml".to_owned(), text }], &[]).unwrap_or_else(|p| panic!("{p:#?}"));
    }

    #[test]
    fn template_without_import_loads() {
        let text = write_inventory("train", &[], None, None);
        let inventory = Inventory::load(&[InventorySource { name: "i".to_owned(), text }], &[]).unwrap_or_else(|p| panic!("{p:#?}"));
        assert_eq!(inventory.hosts.len(), 2);
    }
}
