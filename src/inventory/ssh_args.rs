//! What a person types after `ssh` to reach a host of the inventory, which ssh itself does not know.

use crate::text::shell_quote::quote;

use super::{HostKeyChecking, InventoryHost};

impl InventoryHost {
    /// `-p 2222 -i /home/li/.ssh/lab ops@10.0.0.2`. `base`: the folder that paths of the inventory begin at.
    pub fn ssh_args(&self, base: &str) -> String {
        let ssh = &self.ssh;
        let path = |path: &str| match path {
            // The shell puts the home in its place.
            path if path.starts_with("~/") && path.chars().all(|c| c.is_ascii_alphanumeric() || "~/._-".contains(c)) => path.to_owned(),
            path if path.starts_with('/') || path.starts_with('~') => quote(path),
            path => quote(&format!("{base}/{}", path.strip_prefix("./").unwrap_or(path))),
        };
        let mut words = Vec::new();
        words.extend(ssh.config_file.as_ref().map(|file| format!("-F {}", path(file))));
        words.extend(ssh.port.map(|port| format!("-p {port}")));
        words.extend(ssh.identity_files.iter().map(|file| format!("-i {}", path(file))));
        words.extend(ssh.known_hosts_file.as_ref().map(|file| format!("-o UserKnownHostsFile={}", path(file))));
        words.extend(
            matches!(ssh.host_key_checking, Some(HostKeyChecking::AcceptNew)).then(|| "-o StrictHostKeyChecking=accept-new".to_owned()),
        );
        words.extend(ssh.jump_hosts.as_ref().filter(|jump| !jump.is_empty()).map(|jump| format!("-J {}", quote(&jump.join(",")))));
        let user = ssh.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        words.push(quote(&format!("{user}{}", self.address.as_deref().unwrap_or(&self.name))));
        words.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use crate::inventory::{Inventory, InventorySource};

    #[test]
    fn ssh_args_include_all_settings() {
        let text = "name: lab\nhosts:\n  - { name: lab2, address: 10.0.0.2 }\n  - lab3\nssh: { user: ops, port: 2222, identity: [~/.ssh/lab, keys/my key], \
                    jump: gate }\nlaunch: { with: torchrun, nproc_per_node: 1, command: [t.py] }\n";
        let source = InventorySource { name: "lab.yaml".to_owned(), text: text.to_owned() };
        let inventory = Inventory::load_connection(&[source], &[]).expect("valid");
        let words: Vec<String> = inventory.hosts.iter().map(|host| host.ssh_args("/runs")).collect();
        let way = "-p 2222 -i ~/.ssh/lab -i '/runs/keys/my key' -J gate";
        assert_eq!(words, [format!("{way} ops@10.0.0.2"), format!("{way} ops@lab3")]);
    }
}
