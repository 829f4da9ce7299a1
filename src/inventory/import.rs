//! Hosts out of other programs' files: a DeepSpeed hostfile, an Ansible inventory (INI or YAML), an ssh_config, a plain list.
//!
//! Pure: texts come in, an inventory's text goes out.

use std::collections::BTreeSet;

use super::ansible_import;
use super::imported_host::{ImportedHost, quote_yaml};
use super::schema::nearest_word;
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

/// What the text is, and its hosts in their order.
///
/// # Errors
/// What keeps it from being read, for a person.
pub(crate) fn read_hosts(text: &str) -> Result<(ImportFormat, Vec<ImportedHost>), String> {
    let form = detect_format(text);
    let hosts = match form {
        ImportFormat::Hostfile => parse_hostfile(text)?,
        ImportFormat::AnsibleIni => ansible_import::parse_ini(content_lines(text))?,
        ImportFormat::AnsibleYaml => ansible_import::parse_yaml(text)?,
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

/// The hosts of these groups, in their order.
///
/// # Errors
/// A group that the file does not have.
pub(crate) fn select_groups(hosts: Vec<ImportedHost>, groups: &[String]) -> Result<Vec<ImportedHost>, String> {
    let known: BTreeSet<&str> = hosts.iter().flat_map(|host| &host.groups).map(String::as_str).collect();
    if let Some(unknown) = groups.iter().find(|group| !known.contains(group.as_str())) {
        if known.is_empty() {
            return Err(format!("it has no groups, so there is no group `{unknown}`: only an Ansible inventory has groups"));
        }
        let suggestion = nearest_word(unknown, known.iter().copied()).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
        return Err(format!(
            "it has no group `{unknown}`{suggestion}\n    help: its groups are {}",
            known.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
    Ok(hosts.into_iter().filter(|host| groups.is_empty() || groups.iter().any(|group| host.groups.contains(group))).collect())
}

/// Ansible's groups with their numbers of hosts, those that contain every host left out: `a100 (16), web (3)`. Empty if there is no choice.
pub(crate) fn describe_groups(hosts: &[ImportedHost]) -> String {
    let names: BTreeSet<&String> = hosts.iter().flat_map(|host| &host.groups).collect();
    let count = |name: &String| hosts.iter().filter(|host| host.groups.contains(name)).count();
    let parts = names.into_iter().map(|name| (name, count(name))).filter(|(_, count)| *count < hosts.len());
    parts.map(|(name, count)| format!("{name} ({count})")).collect::<Vec<_>>().join(", ")
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

/// The lines with content.
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

/// The aliases that mean one host; what they mean stays in the file.
fn parse_ssh_config(text: &str) -> Vec<ImportedHost> {
    let line = |line: &'_ str| -> Vec<String> {
        let mut words = line.split([' ', '\t', '=']).filter(|word| !word.is_empty()).take_while(|word| !word.starts_with('#'));
        match words.next().map(str::to_lowercase).as_deref() {
            Some("host") => words.filter(|name| !name.contains(['*', '?', '!'])).map(|name| name.trim_matches('"').to_owned()).collect(),
            _ => Vec::new(),
        }
    };
    content_lines(text).flat_map(line).map(|name| ImportedHost { name, ..ImportedHost::default() }).collect()
}

fn parse_plain_list(text: &str) -> Result<Vec<ImportedHost>, String> {
    let mut hosts = Vec::new();
    let words =
        content_lines(text).flat_map(|line| line.split([' ', '\t', ',']).take_while(|word| !word.starts_with('#')).collect::<Vec<_>>());
    for word in words.filter(|word| !word.is_empty()) {
        let found = host_patterns::expand_destination(word).map_err(|why| format!("`{word}`: {why}"))?;
        hosts.extend(found.into_iter().map(|host| ImportedHost {
            name: host.host,
            user: host.user,
            port: host.port,
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
    text.push_str(&format!("name: {name}                      # names containers, labels and run directories\n\nhosts:                           # in node-rank order; the first is the master\n"));
    for host in hosts {
        text.push_str(&format!("  - {}\n", host.to_yaml()));
    }
    if hosts.is_empty() {
        text.push_str("  - gpu01                        # alias of ~/.ssh/config or user@address:port\n  - gpu02\n");
    }
    text.push('\n');
    match ssh_config {
        Some(file) => text.push_str(&format!("ssh: {{ config: {} }}              # used instead of ~/.ssh/config\n\n", quote_yaml(file))),
        None => {
            text.push_str("# What ~/.ssh/config does not set:\n# ssh: { user: root, identity: ~/.ssh/id_ed25519, jump: [bastion] }\n\n")
        }
    }
    text.push_str(
        "# container:                     # without it the ranks run on the bare hosts\n\
         #   image: registry/team/train:1\n\
         #   mounts: [/data:/data:ro]\n\
         # env: { OMP_NUM_THREADS: 8 }\n\n\
         # prepare:                       # tasks before each launch\n\
         #   - name: code\n\
         #     sync: { from: ./, to: ~/code/ }   # copies ./ of this laptop to each host\n\
         # workdir: ~/code                # where the command starts\n\n\
         launch:\n  \
         with: torchrun                 # or accelerate, deepspeed, processes, script\n  \
         # nproc_per_node: 8            # default: the GPUs of each host\n  \
         master_port: auto              # a free port on the master\n  \
         command: [train.py]            # script and arguments, without launcher flags\n\n\
         teardown: always                 # always | on-success | never\n",
    );
    text
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
        let config = "Host gpu01 gpu02 # rack 3\n  HostName 10.0.0.1\nHost *\n  User li\nHost=bastion\n";
        assert_eq!(import_and_load(config, ImportFormat::SshConfig), ["gpu01 Any", "gpu02 Any", "bastion Any"]);
        assert_eq!(
            import_and_load("gpu01 # rack 3\nroot@10.0.0.9:2222\nn[1-2]\n", ImportFormat::PlainList),
            ["gpu01 Any", "root@10.0.0.9:2222 Any", "n1 Any", "n2 Any"]
        );
        assert!(read_hosts("# nothing\n").is_err());
        assert!(read_hosts("gpu01 slots=eight\n").is_err());
        assert!(read_hosts("a/b\n").is_err());
    }

    #[test]
    fn groups_are_selected_and_counted() {
        let hosts = read_hosts("[a100]\ng1\n[h100]\ng2\ng3\n[gpu:children]\na100\nh100\n").expect("hosts").1;
        assert_eq!(describe_groups(&hosts), "a100 (1), h100 (2)");
        let names = |groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
            select_groups(hosts.clone(), &groups).map(|hosts| hosts.into_iter().map(|host| host.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]), Ok(vec!["g1".to_owned(), "g2".to_owned(), "g3".to_owned()]));
        assert_eq!(names(&["h100"]), Ok(vec!["g2".to_owned(), "g3".to_owned()]));
        assert_eq!(names(&["h100", "gpu"]), names(&["gpu"]));
        assert_eq!(
            names(&["h10"]),
            Err("it has no group `h10`, did you mean `h100`?\n    help: its groups are a100, all, gpu, h100".to_owned())
        );
        let plain = read_hosts("gpu01\n").expect("hosts").1;
        assert!(select_groups(plain, &["gpu".to_owned()]).is_err());
    }

    #[test]
    fn ansible_variables_that_are_not_imported_are_listed() {
        let text = "[gpu]\na ansible_become_user=root ansible_connection=ssh\nb ansible_become_user=x ansible_ssh_common_args='-J bastion' rack=7\n";
        let listed: Vec<Vec<String>> = read_hosts(text).expect("hosts").1.into_iter().map(|host| host.not_imported).collect();
        assert_eq!(listed, [vec![], vec!["ansible_become_user".to_owned(), "ansible_ssh_common_args".to_owned()]]);
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
