//! The container of one host: the common block with the host's own laid over it, mounts by their target.
//!
//! Uses templates and checks. Knows nothing of what docker is called with.

use std::collections::BTreeMap;

use super::check::Check;
use super::hosts::indexes;
use super::schema;
use super::scope::{NPROC_LIMIT, Scope};
use super::tree::{Entry, Kind, Node, shorten};
use super::{Container, ContainerGpus, Entrypoint, Mount, Pull, Registry, User};

/// `/dev/shm` where nothing is said: docker's 64 MB break NCCL and data loaders.
const SHM_SIZE: &str = "32g";

/// Compares the keys of every container block.
pub(super) fn keys(tree: &Node, members: &[Node], check: &mut Check) {
    let common = tree.get("container");
    for block in common.into_iter().chain(members.iter().filter_map(|member| member.get("container"))) {
        check.block(block, &schema::CONTAINER);
        if let Some(registry) = block.get("registry") {
            check.block(registry, &schema::REGISTRY);
        }
        for mount in block.get("mounts").map(Node::items).unwrap_or_default() {
            if matches!(mount.kind, Kind::Map(_)) {
                check.block(mount, &schema::MOUNT);
            }
        }
    }
    for own in members.iter().filter_map(|member| member.get("container")) {
        if common.is_none() {
            check.wrong(&own.place, "there is no `container` to lay this over", "give the common part, its image at least, as `container`");
        }
        for key in ["engine", "host"] {
            if let Some(node) = own.get(key) {
                check.wrong(&node.place, "the engine is the same on all hosts", format!("set container.{key}"));
            }
        }
    }
    if let Some(node) = common.and_then(|common| common.get("engine")) {
        engine(node, check);
    }
}

/// `container.host`: what docker takes as `DOCKER_HOST`.
pub(super) fn engine_host(node: &Node, check: &mut Check) -> Option<String> {
    check.text_that(node, |text| {
        let fine = ["unix:///", "tcp://", "ssh://"].iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
        let bad = text.contains(|c: char| c.is_whitespace() || c.is_control());
        if fine && !bad {
            return Ok(());
        }
        Err((format!("`{}` is no engine's address", shorten(text)), "write it like unix:///run/user/1000/docker.sock".to_owned()))
    })
}

fn engine(node: &Node, check: &mut Check) {
    if check.text(node).is_some_and(|text| text == "podman") {
        check.wrong(&node.place, "podman: not supported yet", "use docker");
    } else {
        check.word(node, &[("docker", ())]);
    }
}

/// The container of a host; `None`: its ranks run on the bare host.
pub(super) fn container(scope: &Scope<'_>, host: usize, check: &mut Check) -> Option<Container> {
    let facts = scope.facts();
    let common = facts.tree.get("container").filter(|node| matches!(node.kind, Kind::Map(_)))?;
    let own = facts.members.get(host).and_then(|member| member.get("container"));
    let common_now = evaluate_common(scope, common, host);
    let own_now = own.map(|node| scope.eval(node, Some(host)));
    let mounts = merge_mounts(common_now.get("mounts"), own_now.as_ref().and_then(|own| own.get("mounts")), check);
    let node = match own_now {
        Some(own) if matches!(own.kind, Kind::Map(_)) => common_now.merge(own),
        _ => common_now,
    };
    let image = match node.get("image") {
        Some(image) => check.text_that(image, valid_image),
        None => {
            check.wrong(&common.place, "`image` is missing", "name the image, or leave `container` out to run on the bare host");
            None
        }
    };
    Some(Container {
        engine_host: node.get("host").and_then(|node| engine_host(node, check)),
        image: image.unwrap_or_default(),
        pull: pull(&node, check),
        gpus: node.get("gpus").map_or(ContainerGpus::All, |node| gpus(node, check)),
        network: network(&node, check),
        user: node.get("user").map_or(User::Image, |node| user(node, check)),
        shm_size: node.get("shm_size").and_then(|node| check.text_that(node, valid_size)).unwrap_or_else(|| SHM_SIZE.to_owned()),
        mounts,
        env: node.get("env").map(|node| check.env(node)).unwrap_or_default(),
        entrypoint: entrypoint(&node, check),
        registry: node.get("registry").and_then(|node| registry(node, check)),
        args: args(&node, check),
    })
}

