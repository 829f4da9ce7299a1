//! The block `container`, validated.

use std::collections::BTreeMap;

/// `container`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSettings {
    /// `DOCKER_HOST`.
    pub engine_host: Option<String>,
    pub image: String,
    pub pull: PullPolicy,
    /// What `--gpus` gets.
    pub gpus: ContainerGpus,
    /// `--network`.
    pub network: String,
    /// `--user`.
    pub user: ContainerUser,
    /// Whether the ranks run through the image's ENTRYPOINT.
    pub entrypoint: EntrypointMode,
    /// The private registry that the image is pulled from.
    pub registry: Option<RegistrySettings>,
    /// `--shm-size`.
    pub shm_size: String,
    /// Bind mounts, by target.
    pub mounts: Vec<Mount>,
    /// `container.env`.
    pub env: BTreeMap<String, String>,
    /// Further words for `docker run`.
    pub docker_args: Vec<String>,
}

/// `container.pull`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    /// Where the host lacks the image.
    Missing,
    Always,
    /// The image must be there.
    Never,
}

/// `container.gpus`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerGpus {
    /// All that the host's `gpus` allows.
    All,
    /// No `--gpus`.
    None,
    /// So many idle ones.
    Count(u32),
    List(Vec<u32>),
}

/// `container.entrypoint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntrypointMode {
    /// It is overridden and runs nowhere.
    Overridden,
    /// The ranks run through the image's.
    Image,
}

/// `container.registry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrySettings {
    /// What `docker login` gets.
    pub server: String,
    pub username: String,
    /// The NAME of the laptop's variable that holds the password.
    pub password_variable: String,
}

/// `container.user`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerUser {
    /// What the image says.
    Image,
    /// The ssh user's uid and gid.
    SshUser,
    /// `0:0`.
    Root,
    /// `uid:gid`.
    Ids(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// On the host: absolute, or `~/…` of the ssh user.
    pub source: String,
    /// In the container: absolute.
    pub target: String,
    /// `:ro`.
    pub read_only: bool,
    /// Whether a missing source is made.
    pub create_source: bool,
}
