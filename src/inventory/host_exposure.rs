//! What in a container's settings lets its ranks become root on the host, or write what the host's side believes: then the boundary between
//! them is void, and what the host says of a run counts for that host alone.

use super::ContainerSettings;

/// Capabilities with which a process in a container reaches the host's files, memory or kernel.
const ESCAPE_CAPABILITIES: [&str; 5] = ["ALL", "SYS_ADMIN", "DAC_READ_SEARCH", "SYS_MODULE", "SYS_RAWIO"];

/// How the names of disks and of memory begin below `/dev`.
const ESCAPE_DEVICES: [&str; 11] = ["sd", "hd", "vd", "xvd", "nvme", "md", "dm-", "mapper", "loop", "mem", "kmem"];

const ENGINE_SOCKETS: [&str; 6] = [
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/var/run/crio/crio.sock",
];

impl ContainerSettings {
    /// Each setting that voids the boundary, as it is written. `run_dir`: as the inventory or the host says it.
    pub fn host_exposures(&self, run_dir: &str) -> Vec<String> {
        // A read-only mount too: older engines leave what is mounted beneath it writable.
        let mounts = self.mounts.iter().filter(|mount| self.exposes_host_path(&mount.source, run_dir));
        mounts.map(|mount| format!("the mount of {}", mount.source)).chain(self.exposing_args(run_dir)).collect()
    }

    /// Whether its shared memory is the host's; a flag and its value may be two words.
    pub(crate) fn uses_host_ipc(&self) -> bool {
        self.docker_args.iter().any(|arg| arg == "--ipc=host") || self.docker_args.windows(2).any(|pair| pair == ["--ipc", "host"])
    }

    fn exposes_engine_socket(&self, source: &str) -> bool {
        let own = self.engine_host.as_deref().and_then(|host| host.strip_prefix("unix://"));
        ENGINE_SOCKETS.iter().copied().chain(own).any(|socket| contains_path(source, socket))
    }

    fn exposing_args(&self, run_dir: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut words = self.docker_args.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, value),
                None if matches!(word, "--pid" | "--cap-add" | "--device" | "--mount" | "--volumes-from") => {
                    (word, words.next().unwrap_or_default())
                }
                None => (word, ""),
            };
            let exposed = match flag {
                "--privileged" => value != "false",
                "--pid" => value == "host",
                "--cap-add" => {
                    let name = value.to_ascii_uppercase();
                    ESCAPE_CAPABILITIES.contains(&name.strip_prefix("CAP_").unwrap_or(&name))
                }
                "--device" => {
                    let name = value.split(':').next().unwrap_or_default().strip_prefix("/dev/").unwrap_or_default();
                    ESCAPE_DEVICES.iter().any(|begin| name.starts_with(begin))
                }
                "--mount" => value
                    .split(',')
                    .filter_map(|part| part.strip_prefix("source=").or_else(|| part.strip_prefix("src=")))
                    .any(|source| self.exposes_host_path(source, run_dir)),
                "--volumes-from" => true,
                _ => false,
            };
            if exposed {
                found.push(if value.is_empty() { flag.to_owned() } else { format!("{flag}={value}") });
            }
        }
        found
    }

    fn exposes_host_path(&self, source: &str, run_dir: &str) -> bool {
        contains_path(source, run_dir) || self.exposes_engine_socket(source)
    }
}

/// Whether a directory of the host is a path or lies above it. `~` is a home at an unknown path: the directories that hold homes count.
pub(super) fn contains_path(directory: &str, path: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        let mut parts: Vec<String> = Vec::new();
        for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part.to_owned());
            }
        }
        // Since /var/run is a link to /run.
        if parts.first().is_some_and(|p| p == "var") && parts.get(1).is_some_and(|p| p == "run") {
            parts.remove(0);
        }
        parts
    };
    let (directory, path) = (parts(directory), parts(path));
    if path.first().is_some_and(|first| first == "~") && directory.first().is_none_or(|first| first != "~") {
        return match directory.first().map(String::as_str) {
            None => true,
            Some("root") => directory.len() == 1,
            Some("home") => directory.len() <= 2,
            _ => false,
        };
    }
    path.starts_with(&directory)
}

#[cfg(test)]
mod tests {
    use super::contains_path;

    #[test]
    fn directory_contains_paths_below_it() {
        for (directory, path) in [
            ("/", "/srv/run"),
            ("/srv", "/srv/run"),
            ("/srv/", "/srv/run"),
            ("/srv/./x/..", "/srv/run"),
            ("/srv/run", "/srv/run"),
            ("/srv/run", "/srv//run/"),
            ("/var/run", "/run/docker.sock"),
            ("/run", "/var/run/docker.sock"),
            ("~", "~/.orchestrate"),
            ("/home", "~/.orchestrate"),
            ("/home/li", "~/.orchestrate"),
            ("/root", "~/.orchestrate"),
        ] {
            assert!(contains_path(directory, path), "{directory} {path}");
        }
        for (directory, path) in [
            ("/srv/r", "/srv/run"),
            ("/srv/run/n", "/srv/run"),
            ("/home/li/data", "~/.orchestrate"),
            ("~/data", "~/.orchestrate"),
            ("/data", "~/x"),
            ("~/a", "/a"),
        ] {
            assert!(!contains_path(directory, path), "{directory} {path}");
        }
    }
}
