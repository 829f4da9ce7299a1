//! The `docker run` of a host as a person would type it. Left out are labels, log limits, the restart policy and the run directory's mounts,
//! which the whole script of `-v` has.

use crate::inventory::{ContainerSettings, Mount};
use crate::plan::action::container::StartContainer;
use crate::plan::action::memlock::UNLIMITED_FLAG;

/// Flags that a person would not type.
const LEFT_OUT: [&str; 6] = ["--name=", "--label=", "--restart=", "--log-", "--mount=", "--stop-timeout="];

pub(super) fn docker_words(container: &StartContainer, spec: &ContainerSettings) -> Vec<String> {
    let host = &container.context.host;
    let mut words = container.context.docker_words();
    words.extend(["run", "-d", "--name"].map(str::to_owned));
    words.push(container.context.container_name());
    for flag in container.docker_flags(spec).into_iter().filter(|flag| !LEFT_OUT.iter().any(|left_out| flag.starts_with(left_out))) {
        // A launch finds out on the host how much memory may be locked.
        let is_shm_size = flag.starts_with("--shm-size=");
        words.push(flag);
        words.extend(is_shm_size.then(|| UNLIMITED_FLAG.to_owned()));
    }
    for mount in &spec.mounts {
        words.extend(["-v".to_owned(), mount_word(mount)]);
    }
    words.extend(spec.docker_args.iter().cloned());
    words.push(spec.image.clone());
    words.into_iter().map(|word| word.replace(&format!("<from {host}: home>"), "~")).collect()
}

fn mount_word(mount: &Mount) -> String {
    format!("{}:{}{}", mount.source, mount.target, if mount.read_only { ":ro" } else { "" })
}
