//! Images: whether one is here, pulling it, and `docker image inspect`.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::fake_program::{ProgramContext, ProgramOutput};
use super::error::DockerError;
use super::flags::ParsedFlags;
use super::format::{format_values, list_or_null};
use super::login;
use super::store::{DockerState, DockerStore, image_id, with_default_tag};

/// Layers of an image of which no more is known.
const DEFAULT_LAYERS: u32 = 3;
/// As dockerd's `max-concurrent-downloads`.
const PARALLEL_DOWNLOADS: usize = 3;

fn has_image(state: &DockerState, reference: &str) -> bool {
    let wanted = with_default_tag(reference);
    state.images.iter().any(|image| with_default_tag(image) == wanted || image_id(image) == reference)
}

/// Makes sure of an image as `--pull` says.
pub(super) fn ensure_image(
    context: &ProgramContext,
    store: &DockerStore,
    config: &Path,
    reference: &str,
    pull: &str,
) -> Result<(), DockerError> {
    let present = has_image(&store.read_state(), reference);
    match (pull, present) {
        ("never", true) | ("missing", true) => Ok(()),
        ("never", false) => {
            Err(DockerError::new(125, format!("Error response from daemon: No such image: {}", with_default_tag(reference))))
        }
        ("missing" | "always", _) => {
            if !present {
                ProgramOutput {
                    stderr: format!("Unable to find image '{}' locally\n", with_default_tag(reference)),
                    ..ProgramOutput::default()
                }
                .print();
            }
            pull_image(context, store, config, reference, |_| Ok(()))
        }
        _ => Err(DockerError::new(125, format!("invalid pull option: '{pull}': must be one of \"always\", \"missing\" or \"never\""))),
    }
}

/// Pulls, as slowly as the faults say; `say` prints a line.
fn pull_image(
    context: &ProgramContext,
    store: &DockerStore,
    config: &Path,
    reference: &str,
    mut say: impl FnMut(&str) -> Result<(), DockerError>,
) -> Result<(), DockerError> {
    let faults = context.host.faults();
    let delay = Duration::try_from_secs_f64(faults.pull_delay).unwrap_or_default();
    if let Err(refusal) = check_registry(context, store, config, reference) {
        std::thread::sleep(delay);
        return Err(refusal);
    }
    let full = with_default_tag(reference);
    let (name, tag) = full.rsplit_once(':').unwrap_or((&full, "latest"));
    say(&format!("{tag}: Pulling from {name}"))?;
    if has_image(&store.read_state(), reference) {
        std::thread::sleep(delay);
        return Ok(());
    }
    pull_layers(&layer_ids(store, reference), delay, say)?;
    store.update(|state| {
        if !has_image(state, reference) {
            state.images.push(reference.to_owned());
        }
        Ok(())
    })
}

/// Whether the registry has the image and gives it to this host.
fn check_registry(context: &ProgramContext, store: &DockerStore, config: &Path, reference: &str) -> Result<(), DockerError> {
    if context.host.faults().pull_fails {
        let server = reference.split_once('/').map(|(server, _)| server).filter(|s| s.contains('.')).unwrap_or("registry-1.docker.io");
        let text = format!("Get \"https://{server}/v2/\": dial tcp: lookup {server}: i/o timeout");
        return Err(DockerError::new(1, format!("Error response from daemon: {text}")));
    }
    let server = reference.split_once('/').map_or("registry-1.docker.io", |(server, _)| server);
    if !login::can_pull_from(context, config, server) {
        let text = format!("Head \"https://{server}/v2/\": unauthorized: authentication required");
        return Err(DockerError::new(1, format!("Error response from daemon: {text}")));
    }
    let wanted = with_default_tag(reference);
    if !context.host.settings().registry.iter().chain(&store.read_state().images).any(|image| with_default_tag(image) == wanted) {
        let name = reference.split_once(':').map_or(reference, |(name, _)| name);
        let text = format!("pull access denied for {name}, repository does not exist or may require 'docker login'");
        return Err(DockerError::new(1, format!("Error response from daemon: {text}: denied: requested access to the resource is denied")));
    }
    Ok(())
}

/// The ids of an image's layers, the lowest first.
fn layer_ids(store: &DockerStore, reference: &str) -> Vec<String> {
    let count = match store.image_spec(reference).layers {
        0 => DEFAULT_LAYERS,
        layers => layers,
    };
    let digits = |layer| image_id(&format!("{reference}/{layer}")).get(7..19).unwrap_or_default().to_owned();
    (0..count).map(digits).collect()
}

