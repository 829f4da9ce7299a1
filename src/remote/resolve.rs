//! Asks `ssh -G` how a host is reached, follows its jump hosts, and keeps the answers. With `-F none` or `ssh.config: none` there is nothing
//! to ask, and no ssh program is needed.
//!
//! Uses `config` and `hop`. Owns the ssh process; knows no sockets.
#![expect(clippy::disallowed_methods, reason = "ssh_config is read by ssh itself")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OnceCell, Semaphore};

use super::RemoteError;
use super::alike::{self, Patterns};
use super::config::{Jump, Options};
use super::hop::{self, Asked, Hop};
use super::settings::Settings;
use crate::inventory::Host;

/// ssh processes at once.
const PARALLEL: usize = 8;
/// How long one may take; its `Match exec` included.
const PATIENCE: Duration = Duration::from_secs(5);
/// In place of a file: no ssh_config at all.
const NONE: &str = "none";
/// Jump hosts one behind another; more is taken for a loop.
const DEPTH: usize = 8;

type Answer = Arc<OnceCell<Result<Said, RemoteError>>>;

/// What ssh said, and the files that it read for it.
#[derive(Clone)]
struct Said {
    options: Arc<Options>,
    files: Option<Arc<[String]>>,
}

/// The host patterns of one ssh_config, read once; `None`: it could not be told.
type PatternsOnce = Arc<OnceCell<Option<Patterns>>>;

/// Resolves hosts to ways; every question is asked once, and one for all hosts that must get the same answer.
pub(super) struct Resolver {
    settings: Settings,
    gate: Semaphore,
    answers: Mutex<HashMap<Vec<String>, Answer>>,
    /// Of each ssh_config, once the first host was asked for.
    patterns: Mutex<HashMap<Option<PathBuf>, PatternsOnce>>,
}

impl Resolver {
    pub(super) fn new(settings: Settings) -> Self {
        Resolver { settings, gate: Semaphore::new(PARALLEL), answers: Mutex::default(), patterns: Mutex::default() }
    }

    /// The way to a host: its jump hosts, first hop first, then the host.
    pub(super) async fn way(&self, host: &Host) -> Result<Vec<Hop>, RemoteError> {
        let asked = Asked::host(host);
        let options = self.options(&asked).await?;
        let inventory = host.ssh.jump.as_ref().map(|jump| jump.join(","));
        let jumps = inventory.as_deref().or(options.first("proxyjump")).filter(|text| !text.is_empty());
        let mut chain = jumps.map_or(Ok(Vec::new()), |text| parse(&host.name, text))?;
        let mut way: Vec<Hop> = Vec::new();
        self.unfold(host, &mut chain).await?;
        for jump in &chain {
            let asked = Asked::jump(jump, &host.ssh);
            let options = self.options(&asked).await?;
            let before = way.last().map(|h| h.name.clone()).unwrap_or_default();
            way.push(hop::build(&asked, &options, &self.settings, &before)?);
        }
        let before = way.last().map(|h| h.name.clone()).unwrap_or_default();
        way.push(hop::build(&asked, &options, &self.settings, &before)?);
        Ok(way)
    }

    /// Puts the jump hosts of the first jump host before it, again and again: as with ssh, only the first one's own ProxyJump counts.
    async fn unfold(&self, host: &Host, chain: &mut Vec<Jump>) -> Result<(), RemoteError> {
        while let Some(first) = chain.first().cloned() {
            if chain.len() > DEPTH || (first.host == host.name && first.port == host.ssh.port && first.user.is_none()) {
                let hops: Vec<&str> = chain.iter().map(|j| j.host.as_str()).collect();
                return Err(RemoteError::Settings {
                    what: format!("the jump hosts of {} lead in a circle: {}", host.name, hops.join(" → ")),
                    hint: "exclude the jump host from its own `Host` pattern, or give it `ProxyJump none`".to_owned(),
                });
            }
            let asked = Asked::jump(&first, &host.ssh);
            let options = self.options(&asked).await?;
            let Some(text) = options.first("proxyjump") else { return Ok(()) };
            chain.splice(0..0, parse(&first.host, text)?);
        }
        Ok(())
    }

    async fn options(&self, asked: &Asked<'_>) -> Result<Arc<Options>, RemoteError> {
        let resolve = |path: &str| if path == NONE { PathBuf::from(path) } else { self.settings.resolve(path) };
        let config = self.settings.config.clone().or_else(|| asked.ssh.config.as_deref().map(resolve));
        if config.as_deref().is_some_and(|path| path == Path::new(NONE) || path == Path::new("/dev/null")) {
            return Ok(Arc::new(Options::defaults()));
        }
        let arguments = arguments(asked, config.clone());
        let key = self.alike(asked, config, &arguments).await.unwrap_or_else(|| arguments.clone());
        self.once(key, asked.alias, arguments).await.map(|said| said.options)
    }

