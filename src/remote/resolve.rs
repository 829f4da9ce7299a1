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

type Answer = Arc<OnceCell<Result<Arc<Options>, RemoteError>>>;

/// Resolves hosts to ways; every question is asked once.
pub(super) struct Resolver {
    settings: Settings,
    gate: Semaphore,
    answers: Mutex<HashMap<Vec<String>, Answer>>,
}

impl Resolver {
    pub(super) fn new(settings: Settings) -> Self {
        Resolver { settings, gate: Semaphore::new(PARALLEL), answers: Mutex::default() }
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
        let arguments = arguments(asked, config);
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).entry(arguments.clone()).or_default().clone();
        answer.get_or_init(|| self.ask(asked.alias, arguments)).await.clone()
    }

    async fn ask(&self, alias: &str, arguments: Vec<String>) -> Result<Arc<Options>, RemoteError> {
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
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said: Vec<&str> = said.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("Pseudo-terminal")).collect();
            let what = format!("ssh_config was refused for {alias}: {}", said.join("; "));
            return Err(wrong(what, "mend the line that ssh names, or name another file with ssh.config or -F"));
        }
        Ok(Arc::new(Options::parse(&String::from_utf8_lossy(&output.stdout))))
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
    let mut arguments = vec!["-G".to_owned()];
    let mut push = |flag: &str, value: Option<String>| arguments.extend(value.into_iter().flat_map(|v| [flag.to_owned(), v]));
    push("-F", config.map(|c| c.to_string_lossy().into_owned()));
    push("-l", asked.user.map(str::to_owned));
    push("-p", asked.port.map(|p| p.to_string()));
    push("-o", asked.address.map(|a| format!("HostName={a}")));
    arguments.extend(["--".to_owned(), asked.alias.to_owned()]);
    arguments
}
