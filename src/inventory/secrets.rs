//! Which variables of the laptop hold what must not be shown.
//!
//! Asked before the launch half is known to be right, so errors there are omitted and reported elsewhere.

use super::errors::InventoryErrors;
use super::eval::Evaluator;
use super::yaml_tree::YamlNode;
use super::{Inventory, RuntimeValues, hosts};

impl Inventory {
    /// The names in `secrets`, of the registries' passwords and of the hosts' ssh passwords, as far as they can be read.
    pub fn secret_variables(&self) -> Vec<String> {
        let read = &self.merged;
        let known = RuntimeValues::default();
        let scope = Evaluator::new(self.eval_inputs(&known));
        let mut errors = InventoryErrors::default();
        let mut names =
            read.tree.get("secrets").map(|node| hosts::parse_secrets(&scope.evaluate(node, None), &mut errors)).unwrap_or_default();
        let blocks = std::iter::once((None, &read.tree)).chain(read.host_nodes.iter().enumerate().map(|(host, node)| (Some(host), node)));
        let password =
            |(host, node): (Option<usize>, &YamlNode)| Some(scope.evaluate(node.get_path(&["container", "registry", "password"])?, host));
        names.extend(blocks.filter_map(password).filter_map(|node| errors.validated_text(&node, hosts::validate_env_name)));
        names.extend(self.hosts.iter().filter_map(|host| host.ssh.password_variable.clone()));
        names.sort();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use crate::inventory::{Inventory, InventorySource};

    #[test]
    fn secret_names_survive_broken_launch() {
        let text = "name: wan\nvars: { token: HF_TOKEN }\nsecrets: [\"{{ token }}\", WANDB_API_KEY, 'not a name']\n\
                    container: { image: x, registry: { server: r, username: u, password: REG_PASSWORD } }\nssh: { password: SSH_PASSWORD }\n\
                    hosts: [{ name: a, container: { registry: { password: OTHER } } }, b]\nlaunch: { nonsense: 1 }\n";
        let inventory =
            Inventory::load_connection(&[InventorySource { name: "x".to_owned(), text: text.to_owned() }], &[]).expect("a connection");
        assert_eq!(inventory.secret_variables(), ["HF_TOKEN", "OTHER", "REG_PASSWORD", "SSH_PASSWORD", "WANDB_API_KEY"]);
    }
}
