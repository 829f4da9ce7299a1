//! What a process of a container gets: its environment, its working directory, its program.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::super::fake_host::FakeHost;
use super::error::DockerError;
use super::store::{DockerContainer, DockerStore};

/// The environment of a container's processes.
pub(super) fn container_env(host: &FakeHost, store: &DockerStore, container: &DockerContainer) -> Vec<(String, String)> {
    let settings = host.settings();
    let home = store.container_dir(&container.id).join("root");
    let mut variables = vec![
        ("PATH".to_owned(), host.container_path_variable(container.gpus.is_some())),
        ("HOSTNAME".to_owned(), if container.network == "host" { settings.name } else { container.short_id().to_owned() }),
        ("HOME".to_owned(), home.display().to_string()),
        ("TMPDIR".to_owned(), store.container_dir(&container.id).join("tmp").display().to_string()),
    ];
    if let Some(gpus) = &container.gpus {
        let list = gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        variables.push(("NVIDIA_VISIBLE_DEVICES".to_owned(), if container.all_gpus { "all".to_owned() } else { list }));
    }
    variables.extend(container.env.iter().filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())));
    variables.extend(host.marker_variables());
    variables.push(("SANDBOX_CONTAINER".to_owned(), container.id.clone()));
    variables
}

/// The real path of a container's path: below a mount at its source, else the same path if it exists, else in the container's own folder.
fn resolve_container_path(store: &DockerStore, container: &DockerContainer, path: &str) -> PathBuf {
    let behind = container
        .mounts
        .iter()
        .filter_map(|bind| {
            Path::new(path).strip_prefix(&bind.target).ok().map(|rest| (bind.target.len(), Path::new(&bind.source).join(rest)))
        })
        .max_by_key(|(length, _)| *length);
    match behind {
        Some((_, path)) => path,
        None if Path::new(path).is_dir() => PathBuf::from(path),
        None => store.container_dir(&container.id).join("root").join(path.trim_start_matches('/')),
    }
}

/// Where a process of the container starts.
pub(super) fn resolve_workdir(store: &DockerStore, container: &DockerContainer, requested: Option<&str>) -> std::io::Result<PathBuf> {
    // Without a working directory it is the container's own root, not this machine's: what is written there goes with the container.
    let folder = match requested.or(Some(container.workdir.as_str()).filter(|path| !path.is_empty())) {
        Some(path) => resolve_container_path(store, container, path),
        None => store.container_dir(&container.id).join("root"),
    };
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Where a program is, or docker's words for its absence with the exit code.
pub(super) fn find_program(
    store: &DockerStore,
    container: &DockerContainer,
    variables: &[(String, String)],
    program: &str,
) -> Result<PathBuf, DockerError> {
    let path = variables.iter().rev().find(|(k, _)| k == "PATH").map(|(_, v)| v.as_str()).unwrap_or_default();
    let candidates: Vec<PathBuf> = if program.contains('/') {
        vec![PathBuf::from(program), resolve_container_path(store, container, program)]
    } else {
        path.split(':').map(|dir| Path::new(dir).join(program)).collect()
    };
    let found: Vec<_> =
        candidates.into_iter().filter_map(|path| fs::metadata(&path).ok().filter(fs::Metadata::is_file).map(|m| (path, m))).collect();
    if let Some((path, _)) = found.iter().find(|(_, meta)| meta.permissions().mode() & 0o111 != 0) {
        return Ok(path.clone());
    }
    let start = format!("unable to start container process: exec: \"{program}\"");
    Err(match (found.is_empty(), program.contains('/')) {
        (false, _) => DockerError::new(126, format!("{start}: permission denied: unknown")),
        (true, true) => DockerError::new(127, format!("{start}: stat {program}: no such file or directory: unknown")),
        (true, false) => DockerError::new(127, format!("{start}: executable file not found in $PATH: unknown")),
    })
}