/// Only env and mounts of the common block know the host that they are read for.
fn evaluate_common(scope: &Scope<'_>, common: &Node, host: usize) -> Node {
    let entries = common.entries().iter().map(|entry| {
        let knows = matches!(entry.key.as_str(), "env" | "mounts").then_some(host);
        Entry { key: entry.key.clone(), place: entry.place.clone(), value: scope.eval(&entry.value, knows) }
    });
    Node::map(common.place.clone(), entries.collect())
}

fn pull(node: &Node, check: &mut Check) -> Pull {
    let words = [("missing", Pull::Missing), ("always", Pull::Always), ("never", Pull::Never)];
    node.get("pull").and_then(|node| check.word(node, &words)).unwrap_or(Pull::Missing)
}

fn network(node: &Node, check: &mut Check) -> String {
    let valid = |text: &str| {
        let fine = text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b));
        if fine {
            Ok(())
        } else {
            Err((format!("`{}` is no network", shorten(text)), "write host, or the name of a docker network".to_owned()))
        }
    };
    node.get("network").and_then(|node| check.text_that(node, valid)).unwrap_or_else(|| "host".to_owned())
}

fn gpus(node: &Node, check: &mut Check) -> ContainerGpus {
    match &node.kind {
        Kind::List(_) => ContainerGpus::List(indexes(node, check)),
        Kind::Scalar { text, .. } if text == "all" => ContainerGpus::All,
        Kind::Scalar { text, .. } if text == "none" => ContainerGpus::None,
        Kind::Scalar { plain: true, text } if text.parse::<i64>().is_ok() => {
            check.number(node, 1, NPROC_LIMIT).map_or(ContainerGpus::All, ContainerGpus::Count)
        }
        Kind::Unknown(_) => ContainerGpus::All,
        Kind::Scalar { .. } | Kind::Map(_) => {
            check.wrong(
                &node.place,
                format!("{} where GPUs are expected", node.what()),
                "write all, none, a count like 4, or indexes like [0,1]",
            );
            ContainerGpus::All
        }
    }
}

fn user(node: &Node, check: &mut Check) -> User {
    let Some(text) = check.text(node) else { return User::Image };
    let number = |part: &str| !part.is_empty() && part.len() < 11 && part.bytes().all(|b| b.is_ascii_digit());
    match text.as_str() {
        "image" => User::Image,
        "me" => User::Me,
        "root" => User::Root,
        ids if node.is_unknown() || ids.split_once(':').map_or_else(|| number(ids), |(uid, gid)| number(uid) && number(gid)) => {
            User::Ids(text)
        }
        _ => {
            check.wrong(&node.place, format!("unknown user {}", node.what()), "write image, me, root, or numbers like \"1000:1000\"");
            User::Image
        }
    }
}

fn valid_image(text: &str) -> Result<(), (String, String)> {
    let bad = text.is_empty() || text.starts_with('-') || !text.bytes().all(|b| b.is_ascii_graphic());
    if bad {
        return Err((format!("`{}` is not the name of an image", shorten(text)), "write it like registry:5000/team/image:tag".to_owned()));
    }
    Ok(())
}

fn valid_size(text: &str) -> Result<(), (String, String)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let fine = number.parse::<u64>().is_ok_and(|n| n > 0)
        && matches!(unit.to_lowercase().as_str(), "" | "b" | "k" | "m" | "g" | "kb" | "mb" | "gb");
    if fine { Ok(()) } else { Err((format!("`{}` is not a size", shorten(text)), "write it like 32g or 512m".to_owned())) }
}

