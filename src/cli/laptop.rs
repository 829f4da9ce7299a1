#![expect(clippy::disallowed_methods, reason = "the laptop's environment and files are read here")]
//! What this laptop is: folders, names, variables, terminals; and the one way to ask the person at it.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;

use crate::cli::args::{Color, HostArgs};
use crate::cli::exit::Failure;
use crate::engine::lock::Identity;
use crate::inventory::Source;
use crate::remote::{Prompt, Settings};

/// Folders and names, read once.
#[derive(Debug, Clone)]
pub struct Laptop {
    /// The home folder.
    pub home: PathBuf,
    /// The user's name.
    pub user: String,
    /// The machine's name.
    pub name: String,
    /// `$XDG_STATE_HOME/orchestrate`.
    pub state: PathBuf,
}

impl Laptop {
    /// Reads it.
    ///
    /// # Errors
    /// Where there is no home folder.
    pub fn read() -> anyhow::Result<Laptop> {
        let home = std::env::home_dir().filter(|h| !h.as_os_str().is_empty()).context("there is no home folder: set HOME")?;
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
        let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "root".to_owned());
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let state = state.unwrap_or_else(|| home.join(".local/state")).join("orchestrate");
        Ok(Laptop { home, user, name, state })
    }

    /// Who we are to other operators.
    pub fn identity(&self) -> Identity {
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let plain = |s: &str| s.replace([':', '\n', ' ', '/'], "-");
        Identity {
            token: random(),
            owner: format!("{}@{}", plain(&self.user), plain(&self.name)),
            laptop: crate::plan::run::hash(&format!("{}{machine}", self.name)),
            pid: std::process::id(),
            alive: |pid| {
                i32::try_from(pid)
                    .ok()
                    .and_then(rustix::process::Pid::from_raw)
                    .is_some_and(|p| !matches!(rustix::process::test_kill_process(p), Err(rustix::io::Errno::SRCH)))
            },
        }
    }

    /// What connections take from this laptop.
    pub fn settings(&self, base: &Path, args: &HostArgs) -> Settings {
        Settings {
            home: self.home.clone(),
            base: base.to_owned(),
            config: args.ssh_config.clone(),
            agent: std::env::var_os("SSH_AUTH_SOCK").map(PathBuf::from).filter(|p| !p.as_os_str().is_empty()),
            path: std::env::var_os("PATH"),
            user: self.user.clone(),
            prompt: Arc::new(Terminal),
            parallel: args.forks,
            variables: Arc::new(|name| std::env::var(name).ok()),
        }
    }
}

/// 16 hex digits that nobody can have had before.
pub fn random() -> String {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{:016x}", hasher.finish())
}

/// The person at the terminal, if there is one.
struct Terminal;

impl Prompt for Terminal {
    fn secret(&self, what: &str) -> Option<String> {
        if !std::io::stdin().is_terminal() {
            return None;
        }
        rpassword::prompt_password(format!("{what}: ")).ok()
    }

    fn notice(&self, text: &str) {
        say(text);
    }
}

/// One line on standard error; a closed one is no reason to stop.
pub fn say(text: &str) {
    if writeln!(std::io::stderr(), "{text}").is_err() {
        tracing::debug!("standard error is closed");
    }
}

/// Text on standard output. A reader that went away (`| head`) is no error.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
        tracing::debug!("standard output is closed");
    }
}

/// Whether to use colours on standard error.
pub fn colored(when: Color) -> bool {
    match when {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            std::io::stderr().is_terminal()
                && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
                && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
        }
    }
}

/// The inventory files of a command, read.
///
/// # Errors
/// A file that cannot be read, named with what to do.
pub fn sources(args: &HostArgs) -> Result<(Vec<Source>, PathBuf), Failure> {
    let mut files: Vec<PathBuf> = args.inventory.iter().chain(&args.files).cloned().collect();
    if files.is_empty() {
        files = std::env::var_os("ORCHESTRATE_INVENTORY").map(|v| std::env::split_paths(&v).collect()).unwrap_or_default();
    }
    if files.is_empty() {
        files.push(PathBuf::from("inventory.yaml"));
    }
    let mut read = Vec::new();
    for file in &files {
        let name = file.display().to_string();
        match std::fs::read_to_string(file) {
            Ok(text) => read.push(Source { name, text }),
            Err(error) => {
                let hint = if error.kind() == std::io::ErrorKind::NotFound {
                    "\n    help: give the inventory as the first argument, with -i, in $ORCHESTRATE_INVENTORY, or as ./inventory.yaml; configs/ holds examples"
                } else {
                    ""
                };
                return Err(Failure::Usage(format!("{name}: cannot be read: {error}{hint}")));
            }
        }
    }
    let base = files.first().and_then(|f| f.parent()).map_or_else(|| PathBuf::from("."), Path::to_owned);
    let base = std::path::absolute(if base.as_os_str().is_empty() { Path::new(".") } else { &base }).unwrap_or(base);
    Ok((read, base))
}

/// The values of the secrets that the inventory names.
///
/// # Errors
/// Every name that is not in the environment.
pub fn secrets(names: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for name in names {
        match std::env::var(name) {
            Ok(value) => found.push((name.clone(), value)),
            Err(_) => missing.push(name.as_str()),
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    Err(Failure::Usage(format!(
        "secrets: {} not set in this environment\n    help: export {}, or take the names out of `secrets`",
        missing.join(", "),
        missing.first().copied().unwrap_or_default()
    )))
}
