//! Which variables of the laptop hold what must not be shown.
//!
//! Uses templates. Asked before the launch half is known to be right, so what is wrong there is left out and said elsewhere.

use super::check::Check;
use super::scope::{Facts, Scope};
use super::tree::Node;
use super::{Inventory, Known, hosts};

impl Inventory {
    /// The names in `secrets`, of the registries' passwords and of the hosts' ssh passwords, as far as they can be read.
    pub fn secret_variables(&self) -> Vec<String> {
        let read = &self.read;
        let known = Known::default();
        let scope = Scope::new(Facts {
            tree: &read.tree,
            members: &read.members,
            names: self.hosts.iter().map(|host| host.name.as_str()).collect(),
            fabric: self.hosts.iter().map(|host| host.fabric_address.as_deref()).collect(),
            gpus: self.hosts.iter().map(|host| &host.gpus).collect(),
            known: &known,
            nproc: None,
        });
        let mut check = Check::default();
        let mut names = read.tree.get("secrets").map(|node| hosts::secrets(&scope.eval(node, None), &mut check)).unwrap_or_default();
        let blocks = std::iter::once((None, &read.tree)).chain(read.members.iter().enumerate().map(|(host, node)| (Some(host), node)));
        let password = |(host, node): (Option<usize>, &Node)| Some(scope.eval(node.find(&["container", "registry", "password"])?, host));
        names.extend(blocks.filter_map(password).filter_map(|node| check.text_that(&node, hosts::valid_variable)));
        names.extend(self.hosts.iter().filter_map(|host| host.ssh.password.clone()));
        names.sort();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use crate::inventory::{Inventory, Source};

    #[test]
    fn every_secret_is_named_though_the_launch_is_wrong() {
        let text = "name: wan\nvars: { token: HF_TOKEN }\nsecrets: [\"{{ token }}\", WANDB_API_KEY, 'not a name']\n\
                    container: { image: x, registry: { server: r, username: u, password: REG_PASSWORD } }\nssh: { password: SSH_PASSWORD }\n\
                    hosts: [{ name: a, container: { registry: { password: OTHER } } }, b]\nlaunch: { nonsense: 1 }\n";
        let inventory = Inventory::load_connection(&[Source { name: "x".to_owned(), text: text.to_owned() }], &[]).expect("a connection");
        assert_eq!(inventory.secret_variables(), ["HF_TOKEN", "OTHER", "REG_PASSWORD", "SSH_PASSWORD", "WANDB_API_KEY"]);
    }
}
