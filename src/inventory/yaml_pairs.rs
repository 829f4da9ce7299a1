//! A foreign YAML or JSON file as pairs: every key that holds a single word, at any depth, with that word.
//!
//! For files of other programs that are only looked into.

use super::yaml_parser;
use super::yaml_tree::{YamlKind, YamlNode};

/// The pairs in the order of the file; nothing of a file that is no YAML.
pub(crate) fn read_yaml_pairs(text: &str) -> Vec<(String, String)> {
    let (node, _) = yaml_parser::parse_document("", text);
    let mut found = Vec::new();
    if let Some(node) = node {
        collect_pairs(&node, &mut found);
    }
    found
}

fn collect_pairs(node: &YamlNode, pairs: &mut Vec<(String, String)>) {
    for entry in node.entries() {
        match &entry.value.kind {
            YamlKind::Scalar { text, .. } => pairs.push((entry.key.clone(), text.clone())),
            YamlKind::Map(_) => collect_pairs(&entry.value, pairs),
            YamlKind::List(_) | YamlKind::Unknown(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read_yaml_pairs;

    #[test]
    fn pairs_are_found_at_any_depth() {
        let found =
            read_yaml_pairs("num_machines: 1\ndeepspeed_config:\n  zero_stage: 3\n  deepspeed_multinode_launcher: pdsh\nlist: [1, 2]\n");
        let found: Vec<(&str, &str)> = found.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(found, [("num_machines", "1"), ("zero_stage", "3"), ("deepspeed_multinode_launcher", "pdsh")]);
        assert!(read_yaml_pairs("a: [").is_empty());
    }
}
