//! The container of one host: the common block with the host's own laid over it, mounts by their target.

use super::errors::InventoryErrors;
use super::eval::{Evaluator, NPROC_LIMIT};
use super::hosts::parse_gpu_indexes;
use super::log_settings::parse_size;
use super::mounts::merge_mounts;
use super::problem::{Verdict, require};
use super::schema;
use super::yaml_tree::{YamlEntry, YamlKind, YamlNode, shorten};
use super::{ContainerGpus, ContainerSettings, ContainerUser, EntrypointMode, PullPolicy, RegistrySettings};

/// The default size of `/dev/shm`: docker's 64 MB break NCCL and data loaders.
pub(crate) const DEFAULT_SHM_SIZE: &str = "32g";

/// Compares the keys of every container block.
pub(super) fn check_keys(tree: &YamlNode, host_nodes: &[YamlNode], errors: &mut InventoryErrors) {
    let common = tree.get("container");
    for block in common.into_iter().chain(host_nodes.iter().filter_map(|member| member.get("container"))) {
        errors.check_keys(block, &schema::CONTAINER_SCHEMA);
        if let Some(registry) = block.get("registry") {
            errors.check_keys(registry, &schema::REGISTRY_SCHEMA);
        }
        for mount in block.get("mounts").map(YamlNode::items).unwrap_or_default() {
            if matches!(mount.kind, YamlKind::Map(_)) {
                errors.check_keys(mount, &schema::MOUNT_SCHEMA);
            }
        }
    }
    for own in host_nodes.iter().filter_map(|member| member.get("container")) {
        if common.is_none() {
            errors.report(
                &own.location,
                "there is no top-level `container` for this to override",
                "put the common settings, at least the image, under the top-level `container`",
            );
        }
        for key in ["engine", "host"] {
            if let Some(node) = own.get(key) {
                errors.report(&node.location, "the engine must be the same on all hosts", format!("set container.{key}"));
            }
        }
    }
    if let Some(node) = common.and_then(|common| common.get("engine")) {
        validate_engine(node, errors);
    }
}

/// `container.host`: what docker takes as `DOCKER_HOST`.
pub(super) fn parse_docker_host(node: &YamlNode, errors: &mut InventoryErrors) -> Option<String> {
    errors.validated_text(node, |text| {
        let fine = ["unix:///", "tcp://", "ssh://"].iter().any(|scheme| text.strip_prefix(scheme).is_some_and(|rest| !rest.is_empty()));
        let bad = text.contains(|c: char| c.is_whitespace() || c.is_control());
        let message = format!("`{}` is not an engine's address", shorten(text));
        require(fine && !bad, message, "for example unix:///run/user/1000/docker.sock")
    })
}

fn validate_engine(node: &YamlNode, errors: &mut InventoryErrors) {
    if errors.read_text(node).is_some_and(|text| text == "podman") {
        errors.report(&node.location, "podman: not supported yet", "use docker");
    } else {
        errors.read_choice(node, &[("docker", ())]);
    }
}

