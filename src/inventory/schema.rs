//! Which keys there are, and which of them this version has: the one table that the checks, the hints and the reference file share.

/// Whether this version has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeySupport {
    Supported,
    /// It comes with a later version.
    Planned,
}

use KeySupport::{Planned, Supported};

/// The keys of one mapping.
#[derive(Debug)]
pub(super) struct KeySchema {
    /// Where it stands: `container`.
    pub(super) path: &'static str,
    pub(super) keys: &'static [(&'static str, KeySupport)],
}

pub(super) const ROOT_SCHEMA: KeySchema = KeySchema {
    path: "",
    keys: &[
        ("name", Supported),
        ("vars", Supported),
        ("hosts", Supported),
        ("master", Supported),
        ("spares", Planned),
        ("ssh", Supported),
        ("run_dir", Supported),
        ("logs", Supported),
        ("container", Supported),
        ("workdir", Supported),
        ("env", Supported),
        ("secrets", Supported),
        ("prepare", Supported),
        ("launch", Supported),
        ("constraints", Supported),
        ("checks", Supported),
        ("lints", Supported),
        ("metrics", Supported),
        ("diagnosis", Supported),
        ("on_failure", Supported),
        ("teardown", Supported),
        ("lease", Planned),
        ("slurm", Supported),
    ],
};

pub(super) const HOST_SCHEMA: KeySchema = KeySchema {
    path: "hosts[]",
    keys: &[
        ("name", Supported),
        ("address", Supported),
        ("fabric_address", Supported),
        ("gpus", Supported),
        ("env", Supported),
        ("ssh", Supported),
        ("container", Supported),
        ("workdir", Supported),
    ],
};

pub(super) const SSH_SCHEMA: KeySchema = KeySchema {
    path: "ssh",
    keys: &[
        ("user", Supported),
        ("port", Supported),
        ("identity", Supported),
        ("config", Supported),
        ("known_hosts", Supported),
        ("jump", Supported),
        ("password", Supported),
        ("host_keys", Supported),
        ("connect_timeout", Supported),
        ("keepalive", Supported),
        ("give_up", Supported),
        ("become", Supported),
    ],
};

pub(super) const CONTAINER_SCHEMA: KeySchema = KeySchema {
    path: "container",
    keys: &[
        ("engine", Supported),
        ("host", Supported),
        ("image", Supported),
        ("pull", Supported),
        ("registry", Supported),
        ("gpus", Supported),
        ("network", Supported),
        ("user", Supported),
        ("entrypoint", Supported),
        ("shm_size", Supported),
        ("mounts", Supported),
        ("env", Supported),
        ("args", Supported),
    ],
};

pub(super) const MOUNT_SCHEMA: KeySchema = KeySchema {
    path: "container.mounts[]",
    keys: &[("from", Supported), ("to", Supported), ("read_only", Supported), ("create", Supported)],
};

pub(super) const REGISTRY_SCHEMA: KeySchema =
    KeySchema { path: "container.registry", keys: &[("server", Supported), ("username", Supported), ("password", Supported)] };

pub(super) const CHECKS_SCHEMA: KeySchema =
    KeySchema { path: "checks", keys: &[("same", Supported), ("paths", Supported), ("max_clock_skew", Supported), ("skip", Supported)] };

pub(super) const LOGS_SCHEMA: KeySchema = KeySchema { path: "logs", keys: &[("max", Supported)] };

pub(super) const ON_FAILURE_SCHEMA: KeySchema = KeySchema {
    path: "on_failure",
    keys: &[("restarts", Planned), ("replace_hosts", Planned), ("hang", Supported), ("hang_after", Supported)],
};

pub(super) const TASK_SCHEMA: KeySchema = KeySchema {
    path: "prepare[]",
    keys: &[
        ("name", Supported),
        ("run", Supported),
        ("sync", Supported),
        ("copy", Supported),
        ("hosts", Supported),
        ("in", Supported),
        ("chdir", Supported),
        ("env", Supported),
        ("creates", Supported),
        ("unless", Supported),
        ("changed", Supported),
        ("timeout", Supported),
        ("retries", Supported),
        ("delay", Supported),
        ("become", Supported),
        ("once", Supported),
        ("register", Supported),
        ("tags", Supported),
    ],
};

pub(super) const SYNC_SCHEMA: KeySchema =
    KeySchema { path: "prepare[].sync", keys: &[("from", Supported), ("to", Supported), ("exclude", Supported), ("delete", Supported)] };

pub(super) const COPY_SCHEMA: KeySchema =
    KeySchema { path: "prepare[].copy", keys: &[("from", Supported), ("to", Supported), ("mode", Supported)] };

pub(super) const LAUNCH_SCHEMA: KeySchema = KeySchema {
    path: "launch",
    keys: &[
        ("with", Supported),
        ("nproc_per_node", Supported),
        ("master_port", Supported),
        ("rendezvous", Supported),
        ("command", Supported),
        ("shell", Supported),
        ("args", Supported),
        ("setup", Supported),
        ("python", Supported),
        ("gpu_visibility", Supported),
        ("max_restarts", Supported),
        ("min_nodes", Supported),
        ("start", Supported),
        ("gate", Supported),
        ("master_timeout", Supported),
        ("ready_when", Supported),
        ("stop_grace", Supported),
    ],
};

pub(super) const SLURM_SCHEMA: KeySchema = KeySchema {
    path: "slurm",
    keys: &[
        ("login", Supported),
        ("nodes", Supported),
        ("gpus_per_node", Supported),
        ("partition", Supported),
        ("time", Supported),
        ("cpus_per_task", Supported),
        ("container", Supported),
        ("image", Supported),
        ("secrets", Supported),
        ("args", Supported),
        ("requeue", Supported),
    ],
};

/// The known word nearest to `word`, where one is near enough to be meant.
pub(crate) fn nearest_word<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase().replace('-', "_");
    let allowed = (lower.chars().count() / 3).max(1);
    let near = |known: &&str| strsim::osa_distance(&lower, &known.to_lowercase().replace('-', "_"));
    known.into_iter().filter(|known| known.len() <= 64).min_by_key(near).filter(|found| near(found) <= allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_word_suggests_only_close_words() {
        let keys = || LAUNCH_SCHEMA.keys.iter().map(|(key, _)| *key);
        assert_eq!(nearest_word("nproc_per_nod", keys()), Some("nproc_per_node"));
        assert_eq!(nearest_word("nproc-per-node", keys()), Some("nproc_per_node"));
        assert_eq!(nearest_word("comand", keys()), Some("command"));
        assert_eq!(nearest_word("wiht", keys()), Some("with"));
        assert_eq!(nearest_word("volumes", keys()), None);
    }
}
