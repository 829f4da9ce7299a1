//! Hosts of an Ansible inventory (INI or YAML) with the groups that they belong to and the variables that groups hand down.
//! Source: Ansible's guide "How to build your inventory": `all` < parent groups < child groups < the host.

use std::collections::{BTreeMap, BTreeSet};

use super::imported_host::ImportedHost;
use super::yaml_parser;
use super::yaml_tree::YamlNode;
use crate::text::host_patterns;

type Variables = BTreeMap<String, String>;

#[derive(Default)]
struct Group {
    variables: Variables,
    hosts: BTreeSet<String>,
    children: BTreeSet<String>,
}

#[derive(Default)]
struct AnsibleInventory {
    groups: BTreeMap<String, Group>,
    /// In the file's order, each with its own variables.
    hosts: Vec<(String, Variables)>,
}

/// The hosts of an INI file, in its order; without its empty lines and comments.
///
/// # Errors
/// A host pattern that cannot be expanded.
pub(super) fn parse_ini<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<ImportedHost>, String> {
    let mut inventory = AnsibleInventory::default();
    let (mut group, mut kind) = ("ungrouped".to_owned(), String::new());
    for line in lines {
        if let Some(head) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let (name, section) = head.split_once(':').unwrap_or((head, ""));
            (group, kind) = (name.to_owned(), section.to_owned());
            inventory.groups.entry(group.clone()).or_default();
            continue;
        }
        let pair = |word: &str| word.split_once('=').map(|(k, v)| (k.trim().to_owned(), v.trim().trim_matches(['"', '\'']).to_owned()));
        let first = line.split_whitespace().next().unwrap_or_default();
        match kind.as_str() {
            "vars" => inventory.groups.entry(group.clone()).or_default().variables.extend(pair(line)),
            "children" => inventory.add_child(&group, first),
            _ => {
                let own = line.split_whitespace().skip(1).take_while(|word| !word.starts_with('#')).filter_map(pair).collect();
                inventory.add_hosts(&group, first, &own)?;
            }
        }
    }
    Ok(inventory.into_hosts())
}

/// The hosts of a YAML file, in its order.
///
/// # Errors
/// Text that is no YAML; a host pattern that cannot be expanded.
pub(super) fn parse_yaml(text: &str) -> Result<Vec<ImportedHost>, String> {
    let (node, problems) = yaml_parser::parse_document("", text);
    let Some(node) = node else {
        return Err(problems.first().map_or_else(|| "not YAML".to_owned(), |p| format!("line {}: {}", p.line, p.message)));
    };
    let mut inventory = AnsibleInventory::default();
    for group in node.entries() {
        inventory.add_yaml_group(&group.key, &group.value)?;
    }
    Ok(inventory.into_hosts())
}

impl AnsibleInventory {
    fn add_hosts(&mut self, group: &str, pattern: &str, variables: &Variables) -> Result<(), String> {
        for name in expand_pattern(pattern)? {
            self.groups.entry(group.to_owned()).or_default().hosts.insert(name.clone());
            match self.hosts.iter_mut().find(|(other, _)| *other == name) {
                Some((_, own)) => own.extend(variables.clone()),
                None => self.hosts.push((name, variables.clone())),
            }
        }
        Ok(())
    }

    fn add_child(&mut self, parent: &str, child: &str) {
        self.groups.entry(parent.to_owned()).or_default().children.insert(child.to_owned());
        self.groups.entry(child.to_owned()).or_default();
    }

    fn add_yaml_group(&mut self, name: &str, group: &YamlNode) -> Result<(), String> {
        self.groups.entry(name.to_owned()).or_default().variables.extend(text_values(group.get("vars")));
        for host in group.get("hosts").map(YamlNode::entries).unwrap_or_default() {
            self.add_hosts(name, &host.key, &text_values(Some(&host.value)))?;
        }
        for child in group.get("children").map(YamlNode::entries).unwrap_or_default() {
            self.add_child(name, &child.key);
            self.add_yaml_group(&child.key, &child.value)?;
        }
        Ok(())
    }

    /// The groups that contain the host, directly or through their children.
    fn groups_of(&self, host: &str) -> BTreeSet<String> {
        let mut found: BTreeSet<String> =
            self.groups.iter().filter(|(_, group)| group.hosts.contains(host)).map(|(name, _)| name.clone()).collect();
        loop {
            let parents: Vec<String> = self
                .groups
                .iter()
                .filter(|(name, group)| !found.contains(*name) && group.children.iter().any(|child| found.contains(child)))
                .map(|(name, _)| name.clone())
                .collect();
            if parents.is_empty() {
                return found;
            }
            found.extend(parents);
        }
    }

    /// How far each group is below those without a parent. A circle ends after as many steps as there are groups.
    fn depths(&self) -> BTreeMap<String, usize> {
        let mut depths: BTreeMap<String, usize> =
            self.groups.keys().map(|name| (name.clone(), usize::from(name.as_str() != "all"))).collect();
        for _ in 0..self.groups.len() {
            for (parent, group) in &self.groups {
                let below = depths.get(parent).map_or(1, |depth| depth + 1);
                for child in &group.children {
                    if let Some(depth) = depths.get_mut(child) {
                        *depth = (*depth).max(below);
                    }
                }
            }
        }
        depths
    }