/// The container of a host; `None`: its ranks run on the bare host.
pub(super) fn parse_container(evaluator: &Evaluator<'_>, host: usize, errors: &mut InventoryErrors) -> Option<ContainerSettings> {
    let facts = evaluator.inputs();
    let common = facts.tree.get_map("container")?;
    let own = facts.host_nodes.get(host).and_then(|member| member.get("container"));
    let common_now = evaluate_common_container(evaluator, common, host);
    let own_now = own.map(|node| evaluator.evaluate(node, Some(host)));
    let mounts = merge_mounts(common_now.get("mounts"), own_now.as_ref().and_then(|own| own.get("mounts")), errors);
    let node = match own_now {
        Some(own) if matches!(own.kind, YamlKind::Map(_)) => common_now.merge(own),
        _ => common_now,
    };
    let image = match node.get("image") {
        Some(image) => errors.validated_text(image, validate_image),
        None => {
            errors.report(&common.location, "`image` is missing", "set the image, or remove `container` to run on the bare host");
            None
        }
    };
    Some(ContainerSettings {
        engine_host: node.get("host").and_then(|node| parse_docker_host(node, errors)),
        image: image.unwrap_or_default(),
        pull: errors.choose(
            node.get("pull"),
            &[("missing", PullPolicy::Missing), ("always", PullPolicy::Always), ("never", PullPolicy::Never)],
            PullPolicy::Missing,
        ),
        gpus: node.get("gpus").map_or(ContainerGpus::All, |node| parse_container_gpus(node, errors)),
        network: parse_network(&node, errors),
        user: node.get("user").map_or(ContainerUser::Image, |node| parse_user(node, errors)),
        shm_size: node
            .get("shm_size")
            .and_then(|node| errors.validated_text(node, validate_size))
            .unwrap_or_else(|| DEFAULT_SHM_SIZE.to_owned()),
        mounts,
        env: node.get("env").map(|node| errors.read_env(node)).unwrap_or_default(),
        entrypoint: errors.choose(
            node.get("entrypoint"),
            &[("none", EntrypointMode::Overridden), ("image", EntrypointMode::Image)],
            EntrypointMode::Overridden,
        ),
        registry: node.get("registry").and_then(|node| parse_registry(node, errors)),
        docker_args: parse_docker_args(&node, errors),
    })
}

/// Only env and mounts of the common block know the host that they are read for.
fn evaluate_common_container(evaluator: &Evaluator<'_>, common: &YamlNode, host: usize) -> YamlNode {
    let entries = common.entries().iter().map(|entry| {
        let knows = matches!(entry.key.as_str(), "env" | "mounts").then_some(host);
        YamlEntry::new(&entry.key, entry.location.clone(), evaluator.evaluate(&entry.value, knows))
    });
    YamlNode::map(common.location.clone(), entries.collect())
}

fn parse_network(node: &YamlNode, errors: &mut InventoryErrors) -> String {
    let valid = |text: &str| {
        let fine = text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b));
        require(fine, format!("`{}` is not a network", shorten(text)), "use host, or the name of a docker network")
    };
    node.get("network").and_then(|node| errors.validated_text(node, valid)).unwrap_or_else(|| "host".to_owned())
}

fn parse_container_gpus(node: &YamlNode, errors: &mut InventoryErrors) -> ContainerGpus {
    match &node.kind {
        YamlKind::List(_) => ContainerGpus::List(parse_gpu_indexes(node, errors)),
        YamlKind::Scalar { text, .. } if text == "all" => ContainerGpus::All,
        YamlKind::Scalar { text, .. } if text == "none" => ContainerGpus::None,
        YamlKind::Scalar { plain: true, text } if text.parse::<i64>().is_ok() => {
            errors.read_number(node, 1, NPROC_LIMIT).map_or(ContainerGpus::All, ContainerGpus::Count)
        }
        YamlKind::Unknown(_) => ContainerGpus::All,
        YamlKind::Scalar { .. } | YamlKind::Map(_) => {
            errors.report(
                &node.location,
                format!("expected GPUs, found {}", node.describe()),
                "use all, none, a count like 4, or indexes like [0,1]",
            );
            ContainerGpus::All
        }
    }
}

fn parse_user(node: &YamlNode, errors: &mut InventoryErrors) -> ContainerUser {
    let Some(text) = errors.read_text(node) else { return ContainerUser::Image };
    let number = |part: &str| !part.is_empty() && part.len() < 11 && part.bytes().all(|b| b.is_ascii_digit());
    match text.as_str() {
        "image" => ContainerUser::Image,
        "me" => ContainerUser::SshUser,
        "root" => ContainerUser::Root,
        ids if node.is_unknown() || ids.split_once(':').map_or_else(|| number(ids), |(uid, gid)| number(uid) && number(gid)) => {
            ContainerUser::Ids(text)
        }
        _ => {
            errors.report(&node.location, format!("unknown user {}", node.describe()), "use image, me, root, or ids like \"1000:1000\"");
            ContainerUser::Image
        }
    }
}

