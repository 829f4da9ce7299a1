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
        let several = self.expected.iter().any(|(key, ours)| *key == "num_processes" && ours != "1");
        let mut found = Vec::new();
        for (key, value) in described {
            let wanted = match key.as_str() {
                "distributed_type" if value == "NO" && several => Some("MULTI_GPU, DEEPSPEED, FSDP or MEGATRON_LM"),
                "rdzv_backend" => Some("static"),
                "deepspeed_multinode_launcher" => Some("standard"),
                "gpu_ids" => Some("all"),
                "same_network" if value == "false" => Some("true"),
                _ => self.expected.iter().find(|(known, ours)| known == key && !ours.starts_with('<')).map(|(_, ours)| ours.as_str()),
            };
            found.extend(wanted.filter(|ours| ours != value).map(|ours| (key.clone(), value.clone(), ours.to_owned())));
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