/// Downloads and unpacks layers as docker does, with its messages: all are announced, up to three are downloaded at a time, one is unpacked.
fn pull_layers(ids: &[String], delay: Duration, mut say: impl FnMut(&str) -> Result<(), DockerError>) -> Result<(), DockerError> {
    let pause = delay / u32::try_from(ids.len() * 2).unwrap_or(u32::MAX).max(1);
    for id in ids {
        say(&format!("{id}: Pulling fs layer"))?;
    }
    for id in ids.iter().skip(PARALLEL_DOWNLOADS) {
        say(&format!("{id}: Waiting"))?;
    }
    for (layer, id) in ids.iter().enumerate() {
        // The first downloads end before the first layer is unpacked.
        let downloaded = if layer == 0 { ids.get(..PARALLEL_DOWNLOADS.min(ids.len())) } else { ids.get(layer + PARALLEL_DOWNLOADS - 1..) };
        let several = if layer == 0 { PARALLEL_DOWNLOADS } else { 1 };
        for id in downloaded.unwrap_or_default().iter().take(several) {
            std::thread::sleep(pause);
            say(&format!("{id}: Verifying Checksum"))?;
            say(&format!("{id}: Download complete"))?;
        }
        std::thread::sleep(pause);
        say(&format!("{id}: Pull complete"))?;
    }
    Ok(())
}

/// `docker pull`.
pub(super) fn docker_pull(
    context: &ProgramContext,
    store: &DockerStore,
    config: &Path,
    flags: &ParsedFlags,
) -> Result<ProgramOutput, DockerError> {
    let reference = flags.positional.first().ok_or_else(|| DockerError::new(1, "\"docker pull\" requires exactly 1 argument."))?;
    let full = with_default_tag(reference);
    if flags.has("quiet") {
        pull_image(context, store, config, reference, |_| Ok(()))?;
        return Ok(ProgramOutput::ok(format!("{full}\n")));
    }
    let status = if has_image(&store.read_state(), reference) { "Image is up to date" } else { "Downloaded newer image" };
    let say = |line: &str| -> Result<(), DockerError> {
        let mut out = std::io::stdout().lock();
        Ok(writeln!(out, "{line}").and_then(|()| out.flush())?)
    };
    pull_image(context, store, config, reference, say)?;
    Ok(ProgramOutput::ok(format!("Digest: {}\nStatus: {status} for {full}\n{full}\n", image_id(reference))))
}

fn image_json(store: &DockerStore, reference: &str) -> Value {
    let spec = store.image_spec(reference);
    let full = with_default_tag(reference);
    let name = full.rsplit_once(':').map_or(full.as_str(), |(name, _)| name);
    json!({
        "Id": image_id(reference), "RepoTags": [full], "RepoDigests": [format!("{name}@{}", image_id(reference))],
        "Created": "2026-10-01T00:00:00Z", "Size": 1_234_567_890_u64, "Os": "linux", "Architecture": "amd64",
        "Config": {
            "Env": list_or_null(&spec.env), "Entrypoint": list_or_null(&spec.entrypoint), "Cmd": list_or_null(&spec.cmd),
            "User": spec.user, "WorkingDir": spec.workdir, "Labels": Value::Null,
        },
    })
}

/// `docker image inspect`.
pub(super) fn docker_image_inspect(store: &DockerStore, flags: &ParsedFlags) -> Result<ProgramOutput, DockerError> {
    let state = store.read_state();
    let (here, missing): (Vec<&String>, Vec<&String>) = flags.positional.iter().partition(|word| has_image(&state, word));
    let real = |word: &str| state.images.iter().find(|image| image_id(image) == word).cloned().unwrap_or_else(|| word.to_owned());
    let values: Vec<Value> = here.iter().map(|word| image_json(store, &real(word))).collect();
    let mut answer = format_values(&values, flags.last_value("format"))?;
    for word in missing {
        answer.stderr.push_str(&format!("Error response from daemon: No such image: {}\n", with_default_tag(word)));
        answer.code = 1;
    }
    Ok(answer)
}

/// The shape of one image, if it is here: for `docker inspect`.
pub(super) fn inspect_image(store: &DockerStore, reference: &str) -> Option<Value> {
    has_image(&store.read_state(), reference).then(|| image_json(store, reference))
}
