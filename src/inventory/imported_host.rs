//! A host of another program's file, and its entry in the inventory that is written.

use std::collections::BTreeSet;

/// What the other file says about a host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ImportedHost {
    pub(super) name: String,
    pub(super) address: Option<String>,
    pub(super) user: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) identity_file: Option<String>,
    pub(super) gpus: Option<u32>,
    /// Docker runs through `sudo -n`.
    pub(super) becomes_root: bool,
    /// Ansible's groups that contain it; empty in other formats.
    pub(super) groups: BTreeSet<String>,
    /// Variables about connections that the import leaves out.
    pub(crate) not_imported: Vec<String>,
}

impl ImportedHost {
    /// Its item of `hosts`.
    pub(super) fn to_yaml(&self) -> String {
        let ImportedHost { name, address, user, port, identity_file: identity, gpus, becomes_root, groups: _, not_imported: _ } = self;
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
}

/// A scalar that means exactly this text.
pub(super) fn quote_yaml(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_./-".contains(&b))
        && !matches!(text.to_lowercase().as_str(), "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n");
    if plain { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}
