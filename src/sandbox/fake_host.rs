//! One fake host's directory: where its home, stand-ins, settings, faults and container state lie, and the environment its processes get.
//!
//! Knows nothing of SSH: the server and the stand-ins, which are other processes, share these files.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::scenario::{Faults, ImageSpec, RegistryLogin};

/// Names under which this program answers on a fake host.
const HOST_PROGRAMS: &[&str] = &["docker", "nvidia-smi", "torchrun", "accelerate", "deepspeed", "python3", "python", "sudo", "hostname"];
/// Names under which it answers inside a container.
const CONTAINER_PROGRAMS: &[&str] = &["torchrun", "accelerate", "deepspeed", "python3", "python", "hostname"];
/// What the tools folder never offers: the real thing must not be reached by mistake.
const HIDDEN_PROGRAMS: &[&str] =
    &["docker", "dockerd", "podman", "nerdctl", "nvidia-smi", "torchrun", "accelerate", "deepspeed", "containerd", "ctr"];

/// What a stand-in must know about its host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct FakeHostSettings {
    pub(super) name: String,
    /// How many GPUs it has.
    pub(super) gpus: u32,
    /// What `nvidia-smi` calls them.
    pub(super) gpu_model: String,
    pub(super) gpu_memory_mib: u64,
    /// Images that are there from the start.
    pub(super) images: Vec<String>,
    /// Images that can be pulled.
    pub(super) registry: Vec<String>,
    /// Registries that want a login.
    pub(super) logins: Vec<RegistryLogin>,
    /// Settings of images beyond their name.
    pub(super) image_details: BTreeMap<String, ImageSpec>,
}

/// One fake host's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FakeHost {
    root: PathBuf,
}

impl FakeHost {
    /// The directory of an existing host.
    pub(super) fn from_root(root: impl Into<PathBuf>) -> Self {
        FakeHost { root: root.into() }
    }