/// Both lists; a mount of the host takes the place of the common one with the same target.
fn merge_mounts(common: Option<&Node>, own: Option<&Node>, check: &mut Check) -> Vec<Mount> {
    let mut all: Vec<Mount> = Vec::new();
    for list in [common, own].into_iter().flatten() {
        for mount in mounts(list, check) {
            match all.iter_mut().find(|other| other.to == mount.to) {
                Some(other) => *other = mount,
                None => all.push(mount),
            }
        }
    }
    all
}

fn mounts(list: &Node, check: &mut Check) -> Vec<Mount> {
    let mut all: Vec<Mount> = Vec::new();
    for item in check.list(list, "write one mount a line: - /data:/data:ro") {
        if item.is_unknown() {
            continue;
        }
        let mount = if matches!(item.kind, Kind::Map(_)) { long(item, check) } else { short(item, check) };
        let Some(mut mount) = mount else { continue };
        if mount.to.len() > 1 {
            mount.to.truncate(mount.to.trim_end_matches('/').len());
        }
        match judge(&mount) {
            Err((says, hint)) => check.wrong(&item.place, says, hint),
            Ok(()) if all.iter().any(|other| other.to == mount.to) => {
                check.wrong(&item.place, format!("`{}` is mounted twice", shorten(&mount.to)), "keep one of them");
            }
            Ok(()) => all.push(mount),
        }
    }
    all
}

fn short(item: &Node, check: &mut Check) -> Option<Mount> {
    let text = check.text(item)?;
    let parts: Vec<&str> = text.split(':').collect();
    let (from, to, read_only) = match parts.as_slice() {
        [from, to] | [from, to, "rw"] => (from, to, false),
        [from, to, "ro"] => (from, to, true),
        _ => {
            let hint = "write from:to or from:to:ro, or { from: …, to: … }";
            check.wrong(&item.place, format!("`{}` is not a mount", shorten(&text)), hint);
            return None;
        }
    };
    Some(Mount { from: (*from).to_owned(), to: (*to).to_owned(), read_only, create: false })
}

fn long(item: &Node, check: &mut Check) -> Option<Mount> {
    let mut path = |key: &str| match item.get(key) {
        Some(node) => check.text(node),
        None => {
            check.wrong(&item.place, format!("`{key}` is missing"), "a mount is { from: /on/the/host, to: /in/the/container }");
            None
        }
    };
    let (from, to) = (path("from"), path("to"));
    let mut flag = |key: &str| item.get(key).and_then(|node| check.truth(node)).unwrap_or(false);
    let (read_only, create) = (flag("read_only"), flag("create"));
    Some(Mount { from: from?, to: to?, read_only, create })
}

fn judge(mount: &Mount) -> Result<(), (String, String)> {
    let Mount { from, to, .. } = mount;
    let at_home = from == "~" || from.starts_with("~/");
    // What is not known yet stands in angle brackets.
    let unknown = |path: &str| path.starts_with('<');
    if !from.starts_with('/') && !at_home && !unknown(from) {
        let says = format!("the host's path `{}` is relative", shorten(from));
        let hint = if from.starts_with('~') {
            "only the ssh user's own home can be meant: ~/…"
        } else {
            "write it from / or from ~/, the ssh user's home"
        };
        return Err((says, hint.to_owned()));
    }
    if !to.starts_with('/') && !unknown(to) {
        return Err((format!("the container's path `{}` is not absolute", shorten(to)), "write it from /".to_owned()));
    }
    if to == "/" {
        return Err(("nothing can be mounted over the container's /".to_owned(), "name a directory in it".to_owned()));
    }
    if from.contains(':') || to.contains(':') {
        return Err(("docker takes no `:` in a mount's path".to_owned(), "use a path without one, or a symbolic link to it".to_owned()));
    }
    if from.contains([',', '"']) || to.contains([',', '"']) {
        let says = "a `,` or `\"` in a mount's path would end the path in docker's --mount".to_owned();
        return Err((says, "use a path without one, or a symbolic link to it".to_owned()));
    }
    Ok(())
}