fn validate_image(text: &str) -> Verdict {
    let fine = !text.is_empty() && !text.starts_with('-') && text.bytes().all(|b| b.is_ascii_graphic());
    require(fine, format!("`{}` is not an image name", shorten(text)), "for example registry:5000/team/image:tag")
}

fn validate_size(text: &str) -> Verdict {
    require(parse_size(text).is_some_and(|bytes| bytes > 0), format!("`{}` is not a size", shorten(text)), "for example 32g or 512m")
}

fn parse_registry(node: &YamlNode, errors: &mut InventoryErrors) -> Option<RegistrySettings> {
    let mut part = |key: &str, valid: fn(&str) -> Verdict| match node.get(key) {
        Some(node) => errors.validated_text(node, valid),
        None => {
            let hint = "a registry is { server: 172.31.0.182, username: li, password: REG_PASSWORD }";
            errors.report(&node.location, format!("`{key}` is missing"), hint);
            None
        }
    };
    let (server, username) = (part("server", validate_image), part("username", validate_login_user));
    let password = part("password", super::hosts::validate_env_name);
    Some(RegistrySettings { server: server?, username: username?, password_variable: password? })
}

fn validate_login_user(text: &str) -> Verdict {
    let fine = !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_control);
    require(fine, format!("`{}` is not a user", shorten(text)), "write only the name")
}

fn parse_docker_args(node: &YamlNode, errors: &mut InventoryErrors) -> Vec<String> {
    let Some(list) = node.get("args") else { return Vec::new() };
    let items = errors.read_list(list, "for example [--cap-add=SYS_PTRACE]");
    let mut args = Vec::new();
    for item in items {
        let Some(text) = errors.read_text(item) else { continue };
        if args.is_empty() && !text.starts_with('-') && !item.is_unknown() {
            errors.report(
                &item.location,
                format!("docker would read `{}` as the image", shorten(&text)),
                "options of docker run begin with -",
            );
        } else if let Err(hint) = reject_reserved_docker_flag(&text) {
            errors.report(&item.location, format!("orchestrate sets `{}` itself", shorten(&text)), hint);
        } else if text == "--" {
            errors.report(&item.location, "`--` would end the options of docker run", "remove it");
        }
        args.push(text);
    }
    args
}

/// Whether an option of `docker run` is the user's to give; else what to write instead.
fn reject_reserved_docker_flag(arg: &str) -> Result<(), String> {
    const OWN_FLAGS: [(&str, &str, &str); 23] = [
        ("--name", "", "remove it: containers are named after `name`"),
        ("--label", "-l", "remove it: orchestrate finds its containers by labels"),
        ("--label-file", "", "remove it: orchestrate finds its containers by labels"),
        ("--entrypoint", "", "use container.entrypoint"),
        ("--detach", "-d", "remove it"),
        ("--rm", "", "remove it: see teardown"),
        ("--network", "", "use container.network"),
        ("--net", "", "use container.network"),
        ("--gpus", "", "use container.gpus"),
        ("--user", "-u", "use container.user"),
        ("--shm-size", "", "use container.shm_size"),
        ("--workdir", "-w", "use workdir"),
        ("--volume", "-v", "use container.mounts"),
        ("--env", "-e", "use container.env"),
        ("--env-file", "", "use container.env, or secrets"),
        ("--pull", "", "use container.pull"),
        ("--init", "", "remove it: it is always set"),
        ("--restart", "", "remove it: a run is never restarted in part"),
        ("--stop-timeout", "", "use launch.stop_grace"),
        ("--stop-signal", "", "remove it: ranks get TERM, and KILL after launch.stop_grace"),
        ("--cidfile", "", "remove it"),
        ("--interactive", "-i", "remove it"),
        ("--tty", "-t", "remove it"),
    ];
    let name = arg.split('=').next().unwrap_or_default();
    let found = OWN_FLAGS.iter().find(|(long, short, _)| *long == name || !short.is_empty() && name.starts_with(short));
    found.map_or(Ok(()), |(.., hint)| Err((*hint).to_owned()))
}