    /// Makes the directory of a new host whose stand-ins are `program`.
    pub(super) fn create(root: PathBuf, settings: &FakeHostSettings, faults: &Faults, program: &Path) -> io::Result<Self> {
        let host = FakeHost { root };
        for folder in ["home", "tmp", "bin", "inside", "inside-gpu", "docker", "gpu"] {
            fs::create_dir_all(host.root.join(folder))?;
        }
        fs::set_permissions(host.root.join("tmp"), fs::Permissions::from_mode(0o777))?;
        for name in HOST_PROGRAMS {
            symlink(program, host.root.join("bin").join(name))?;
        }
        for name in CONTAINER_PROGRAMS {
            symlink(program, host.root.join("inside").join(name))?;
        }
        symlink(program, host.root.join("inside-gpu/nvidia-smi"))?;
        if !cfg!(target_os = "linux") {
            symlink(program, host.root.join("bin/setsid"))?;
            symlink(program, host.root.join("inside/setsid"))?;
        }
        write_json(&host.root.join("host.json"), settings)?;
        host.set_faults(faults, program)?;
        Ok(host)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The sandbox's directory, in which all hosts lie.
    pub(super) fn sandbox_dir(&self) -> PathBuf {
        self.root.parent().and_then(Path::parent).map_or_else(|| self.root.clone(), Path::to_path_buf)
    }

    /// Whether the sandbox is gone without having ended this process: it holds a lock as long as it lives.
    pub(super) fn is_abandoned(&self) -> bool {
        let alive = self.sandbox_dir().join("alive");
        match fs::File::open(&alive) {
            Ok(file) => file.try_lock_shared().is_ok(),
            Err(_) => !fs::exists(&alive).unwrap_or(true),
        }
    }

    /// What the host is; a host whose file is gone has nothing.
    pub(super) fn settings(&self) -> FakeHostSettings {
        read_json(&self.root.join("host.json")).unwrap_or_default()
    }

    /// What is wrong with the host just now.
    pub(super) fn faults(&self) -> Faults {
        read_json(&self.root.join("faults.json")).unwrap_or_default()
    }

    /// Changes what is wrong with the host, from the next event on.
    pub(super) fn set_faults(&self, faults: &Faults, program: &Path) -> io::Result<()> {
        write_json(&self.root.join("faults.json"), faults)?;
        let broken = self.root.join("broken");
        if broken.exists() {
            fs::remove_dir_all(&broken)?;
        }
        fs::create_dir_all(&broken)?;
        for (name, script) in &faults.programs {
            fs::write(broken.join(name), format!("#!/bin/sh\n{script}\n"))?;
            fs::set_permissions(broken.join(name), fs::Permissions::from_mode(0o755))?;
        }
        for folder in ["bin", "inside"] {
            set_link(&self.root.join(folder).join("date"), program, faults.clock_skew != 0.0)?;
        }
        Ok(())
    }

    /// Where this machine's own programs are found, as a PATH.
    pub(super) fn tools_path_variable(&self) -> String {
        fs::read_to_string(self.sandbox_dir().join("tools")).unwrap_or_else(|_| "/usr/bin:/bin".to_owned())
    }

    /// The environment of what runs on the host.
    pub(super) fn environment(&self, user: &str) -> Vec<(String, String)> {
        let path = format!("{}:{}:{}", self.root.join("broken").display(), self.root.join("bin").display(), self.tools_path_variable());
        let home = self.root.join("home").display().to_string();
        let mut variables = vec![
            ("HOME".to_owned(), home),
            ("USER".to_owned(), user.to_owned()),
            ("LOGNAME".to_owned(), user.to_owned()),
            ("SHELL".to_owned(), "/bin/sh".to_owned()),
            ("PATH".to_owned(), path),
            ("TMPDIR".to_owned(), self.root.join("tmp").display().to_string()),
        ];
        variables.extend(self.marker_variables());
        variables
    }

    /// The variables by which a process is known to be this host's.
    pub(super) fn marker_variables(&self) -> Vec<(String, String)> {
        vec![
            ("SANDBOX_DIR".to_owned(), self.sandbox_dir().display().to_string()),
            ("SANDBOX_HOST".to_owned(), self.root.display().to_string()),
        ]
    }

    /// Where programs are found inside a container.
    pub(super) fn container_path_variable(&self, gpus: bool) -> String {
        let gpu = if gpus { format!("{}:", self.root.join("inside-gpu").display()) } else { String::new() };
        format!("{gpu}{}:{}", self.root.join("inside").display(), self.tools_path_variable())
    }
}

/// Writes down where the tools of all hosts and containers are: the folders of `path` and the standard ones, and in place of a folder that
/// would lead out of the sandbox a copy of it, made of links.
pub(super) fn write_tools_path(sandbox: &Path, path: &str) -> io::Result<()> {
    let standard = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let mut seen = Vec::new();
    let mut folders = Vec::new();
    for dir in standard.split(':').chain(path.split(':')).filter(|dir| dir.starts_with('/')) {
        let Ok(real) = fs::canonicalize(dir) else { continue };
        if seen.contains(&real) {
            continue;
        }
        let dangerous = HIDDEN_PROGRAMS.iter().any(|name| real.join(name).symlink_metadata().is_ok());
        let folder = if dangerous { sandbox.join(format!("tools-{}", seen.len())) } else { PathBuf::from(dir) };
        if dangerous {
            link_directory(&real, &folder)?;
        }
        folders.push(folder.display().to_string());
        seen.push(real);
    }
    fs::write(sandbox.join("tools"), folders.join(":"))
}

fn link_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| HIDDEN_PROGRAMS.contains(&name)) {
            symlink(entry.path(), to.join(&name))?;
        }
    }
    Ok(())
}

/// Reads a JSON file; `None`: it is not there or not whole.
pub(super) fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok())
}

/// Replaces a JSON file in one step.
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let bytes = serde_json::to_vec_pretty(value).map_err(io::Error::other)?;
    let beside = path.with_extension(format!("new.{}", std::process::id()));
    fs::write(&beside, bytes)?;
    fs::rename(&beside, path)
}

fn set_link(link: &Path, program: &Path, wanted: bool) -> io::Result<()> {
    match (wanted, link.symlink_metadata().is_ok()) {
        (true, false) => symlink(program, link),
        (false, true) => fs::remove_file(link),
        _ => Ok(()),
    }
}
