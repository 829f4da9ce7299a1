//! accelerate's own config file: which one the user gives, and what it must not contradict.

/// A config file that is looked into before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccelerateConfig {
    /// Its path as given, absolute or beneath the working directory.
    pub path: String,
    /// What the inventory says, by accelerate's key.
    pub expected: Vec<(&'static str, String)>,
}

impl AccelerateConfig {
    /// What a config file says that the inventory says otherwise: key, its value, ours. Keys of a file that the command line overrides are
    /// written all the same: a person who reads the file would be misled.
    pub fn find_contradictions(&self, described: &[(String, String)]) -> Vec<(String, String, String)> {
        let mut found = Vec::new();
        for (key, value) in described {
            match self.expected.iter().find(|(wanted, _)| wanted == key) {
                Some((_, ours)) if ours != value && !ours.starts_with('<') => found.push((key.clone(), value.clone(), ours.clone())),
                _ => {}
            }
            let several = self.expected.iter().any(|(key, ours)| *key == "num_processes" && ours != "1");
            match (key.as_str(), value.as_str()) {
                ("distributed_type", "NO") if several => {
                    found.push((key.clone(), value.clone(), "MULTI_GPU, DEEPSPEED, FSDP or MEGATRON_LM".to_owned()));
                }
                ("rdzv_backend", other) if other != "static" => found.push((key.clone(), other.to_owned(), "static".to_owned())),
                ("deepspeed_multinode_launcher", other) if other != "standard" => {
                    found.push((key.clone(), other.to_owned(), "standard".to_owned()));
                }
                ("gpu_ids", other) if other != "all" => found.push((key.clone(), other.to_owned(), "all".to_owned())),
                ("same_network", "false") => found.push((key.clone(), value.clone(), "true".to_owned())),
                _ => {}
            }
        }
        found
    }
}

/// The config file that the user gives accelerate.
pub(super) fn config_file_arg(args: &[String]) -> Option<String> {
    let at = args.iter().position(|word| word == "--config_file" || word.starts_with("--config_file="))?;
    let word = args.get(at)?;
    match word.split_once('=') {
        Some((_, path)) => Some(path.to_owned()),
        None => args.get(at + 1).cloned(),
    }
}
