//! Which keys there are, and which of them this version has: the one table that the checks, the hints and the reference file share.
//!
//! Uses nothing. Knows nothing of values.

/// Whether this version has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// It has.
    Now,
    /// It comes with a later version.
    Later,
}

use Status::{Later, Now};

/// The keys of one mapping.
#[derive(Debug)]
pub(super) struct Block {
    /// Where it stands: `container`.
    pub(super) path: &'static str,
    /// Its keys.
    pub(super) keys: &'static [(&'static str, Status)],
}

pub(super) const ROOT: Block = Block {
    path: "",
    keys: &[
        ("name", Now),
        ("vars", Now),
        ("hosts", Now),
        ("master", Now),
        ("spares", Later),
        ("ssh", Now),
        ("run_dir", Now),
        ("logs", Now),
        ("container", Now),
        ("workdir", Now),
        ("env", Now),
        ("secrets", Now),
        ("prepare", Later),
        ("launch", Now),
        ("constraints", Now),
        ("checks", Now),
        ("lints", Now),
        ("metrics", Now),
        ("diagnosis", Now),
        ("on_failure", Now),
        ("teardown", Now),
        ("lease", Later),
        ("slurm", Later),
    ],
};

pub(super) const HOST: Block = Block {
    path: "hosts[]",
    keys: &[
        ("name", Now),
        ("address", Now),
        ("fabric_address", Now),
        ("gpus", Now),
        ("env", Now),
        ("ssh", Now),
        ("container", Now),
        ("workdir", Now),
    ],
};

pub(super) const SSH: Block = Block {
    path: "ssh",
    keys: &[
        ("user", Now),
        ("port", Now),
        ("identity", Now),
        ("config", Now),
        ("known_hosts", Now),
        ("jump", Now),
        ("password", Now),
        ("host_keys", Now),
        ("connect_timeout", Now),
        ("keepalive", Now),
        ("give_up", Now),
        ("become", Now),
    ],
};

pub(super) const CONTAINER: Block = Block {
    path: "container",
    keys: &[
        ("engine", Now),
        ("host", Now),
        ("image", Now),
        ("pull", Now),
        ("registry", Now),
        ("gpus", Now),
        ("network", Now),
        ("user", Now),
        ("entrypoint", Now),
        ("shm_size", Now),
        ("mounts", Now),
        ("env", Now),
        ("args", Now),
    ],
};

pub(super) const MOUNT: Block =
    Block { path: "container.mounts[]", keys: &[("from", Now), ("to", Now), ("read_only", Now), ("create", Now)] };

pub(super) const REGISTRY: Block = Block { path: "container.registry", keys: &[("server", Now), ("username", Now), ("password", Now)] };

pub(super) const CHECKS: Block = Block { path: "checks", keys: &[("same", Now), ("paths", Now), ("max_clock_skew", Now), ("skip", Now)] };

pub(super) const LOGS: Block = Block { path: "logs", keys: &[("max", Now)] };

pub(super) const ON_FAILURE: Block =
    Block { path: "on_failure", keys: &[("restarts", Later), ("replace_hosts", Later), ("hang", Now), ("hang_after", Now)] };

pub(super) const LAUNCH: Block = Block {
    path: "launch",
    keys: &[
        ("with", Now),
        ("nproc_per_node", Now),
        ("master_port", Now),
        ("rendezvous", Now),
        ("command", Now),
        ("shell", Now),
        ("args", Now),
        ("setup", Now),
        ("python", Now),
        ("gpu_visibility", Now),
        ("max_restarts", Now),
        ("min_nodes", Now),
        ("start", Now),
        ("gate", Now),
        ("master_timeout", Now),
        ("ready_when", Now),
        ("stop_grace", Now),
    ],
};

/// The known word nearest to `word`, where one is near enough to be meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 64 {
        return None;
    }
    let lower = word.to_lowercase().replace('-', "_");
    let allowed = (lower.chars().count() / 3).max(1);
    let near = |known: &&str| distance(&lower, &known.to_lowercase().replace('-', "_"));
    known.into_iter().filter(|known| known.len() <= 64).min_by_key(near).filter(|found| near(found) <= allowed)
}

/// Edits from one word to the other; a swap of two neighbours is one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let get = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut best = (get(&last, j) + usize::from(x != y)).min(get(&last, j + 1) + 1).min(get(&row, j) + 1);
            if i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x) {
                best = best.min(get(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_one_that_could_be_meant() {
        let keys = || LAUNCH.keys.iter().map(|(key, _)| *key);
        assert_eq!(nearest("nproc_per_nod", keys()), Some("nproc_per_node"));
        assert_eq!(nearest("nproc-per-node", keys()), Some("nproc_per_node"));
        assert_eq!(nearest("comand", keys()), Some("command"));
        assert_eq!(nearest("wiht", keys()), Some("with"));
        assert_eq!(nearest("volumes", keys()), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