fn entrypoint(node: &Node, check: &mut Check) -> Entrypoint {
    let words = [("none", Entrypoint::None), ("image", Entrypoint::Image)];
    node.get("entrypoint").and_then(|node| check.word(node, &words)).unwrap_or(Entrypoint::None)
}

fn registry(node: &Node, check: &mut Check) -> Option<Registry> {
    let mut part = |key: &str, valid: fn(&str) -> Result<(), (String, String)>| match node.get(key) {
        Some(node) => check.text_that(node, valid),
        None => {
            let hint = "a registry is { server: 172.31.0.182, username: li, password: REG_PASSWORD }";
            check.wrong(&node.place, format!("`{key}` is missing"), hint);
            None
        }
    };
    let (server, username) = (part("server", valid_image), part("username", valid_login));
    let password = part("password", super::hosts::valid_variable);
    Some(Registry { server: server?, username: username?, password: password? })
}

fn valid_login(text: &str) -> Result<(), (String, String)> {
    if text.is_empty() || text.starts_with('-') || text.contains(|c: char| c.is_control()) {
        return Err((format!("`{}` is not a user", shorten(text)), "write the name alone".to_owned()));
    }
    Ok(())
}

fn args(node: &Node, check: &mut Check) -> Vec<String> {
    let Some(list) = node.get("args") else { return Vec::new() };
    let items = check.list(list, "write it like [--cap-add=SYS_PTRACE]");
    let mut args = Vec::new();
    for item in items {
        let Some(text) = check.text(item) else { continue };
        if args.is_empty() && !text.starts_with('-') && !item.is_unknown() {
            check.wrong(&item.place, format!("`{}` would be taken for the image", shorten(&text)), "options for docker run begin with -");
        } else if let Err(hint) = free(&text) {
            check.wrong(&item.place, format!("`{}` is set by orchestrate", shorten(&text)), hint);
        } else if text == "--" {
            check.wrong(&item.place, "`--` would end the options for docker run", "leave it out");
        }
        args.push(text);
    }
    args
}

/// Whether an option of `docker run` is the user's to give; else what to write instead.
fn free(arg: &str) -> Result<(), String> {
    let owned: BTreeMap<&str, &str> = BTreeMap::from([
        ("--name", "leave it out: containers are named after `name`"),
        ("--label", "leave it out: labels tell what is ours"),
        ("--label-file", "leave it out: labels tell what is ours"),
        ("--entrypoint", "use container.entrypoint"),
        ("--detach", "leave it out"),
        ("--rm", "leave it out: see teardown"),
        ("--network", "use container.network"),
        ("--net", "use container.network"),
        ("--gpus", "use container.gpus"),
        ("--user", "use container.user"),
        ("--shm-size", "use container.shm_size"),
        ("--workdir", "use workdir"),
        ("--volume", "use container.mounts"),
        ("--env", "use container.env"),
        ("--env-file", "use container.env, or secrets"),
        ("--pull", "use container.pull"),
        ("--init", "leave it out: it is always given"),
        ("--restart", "leave it out: a run is whole or not at all"),
        ("--stop-timeout", "use launch.stop_grace"),
        ("--stop-signal", "leave it out: TERM, then KILL after launch.stop_grace"),
        ("--cidfile", "leave it out"),
        ("--interactive", "leave it out"),
        ("--tty", "leave it out"),
    ]);
    const LETTERS: [(char, &str); 8] = [
        ('d', "--detach"),
        ('l', "--label"),
        ('u', "--user"),
        ('w', "--workdir"),
        ('v', "--volume"),
        ('e', "--env"),
        ('i', "--interactive"),
        ('t', "--tty"),
    ];
    let name = arg.split('=').next().unwrap_or_default();
    let long = match name.strip_prefix('-').filter(|rest| !rest.starts_with('-')).and_then(|rest| rest.chars().next()) {
        Some(letter) => LETTERS.iter().find(|(l, _)| *l == letter).map(|(_, long)| *long),
        None => Some(name),
    };
    match long.and_then(|long| owned.get(long)) {
        Some(hint) => Err((*hint).to_owned()),
        None => Ok(()),
    }
}
