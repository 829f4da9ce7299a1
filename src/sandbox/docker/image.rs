//! Images: whether one is here, pulling it, `docker images` and `docker image inspect`.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::program::{Answer, Here};
use super::super::template::Template;
use super::Failure;
use super::flags::Flags;
use super::login;
use super::store::{State, Store, image_id, with_tag};

fn is_here(state: &State, reference: &str) -> bool {
    let id = image_id(reference);
    let wanted = with_tag(reference);
    state.images.iter().any(|image| with_tag(image) == wanted || image_id(image) == reference || image_id(image) == id)
}

/// Makes sure of an image as `--pull` says.
pub(super) fn ensure(here: &Here, store: &Store, config: &Path, reference: &str, pull: &str) -> Result<(), Failure> {
    let present = is_here(&store.read(), reference);
    match (pull, present) {
        ("never", true) | ("missing", true) => Ok(()),
        ("never", false) => Err(Failure::new(125, format!("Error response from daemon: No such image: {}", with_tag(reference)))),
        ("missing" | "always", _) => {
            if !present {
                Answer { stderr: format!("Unable to find image '{}' locally\n", with_tag(reference)), ..Answer::default() }.say();
            }
            fetch(here, store, config, reference)
        }
        _ => Err(Failure::new(125, format!("invalid pull option: '{pull}': must be one of \"always\", \"missing\" or \"never\""))),
    }
}

/// Pulls, as slowly as the faults say.
fn fetch(here: &Here, store: &Store, config: &Path, reference: &str) -> Result<(), Failure> {
    let faults = here.place.faults();
    std::thread::sleep(Duration::try_from_secs_f64(faults.pull_delay).unwrap_or_default());
    if faults.pull_fails {
        let server = reference.split_once('/').map(|(server, _)| server).filter(|s| s.contains('.')).unwrap_or("registry-1.docker.io");
        let text = format!("Get \"https://{server}/v2/\": dial tcp: lookup {server}: i/o timeout");
        return Err(Failure::new(1, format!("Error response from daemon: {text}")));
    }
    let server = reference.split_once('/').map_or("registry-1.docker.io", |(server, _)| server);
    if !login::opens(here, config, server) {
        let text = format!("Head \"https://{server}/v2/\": unauthorized: authentication required");
        return Err(Failure::new(1, format!("Error response from daemon: {text}")));
    }
    let wanted = with_tag(reference);
    if !here.place.settings().registry.iter().chain(&store.read().images).any(|image| with_tag(image) == wanted) {
        let name = reference.split_once(':').map_or(reference, |(name, _)| name);
        let text = format!("pull access denied for {name}, repository does not exist or may require 'docker login'");
        return Err(Failure::new(1, format!("Error response from daemon: {text}: denied: requested access to the resource is denied")));
    }
    store.change(|state| -> Result<(), Failure> {
        if !is_here(state, reference) {
            state.images.push(reference.to_owned());
        }
        Ok(())
    })
}

/// `docker pull`.
pub(super) fn pull(here: &Here, store: &Store, config: &Path, flags: &Flags) -> Result<Answer, Failure> {
    let reference = flags.words.first().ok_or_else(|| Failure::new(1, "\"docker pull\" requires exactly 1 argument."))?;
    fetch(here, store, config, reference)?;
    let full = with_tag(reference);
    if flags.has("quiet") {
        return Ok(Answer::ok(format!("{full}\n")));
    }
    let (name, tag) = full.rsplit_once(':').unwrap_or((&full, "latest"));
    let digest = image_id(reference);
    Ok(Answer::ok(format!("{tag}: Pulling from {name}\nDigest: {digest}\nStatus: Image is up to date for {full}\n{full}\n")))
}

/// `docker images`.
pub(super) fn list(store: &Store, flags: &Flags) -> Answer {
    let state = store.read();
    let images = state.images.iter().map(|image| (with_tag(image), image_id(image)));
    let images = images.filter(|(name, _)| flags.words.first().is_none_or(|word| name.starts_with(word.as_str())));
    let template = flags.last("format").and_then(|text| Template::parse(text).ok());
    let mut out = String::new();
    if template.is_none() && !flags.has("quiet") {
        out.push_str("REPOSITORY   TAG   IMAGE ID   CREATED   SIZE\n");
    }
    for (full, id) in images {
        let (name, tag) = full.rsplit_once(':').unwrap_or((&full, "latest"));
        let short = id.get(7..19).unwrap_or(&id);
        match &template {
            Some(template) => {
                let value =
                    json!({"Repository": name, "Tag": tag, "ID": if flags.has("no-trunc") { id.as_str() } else { short }, "Size": "1.2GB"});
                out.push_str(&format!("{}\n", template.render(&value).unwrap_or_default()));
            }
            None if flags.has("quiet") => out.push_str(&format!("{short}\n")),
            None => out.push_str(&format!("{name}   {tag}   {short}   2 weeks ago   1.2GB\n")),
        }
    }
    Answer::ok(out)
}

fn shape(store: &Store, reference: &str) -> Value {
    let spec = store.image(reference);
    let full = with_tag(reference);
    let name = full.rsplit_once(':').map_or(full.as_str(), |(name, _)| name);
    let list = |words: Vec<String>| if words.is_empty() { Value::Null } else { json!(words) };
    json!({
        "Id": image_id(reference), "RepoTags": [full], "RepoDigests": [format!("{name}@{}", image_id(reference))],
        "Created": "2026-10-01T00:00:00Z", "Size": 1_234_567_890_u64, "Os": "linux", "Architecture": "amd64",
        "Config": {
            "Env": list(spec.env), "Entrypoint": list(spec.entrypoint), "Cmd": list(spec.cmd),
            "User": spec.user, "WorkingDir": spec.workdir, "Labels": Value::Null,
        },
    })
}

/// `docker image inspect`.
pub(super) fn inspect(store: &Store, flags: &Flags) -> Result<Answer, Failure> {
    let state = store.read();
    let (here, missing): (Vec<&String>, Vec<&String>) = flags.words.iter().partition(|word| is_here(&state, word));
    let real = |word: &str| state.images.iter().find(|image| image_id(image) == word).cloned().unwrap_or_else(|| word.to_owned());
    let values: Vec<Value> = here.iter().map(|word| shape(store, &real(word))).collect();
    let mut answer = super::inspect::print(&values, flags.last("format"))?;
    for word in missing {
        answer.stderr.push_str(&format!("Error response from daemon: No such image: {}\n", with_tag(word)));
        answer.code = 1;
    }
    Ok(answer)
}

/// The shape of one image, if it is here: for `docker inspect`.
pub(super) fn find(store: &Store, reference: &str) -> Option<Value> {
    is_here(&store.read(), reference).then(|| shape(store, reference))
}
