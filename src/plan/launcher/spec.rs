//! What a launcher's start consists of, as the wrappers, the plan's text and the scripts by hand take it.

use std::collections::BTreeMap;

use super::accelerate_config::AccelerateConfig;

/// What one host's node wrapper and worker wrappers are given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostLaunchSpec {
    /// The launcher's argument vector.
    pub argv: Vec<String>,
    /// The workers' argument vector.
    pub worker_argv: Vec<String>,
    /// The environment beyond the container's, in the order of its names.
    pub env: BTreeMap<String, String>,
    /// Variables that are set only if neither the inventory nor the image sets them.
    pub env_defaults: BTreeMap<String, String>,
    /// What each rank of this host is given beyond that.
    pub ranks: Vec<RankEnv>,
    /// Further files of the run directory, by name.
    pub files: BTreeMap<String, String>,
    /// Whether the launcher runs through the image's ENTRYPOINT.
    pub use_entrypoint: bool,
    /// What must be found where the ranks run.
    pub requirements: EnvironmentRequirements,
    /// The same run by hand: the launcher with the true command, without wrappers.
    pub manual_launch: ManualLaunch,
}

/// What one rank is given by its launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankEnv {
    /// `rank 3`, or `each rank` where the rendezvous hands ranks out.
    pub title: String,
    pub env: BTreeMap<String, String>,
}

/// What must be found where the ranks run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvironmentRequirements {
    pub programs: Vec<String>,
    /// The entry script, absolute or beneath the working directory.
    pub entry_script: Option<String>,
    /// A config file of accelerate, and what it must not contradict.
    pub accelerate_config: Option<AccelerateConfig>,
    /// Flags that an older launcher may not know, and the words that print its help.
    pub flags_and_help: Option<(Vec<String>, Vec<String>)>,
}

/// The launch without wrappers, as a person types it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManualLaunch {
    Command(Vec<String>),
    /// The same command once for each entry, each with these variables, side by side.
    PerRank(Vec<String>, Vec<BTreeMap<String, String>>),
}

impl ManualLaunch {
    /// The command without the variables of each rank.
    pub(crate) fn words(&self) -> &[String] {
        match self {
            ManualLaunch::Command(words) | ManualLaunch::PerRank(words, _) => words,
        }
    }
}

impl Default for ManualLaunch {
    fn default() -> Self {
        ManualLaunch::Command(Vec::new())
    }
}