    async fn once(&self, key: Vec<String>, alias: &str, arguments: Vec<String>) -> Result<Said, RemoteError> {
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone();
        answer.get_or_init(|| self.ask(alias, arguments)).await.clone()
    }

    /// What hosts have in common that get the same answer. A host whose address the inventory does not know needs an answer of its own. The
    /// first one asks, the others wait for the files that ssh has read.
    async fn alike(&self, asked: &Asked<'_>, config: Option<PathBuf>, arguments: &[String]) -> Option<Vec<String>> {
        asked.address?;
        let cell = self.patterns.lock().unwrap_or_else(PoisonError::into_inner).entry(config.clone()).or_default().clone();
        let key = |patterns: &Patterns| {
            let config = config.as_ref().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
            Some(vec!["alike".to_owned(), config, asked.user.unwrap_or_default().to_owned(), patterns.of(asked.alias)?])
        };
        let first = || async {
            let said = self.once(arguments.to_vec(), asked.alias, arguments.to_vec()).await.ok()?;
            let mut texts = Vec::new();
            for file in said.files.iter().flat_map(|files| files.iter()) {
                texts.push(tokio::fs::read_to_string(file).await.ok()?);
            }
            let patterns = said.files.as_ref().and_then(|_| Patterns::read(&texts))?;
            if let Some(key) = key(&patterns) {
                self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::new(OnceCell::from(Ok(said))));
            }
            Some(patterns)
        };
        cell.get_or_init(first).await.as_ref().and_then(key)
    }

    async fn ask(&self, alias: &str, arguments: Vec<String>) -> Result<Said, RemoteError> {
        let wrong = |what: String, hint: &str| RemoteError::Settings { what, hint: hint.to_owned() };
        let program = self.program().ok_or_else(|| {
            wrong(
                "ssh_config could not be read: there is no `ssh` program on PATH".to_owned(),
                "install the OpenSSH client (apt install openssh-client)",
            )
        })?;
        let Ok(_permit) = self.gate.acquire().await else { return Err(wrong("ssh -G: closed".to_owned(), "")) };
        let mut command = tokio::process::Command::new(program);
        command.args(&arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).process_group(0);
        let failed = |e: std::io::Error| wrong(format!("`ssh -G {alias}` could not be run: {e}"), "");
        let child = command.spawn().map_err(failed)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        let output = match tokio::time::timeout(PATIENCE, child.wait_with_output()).await {
            Ok(output) => output.map_err(failed)?,
            Err(_) => {
                // What a `Match exec` has started goes with it; that it is gone already is as good.
                if let Some(Err(error)) = group.map(|g| rustix::process::kill_process_group(g, rustix::process::Signal::KILL)) {
                    tracing::debug!(%error, "ssh -G was gone already");
                }
                let what = format!("`ssh -G {alias}` did not end within {PATIENCE:?}");
                return Err(wrong(what, "a `Match exec` in ssh_config may hang; try the command by hand"));
            }
        };
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            let chatter = |l: &str| l.is_empty() || ["Pseudo-terminal", "OpenSSH_", "debug1: "].iter().any(|c| l.starts_with(c));
            let said: Vec<&str> = said.lines().map(str::trim).filter(|l| !chatter(l)).collect();
            let what = format!("ssh_config was refused for {alias}: {}", said.join("; "));
            return Err(wrong(what, "mend the line that ssh names, or name another file with ssh.config or -F"));
        }
        let files = alike::files(&said).map(|files| files.into_iter().map(str::to_owned).collect());
        Ok(Said { options: Arc::new(Options::parse(&String::from_utf8_lossy(&output.stdout))), files })
    }

    fn program(&self) -> Option<PathBuf> {
        let path = self.settings.path.as_ref()?;
        std::env::split_paths(path).map(|folder| folder.join("ssh")).find(|file| file.is_file())
    }
}

fn parse(alias: &str, text: &str) -> Result<Vec<Jump>, RemoteError> {
    let wrong =
        |what| RemoteError::Settings { what: format!("jump hosts of {alias}: {what}"), hint: "write [user@]host[:port]".to_owned() };
    Jump::list(text).map_err(wrong)
}

fn arguments(asked: &Asked<'_>, config: Option<PathBuf>) -> Vec<String> {
    let mut arguments = vec!["-v".to_owned(), "-G".to_owned()];
    let mut push = |flag: &str, value: Option<String>| arguments.extend(value.into_iter().flat_map(|v| [flag.to_owned(), v]));
    push("-F", config.map(|c| c.to_string_lossy().into_owned()));
    push("-l", asked.user.map(str::to_owned));
    push("-p", asked.port.map(|p| p.to_string()));
    push("-o", asked.address.map(|a| format!("HostName={a}")));
    arguments.extend(["--".to_owned(), asked.alias.to_owned()]);
    arguments
}
