//! The mounts of a container.

use super::Mount;
use super::errors::{InventoryErrors, is_absolute_or_home};
use super::problem::{Verdict, require};
use super::yaml_tree::{YamlKind, YamlNode, shorten};

/// Both lists; a mount of the host takes the place of the common one with the same target.
pub(super) fn merge_mounts(common: Option<&YamlNode>, own: Option<&YamlNode>, errors: &mut InventoryErrors) -> Vec<Mount> {
    let mut all: Vec<Mount> = Vec::new();
    for list in [common, own].into_iter().flatten() {
        for mount in parse_mounts(list, errors) {
            match all.iter_mut().find(|other| other.target == mount.target) {
                Some(other) => *other = mount,
                None => all.push(mount),
            }
        }
    }
    all
}

fn parse_mounts(list: &YamlNode, errors: &mut InventoryErrors) -> Vec<Mount> {
    let mut all: Vec<Mount> = Vec::new();
    for item in errors.read_list(list, "write one mount per line: - /data:/data:ro") {
        if item.is_unknown() {
            continue;
        }
        let mount = if matches!(item.kind, YamlKind::Map(_)) { parse_mount_mapping(item, errors) } else { parse_short_mount(item, errors) };
        let Some(mut mount) = mount else { continue };
        if mount.target.len() > 1 {
            mount.target.truncate(mount.target.trim_end_matches('/').len());
        }
        match validate_mount(&mount) {
            Err((message, hint)) => errors.report(&item.location, message, hint),
            Ok(()) if all.iter().any(|other| other.target == mount.target) => {
                errors.report(&item.location, format!("`{}` is mounted twice", shorten(&mount.target)), "keep one of them");
            }
            Ok(()) => all.push(mount),
        }
    }
    all
}

fn parse_short_mount(item: &YamlNode, errors: &mut InventoryErrors) -> Option<Mount> {
    let text = errors.read_text(item)?;
    let parts: Vec<&str> = text.split(':').collect();
    let (from, to, read_only) = match parts.as_slice() {
        [from, to] | [from, to, "rw"] => (from, to, false),
        [from, to, "ro"] => (from, to, true),
        _ => {
            let hint = "write from:to or from:to:ro, or { from: …, to: … }";
            errors.report(&item.location, format!("`{}` is not a mount", shorten(&text)), hint);
            return None;
        }
    };
    Some(Mount { source: (*from).to_owned(), target: (*to).to_owned(), read_only, create_source: false })
}

fn parse_mount_mapping(item: &YamlNode, errors: &mut InventoryErrors) -> Option<Mount> {
    let mut path = |key: &str| match item.get(key) {
        Some(node) => errors.read_text(node),
        None => {
            errors.report(&item.location, format!("`{key}` is missing"), "a mount is { from: /on/the/host, to: /in/the/container }");
            None
        }
    };
    let (from, to) = (path("from"), path("to"));
    let mut flag = |key: &str| item.get(key).and_then(|node| errors.read_bool(node)).unwrap_or(false);
    let (read_only, create) = (flag("read_only"), flag("create"));
    Some(Mount { source: from?, target: to?, read_only, create_source: create })
}

fn validate_mount(mount: &Mount) -> Verdict {
    let Mount { source: from, target: to, .. } = mount;
    // Unknown values are shown in angle brackets.
    let unknown = |path: &str| path.starts_with('<');
    if !is_absolute_or_home(from) && !unknown(from) {
        let message = format!("the host's path `{}` is relative", shorten(from));
        let hint = if from.starts_with('~') {
            "~ works only for the ssh user's own home: ~/…"
        } else {
            "write an absolute path, or ~/ for the ssh user's home"
        };
        return Err((message, hint.to_owned()));
    }
    let is_absolute = to.starts_with('/') || unknown(to);
    require(is_absolute, format!("the container's path `{}` is not absolute", shorten(to)), "write an absolute path")?;
    require(to != "/", "cannot mount over the container's /", "use a directory in it")?;
    let hint = "use a path without one, or a symbolic link to it";
    let lacks = |signs: &[char]| !from.contains(signs) && !to.contains(signs);
    require(lacks(&[':']), "docker does not allow `:` in a mount's path", hint)?;
    require(lacks(&[',', '"']), "a `,` or `\"` in a mount's path would end the path in docker's --mount", hint)
}
