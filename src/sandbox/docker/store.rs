//! Docker's memory on one fake host: images and containers in a JSON file that every stand-in locks while it reads or changes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::fake_host::{FakeHost, read_json, write_json};
use super::super::scenario::ImageSpec;
use super::error::{DockerError, no_such_container};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct DockerState {
    /// References of images that are here.
    pub(super) images: Vec<String>,
    pub(super) containers: Vec<DockerContainer>,
}

/// `State.Status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ContainerStatus {
    #[default]
    Created,
    /// Its main process lives.
    Running,
    /// Its main process has ended.
    Exited,
}

impl ContainerStatus {
    /// As docker prints it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            ContainerStatus::Created => "created",
            ContainerStatus::Running => "running",
            ContainerStatus::Exited => "exited",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BindMount {
    pub(super) source: String,
    pub(super) target: String,
    /// `readonly`.
    pub(super) read_only: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct DockerContainer {
    /// 64 hexadecimal digits.
    pub(super) id: String,
    pub(super) name: String,
    /// As it was asked for.
    pub(super) image: String,
    /// RFC 3339.
    pub(super) created: String,
    pub(super) labels: BTreeMap<String, String>,
    /// `K=V`, the image's first.
    pub(super) env: Vec<String>,
    /// What precedes `cmd`.
    pub(super) entrypoint: Vec<String>,
    /// The main process's words after the entrypoint.
    pub(super) cmd: Vec<String>,
    /// `-w`; empty: `/`.
    pub(super) workdir: String,
    /// `-u`.
    pub(super) user: String,
    pub(super) mounts: Vec<BindMount>,
    /// `--network`.
    pub(super) network: String,
    /// What `--gpus` gave: indexes. `None`: no `--gpus`.
    pub(super) gpus: Option<Vec<u32>>,
    /// Whether all GPUs were asked for.
    pub(super) all_gpus: bool,
    /// `--init`.
    pub(super) init: bool,
    /// `--rm`.
    pub(super) auto_remove: bool,
    /// `--stop-timeout`.
    pub(super) stop_timeout: Option<u64>,
    /// `--stop-signal`.
    pub(super) stop_signal: String,
    /// `--shm-size` in bytes.
    pub(super) shm_size: u64,
    /// `--ipc`.
    pub(super) ipc: String,
    /// `--restart`.
    pub(super) restart: String,
    /// `--privileged`.
    pub(super) privileged: bool,
    /// Lists that are only remembered, by flag.
    pub(super) lists: BTreeMap<String, Vec<String>>,
    /// `--log-driver`.
    pub(super) log_driver: String,
    pub(super) status: ContainerStatus,
    /// The main process; 0: none.
    pub(super) pid: i32,
    /// Of the main process.
    pub(super) exit_code: i32,
    /// Whether memory ran out.
    pub(super) oom_killed: bool,
    /// Why it could not start.
    pub(super) error: String,
    /// RFC 3339.
    pub(super) started: String,
    /// RFC 3339.
    pub(super) finished: String,
}

pub(super) const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

impl DockerContainer {
    /// The first twelve digits, as docker shows them.
    pub(super) fn short_id(&self) -> &str {
        self.id.get(..12).unwrap_or(&self.id)
    }

    /// Whether a person means this one: its name, its id or the beginning of its id.
    pub(super) fn matches_reference(&self, word: &str) -> bool {
        let word = word.strip_prefix('/').unwrap_or(word);
        self.name == word || (!word.is_empty() && self.id.starts_with(word))
    }

    /// The variable by which its processes are known.
    pub(super) fn env_marker(&self) -> String {
        format!("SANDBOX_CONTAINER={}", self.id)
    }
}

impl DockerState {
    /// The container a person means.
    pub(super) fn find_container(&self, word: &str) -> Option<&DockerContainer> {
        let exact = self.containers.iter().find(|c| c.name == word.strip_prefix('/').unwrap_or(word));
        exact.or_else(|| self.containers.iter().find(|c| c.matches_reference(word)))
    }
}

/// The way to the state of one host.
#[derive(Debug, Clone)]
pub(super) struct DockerStore {
    host: FakeHost,
}

impl DockerStore {
    pub(super) fn for_host(host: &FakeHost) -> Self {
        DockerStore { host: host.clone() }
    }

    /// The folder of a container's own files.
    pub(super) fn container_dir(&self, id: &str) -> PathBuf {
        self.host.root().join("docker").join(id.get(..12).unwrap_or(id))
    }

    /// Where it is noted that a container's processes may use GPUs.
    pub(super) fn gpu_record_path(&self, id: &str) -> PathBuf {
        self.host.root().join("gpu").join(id.get(..12).unwrap_or(id))
    }

    fn state_path(&self) -> PathBuf {
        self.host.root().join("docker/state.json")
    }

    /// The state as it is; made from the host's settings the first time.
    pub(super) fn read_state(&self) -> DockerState {
        read_json(&self.state_path()).unwrap_or_else(|| DockerState { images: self.host.settings().images, containers: Vec::new() })
    }

    /// Changes the state under an exclusive lock; nothing is kept when `change` fails.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut DockerState) -> Result<T, DockerError>) -> Result<T, DockerError> {
        let lock = File::create(self.host.root().join("docker/lock"))?;
        lock.lock()?;
        let mut state = self.read_state();
        let before = state.clone();
        let answer = change(&mut state)?;
        if state != before {
            write_json(&self.state_path(), &state)?;
        }
        Ok(answer)
    }

    /// The container a person means.
    pub(super) fn container(&self, word: &str) -> Result<DockerContainer, DockerError> {
        self.read_state().find_container(word).cloned().ok_or_else(|| no_such_container(word))
    }

    /// Changes a container by its id, if it is still there.
    pub(super) fn update_container<T: Default>(&self, id: &str, change: impl FnOnce(&mut DockerContainer) -> T) -> Result<T, DockerError> {
        self.update(|state| Ok(state.containers.iter_mut().find(|c| c.id == id).map(change).unwrap_or_default()))
    }

    /// The settings of an image beyond its name.
    pub(super) fn image_spec(&self, reference: &str) -> ImageSpec {
        self.host.settings().image_details.get(reference).cloned().unwrap_or_default()
    }
}

/// An image's id: its reference's fingerprint.
pub(super) fn image_id(reference: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(with_default_tag(reference).as_bytes());
    format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// `image` means `image:latest`.
pub(super) fn with_default_tag(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains(':') || last.contains('@') { reference.to_owned() } else { format!("{reference}:latest") }
}

/// A new container's id.
pub(super) fn new_container_id() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Now, as docker prints it.
pub(super) fn docker_timestamp() -> String {
    jiff::Timestamp::now().to_string()
}
