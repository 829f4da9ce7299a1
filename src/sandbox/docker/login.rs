//! `docker login`, and which login gives access to which image: the folder of `--config`, of `DOCKER_CONFIG`, or `~/.docker`, as docker's client has it.
//!
//! A registry that the scenario does not mention needs no login.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::super::fake_program::{ProgramContext, ProgramOutput};
use super::error::DockerError;
use super::flags::ParsedFlags;

/// The client's `config.json`, as far as logins go.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, RegistryAuth>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct RegistryAuth {
    auth: String,
}

/// Where the client keeps its configuration. `given`: the value of `--config`.
pub(super) fn config_dir(given: Option<&str>) -> PathBuf {
    let own = || std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".docker");
    given.map(PathBuf::from).or_else(own).unwrap_or_else(home)
}

fn read_config(folder: &Path) -> DockerConfig {
    fs::read(folder.join("config.json")).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// `docker login -u NAME --password-stdin SERVER`.
pub(super) fn docker_login(context: &ProgramContext, folder: &Path, flags: &ParsedFlags) -> Result<ProgramOutput, DockerError> {
    let server =
        flags.positional.first().ok_or_else(|| DockerError::new(1, "Error: Cannot perform an interactive login from a non TTY device"))?;
    let username = flags.last_value("username").ok_or_else(|| DockerError::new(1, "Must provide --username with --password-stdin"))?;
    let password = match flags.last_value("password") {
        Some(password) => password.to_owned(),
        None if flags.has("password-stdin") => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text.strip_suffix('\n').unwrap_or(&text).to_owned()
        }
        None => return Err(DockerError::new(1, "Error: Cannot perform an interactive login from a non TTY device")),
    };
    let settings = context.host.settings();
    let right = settings.logins.iter().filter(|login| login.server == *server);
    if right.clone().next().is_some() && !right.clone().any(|login| login.username == username && login.password == password) {
        let text = format!("Get \"https://{server}/v2/\": unauthorized: incorrect username or password");
        return Err(DockerError::new(1, format!("Error response from daemon: {text}")));
    }
    let mut config = read_config(folder);
    config.auths.insert(server.clone(), RegistryAuth { auth: STANDARD.encode(format!("{username}:{password}")) });
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let bytes = serde_json::to_vec_pretty(&config).map_err(std::io::Error::other)?;
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(folder.join("config.json"))?;
    std::io::Write::write_all(&mut file, &bytes)?;
    Ok(ProgramOutput::ok("Login Succeeded\n"))
}

/// Whether an image of this registry may be pulled with the logins of a folder.
pub(super) fn can_pull_from(context: &ProgramContext, folder: &Path, server: &str) -> bool {
    let settings = context.host.settings();
    let mut wanted = settings.logins.iter().filter(|login| login.server == server).peekable();
    if wanted.peek().is_none() {
        return true;
    }
    let config = read_config(folder);
    let given = config.auths.get(server).map(|auth| auth.auth.as_str());
    wanted.any(|login| given == Some(STANDARD.encode(format!("{}:{}", login.username, login.password)).as_str()))
}