    fn into_hosts(self) -> Vec<ImportedHost> {
        let depths = self.depths();
        let import = |(name, own): &(String, Variables)| {
            let mut groups = self.groups_of(name);
            groups.insert("all".to_owned());
            let mut outer_first: Vec<&String> = groups.iter().collect();
            outer_first.sort_by_key(|group| depths.get(*group).copied().unwrap_or_default());
            let mut variables: Variables = Variables::new();
            for group in outer_first.into_iter().filter_map(|group| self.groups.get(group)) {
                variables.extend(group.variables.clone());
            }
            variables.extend(own.clone());
            ImportedHost { groups, ..host_from_variables(name, &variables) }
        };
        self.hosts.iter().map(import).collect()
    }
}

/// Variables about connections that are imported, or mean nothing here.
const KNOWN_VARIABLES: [&str; 10] = [
    "ansible_host",
    "ansible_ssh_host",
    "ansible_user",
    "ansible_ssh_user",
    "ansible_port",
    "ansible_ssh_port",
    "ansible_ssh_private_key_file",
    "ansible_private_key_file",
    "ansible_become",
    "ansible_python_interpreter",
];

/// The settings of a host in Ansible's variables.
fn host_from_variables(name: &str, variables: &Variables) -> ImportedHost {
    let first_of = |names: &[&str]| names.iter().find_map(|name| variables.get(*name)).cloned();
    ImportedHost {
        name: name.to_owned(),
        address: first_of(&["ansible_host", "ansible_ssh_host"]).filter(|address| address != name),
        user: first_of(&["ansible_user", "ansible_ssh_user"]),
        port: first_of(&["ansible_port", "ansible_ssh_port"]).and_then(|port| port.parse().ok()),
        identity_file: first_of(&["ansible_ssh_private_key_file", "ansible_private_key_file"]),
        becomes_root: first_of(&["ansible_become"])
            .is_some_and(|value| matches!(value.to_lowercase().as_str(), "yes" | "true" | "on" | "1")),
        not_imported: variables
            .iter()
            .filter(|(name, value)| name.starts_with("ansible_") && !KNOWN_VARIABLES.contains(&name.as_str()) && !is_default(name, value))
            .map(|(name, _)| name.clone())
            .collect(),
        ..ImportedHost::default()
    }
}

/// Whether a variable says what is so without it.
fn is_default(name: &str, value: &str) -> bool {
    matches!((name, value), ("ansible_become_user", "root") | ("ansible_become_method", "sudo") | ("ansible_connection", "ssh" | "smart"))
}

/// `gpu[01:16]` as the names that it means.
fn expand_pattern(pattern: &str) -> Result<Vec<String>, String> {
    let mut depth = 0_u32;
    let with_dashes: String = pattern
        .chars()
        .map(|c| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if c == ':' && depth > 0 { '-' } else { c }
        })
        .collect();
    host_patterns::expand_pattern(&with_dashes).map_err(|why| format!("`{pattern}`: {why}"))
}

fn text_values(node: Option<&YamlNode>) -> Variables {
    let entries = node.map(YamlNode::entries).unwrap_or_default();
    entries.iter().filter_map(|entry| Some((entry.key.clone(), entry.value.as_text()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(hosts: &[ImportedHost]) -> Vec<String> {
        let groups = |host: &ImportedHost| host.groups.iter().cloned().collect::<Vec<_>>().join(",");
        hosts.iter().map(|host| format!("{} {} {}", host.name, host.user.as_deref().unwrap_or("-"), groups(host))).collect()
    }

    #[test]
    fn variables_of_inner_groups_win_and_groups_contain_their_childrens_hosts() {
        let ini = "[all:vars]\nansible_user=everyone\n[a100]\ng1\ng2 ansible_user=own\n[h100]\ng3\n[h100:vars]\nansible_user=h\n\
                   [gpu:children]\na100\nh100\n[gpu:vars]\nansible_user=gpu\n[web]\nw1\n";
        let expected = ["g1 gpu a100,all,gpu", "g2 own a100,all,gpu", "g3 h all,gpu,h100", "w1 everyone all,web"];
        assert_eq!(describe(&parse_ini(ini.lines()).expect("hosts")), expected);
        let yaml = "all:\n  vars: { ansible_user: everyone }\n  children:\n    gpu:\n      vars: { ansible_user: gpu }\n      children:\n\
                    \x20       a100: { hosts: { g1: , g2: { ansible_user: own } } }\n        h100: \n    web: { hosts: { w1: } }\n\
                    h100: { hosts: { g3: }, vars: { ansible_user: h } }\n";
        assert_eq!(
            describe(&parse_yaml(yaml).expect("hosts")),
            ["g1 gpu a100,all,gpu", "g2 own a100,all,gpu", "w1 everyone all,web", "g3 h all,gpu,h100"]
        );
    }

    #[test]
    fn circle_of_groups_ends() {
        let ini = "[a]\ng1\n[a:children]\nb\n[b:children]\na\n";
        assert_eq!(describe(&parse_ini(ini.lines()).expect("hosts")), ["g1 - a,all,b"]);
    }
}
