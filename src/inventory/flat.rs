//! A foreign YAML or JSON file as pairs: every key that holds a single word, at whatever depth, with that word.
//!
//! Uses the YAML door. For files of other programs that are only looked into.

use super::raw;
use super::tree::{Kind, Node};

/// The pairs in the order of the file; nothing of a file that is no YAML.
pub fn pairs(text: &str) -> Vec<(String, String)> {
    let (node, _) = raw::parse("", text);
    let mut found = Vec::new();
    if let Some(node) = node {
        collect(&node, &mut found);
    }
    found
}

fn collect(node: &Node, found: &mut Vec<(String, String)>) {
    for entry in node.entries() {
        match &entry.value.kind {
            Kind::Scalar { text, .. } => found.push((entry.key.clone(), text.clone())),
            Kind::Map(_) => collect(&entry.value, found),
            Kind::List(_) | Kind::Unknown(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::pairs;

    #[test]
    fn words_are_found_at_any_depth() {
        let found = pairs("num_machines: 1\ndeepspeed_config:\n  zero_stage: 3\n  deepspeed_multinode_launcher: pdsh\nlist: [1, 2]\n");
        let found: Vec<(&str, &str)> = found.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(found, [("num_machines", "1"), ("zero_stage", "3"), ("deepspeed_multinode_launcher", "pdsh")]);
        assert!(pairs("a: [").is_empty());
    }
}
