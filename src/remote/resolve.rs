//! Decides how a host is reached: what ssh_config says of it and of its jump hosts. The files are read once for all hosts; ssh is asked only
//! where it alone can tell. With `-F none` or `ssh.config: none` nothing is read.
//!
//! Uses `ssh_config` and `hop`. Knows no sockets.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OnceCell, Semaphore};

use super::RemoteError;
use super::hop::{self, Hop};
use super::hop_request::Asked;
use super::names;
use super::settings::Settings;
use super::ssh_config::files;
use super::ssh_config::walk::{Outcome, Question, walk};
use super::ssh_config::{Jump, Options, Origin, Source, ask};
use crate::inventory::Host;

/// ssh processes at once.
const PARALLEL: usize = 8;
/// In place of a file: no ssh_config at all.
const NONE: &str = "none";
/// Jump hosts one behind another; more is taken for a loop.
const DEPTH: usize = 8;

/// One answer for all who ask the same.
type Once<K, V> = Mutex<HashMap<K, Arc<OnceCell<Result<V, RemoteError>>>>>;

/// Resolves hosts to ways.
pub(super) struct Resolver {
    settings: Settings,
    gate: Semaphore,
    read: Once<Option<PathBuf>, Arc<[Arc<Source>]>>,
    asked: Once<Vec<String>, Options>,
}

/// One hop and what it was made from.
pub(super) struct Step {
    pub(super) hop: Hop,
    pub(super) options: Options,
}

impl Resolver {
    pub(super) fn new(settings: Settings) -> Self {
        Resolver { settings, gate: Semaphore::new(PARALLEL), read: Mutex::default(), asked: Mutex::default() }
    }

    /// The way to a host: its jump hosts, first hop first, then the host.
    pub(super) async fn way(&self, host: &Host) -> Result<Vec<Hop>, RemoteError> {
        Ok(self.steps(host).await?.into_iter().map(|step| step.hop).collect())
    }

    /// The way to a host, with where every setting came from.
    pub(super) async fn steps(&self, host: &Host) -> Result<Vec<Step>, RemoteError> {
        let asked = Asked::host(host);
        let options = self.options(&asked).await?;
        let mut chain = match options.value("ProxyJump") {
            Some(jumps) => parse(&host.name, &jumps.text, &jumps.origin)?,
            None => Vec::new(),
        };
        self.unfold(host, &mut chain).await?;
        let mut way: Vec<Step> = Vec::new();
        let before = |way: &[Step]| way.last().map(|s| s.hop.name.clone()).unwrap_or_default();
        for (jump, origin) in &chain {
            let via = before(&way);
            let asked = Asked { via: Some(via.clone()).filter(|v| !v.is_empty()), ..Asked::jump(jump, &host.ssh, origin) };
            let options = self.options(&asked).await?;
            way.push(Step { hop: hop::build(&asked, &options, &self.settings, &via)?, options });
        }
        way.push(Step { hop: hop::build(&asked, &options, &self.settings, &before(&way))?, options });
        Ok(way)
    }

    /// Puts the jump hosts of the first jump host before it, again and again: as with ssh, only the first one's own ProxyJump counts.
    async fn unfold(&self, host: &Host, chain: &mut Vec<(Jump, Origin)>) -> Result<(), RemoteError> {
        while let Some((first, origin)) = chain.first().cloned() {
            let itself = first.host == host.name && first.port == host.ssh.port && first.user.is_none();
            if itself || chain.len() > DEPTH || chain.iter().skip(1).any(|(jump, _)| *jump == first) {
                let hops: Vec<&str> = chain.iter().map(|(j, _)| j.host.as_str()).collect();
                return Err(RemoteError::Settings {
                    what: format!("{origin}: the jump hosts of {} lead in a circle: {}", host.name, hops.join(" → ")),
                    hint: "exclude the jump host from its own `Host` pattern, or give it `ProxyJump none`".to_owned(),
                });
            }
            let options = self.options(&Asked::jump(&first, &host.ssh, &origin)).await?;
            let Some(jumps) = options.value("ProxyJump") else { return Ok(()) };
            chain.splice(0..0, parse(&first.host, &jumps.text, &jumps.origin)?);
        }
        Ok(())
    }

    async fn options(&self, asked: &Asked<'_>) -> Result<Options, RemoteError> {
        names::given(asked)?;
        let resolve = |path: &str| if path == NONE { PathBuf::from(path) } else { self.settings.resolve(path) };
        let config = self.settings.config.clone().or_else(|| asked.ssh.config.as_deref().map(resolve));
        let nothing = config.as_deref().is_some_and(|path| path == Path::new(NONE) || path == Path::new("/dev/null"));
        let sources: Arc<[Arc<Source>]> = if nothing { Arc::from([]) } else { self.sources(config.clone()).await? };
        let question = Question { alias: asked.alias, local_user: &self.settings.user };
        let wrong = |what: String, hint: &str| RemoteError::Settings { what, hint: hint.to_owned() };
        match walk(&sources, question, preset(asked)) {
            Outcome::Settled(options) => Ok(options),
            Outcome::Wrong(lines) => Err(wrong(lines.join("; "), "mend these lines, or name another file with ssh.config or -F")),
            Outcome::Ask(place, what) => {
                let Some(program) = ask::program(self.settings.path.as_deref()) else {
                    let what = format!("{place}: {what} is for ssh to judge, and there is no `ssh` program on PATH");
                    return Err(wrong(what, "install the OpenSSH client (apt install openssh-client), or take the line out"));
                };
                let arguments = arguments(asked, config);
                let answer = once(&self.asked, arguments.clone());
                let question = || async {
                    let _permit = self.gate.acquire().await.map_err(|e| wrong(format!("ssh -G: {e}"), ""))?;
                    ask::ask(program, &arguments, asked.alias).await
                };
                // What stands over every file is still ours to name.
                let mut options = answer.get_or_init(question).await.clone()?;
                for (keyword, values) in preset(asked).iter() {
                    values.iter().filter(|_| keyword != "HostName").for_each(|v| options.preset(keyword, &v.text, &v.origin));
                }
                Ok(options)
            }
        }
    }

    async fn sources(&self, config: Option<PathBuf>) -> Result<Arc<[Arc<Source>]>, RemoteError> {
        let answer = once(&self.read, config.clone());
        let wrong = |what| RemoteError::Settings { what, hint: "mend the file, or name another one with ssh.config or -F".to_owned() };
        let home = self.settings.home.clone();
        let read = || async {
            let read = tokio::task::spawn_blocking(move || files::read(config.as_deref(), &home)).await;
            read.unwrap_or_else(|e| Err(format!("ssh_config: {e}"))).map(Arc::from).map_err(wrong)
        };
        answer.get_or_init(read).await.clone()
    }
}

fn once<K: Hash + Eq, V>(answers: &Once<K, V>, key: K) -> Arc<OnceCell<Result<V, RemoteError>>> {
    answers.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone()
}

fn parse(alias: &str, text: &str, origin: &Origin) -> Result<Vec<(Jump, Origin)>, RemoteError> {
    let wrong = |what| RemoteError::Settings {
        what: format!("{origin}: jump hosts of {alias}: {what}"),
        hint: "write [user@]host[:port]".to_owned(),
    };
    let jumps = Jump::list(text).map_err(wrong)?;
    Ok(jumps.into_iter().map(|jump| (jump, origin.clone())).collect())
}

/// What the inventory, or whoever named a jump host, says over ssh_config.
fn preset(asked: &Asked<'_>) -> Options {
    let mut options = Options::default();
    let mut preset = |keyword: &str, value: Option<String>| value.into_iter().for_each(|v| options.preset(keyword, &v, &asked.origin));
    preset("HostName", asked.address.map(literal));
    preset("User", asked.user.map(str::to_owned));
    preset("Port", asked.port.map(|p| p.to_string()));
    // Where the way is known, neither keyword has a say.
    preset("ProxyJump", via(asked));
    preset("ProxyCommand", asked.via.as_ref().map(|_| NONE.to_owned()));
    options
}

/// The jump hosts that are known beforehand; `none`: there are none.
fn via(asked: &Asked<'_>) -> Option<String> {
    asked.via.as_ref().map(|via| if via.is_empty() { NONE.to_owned() } else { via.clone() })
}

/// An address may hold a `%` (fe80::1%eth0), which ssh would take for a token.
fn literal(address: &str) -> String {
    address.replace('%', "%%")
}

fn arguments(asked: &Asked<'_>, config: Option<PathBuf>) -> Vec<String> {
    let mut arguments = vec!["-G".to_owned()];
    let mut push = |flag: &str, value: Option<String>| arguments.extend(value.into_iter().flat_map(|v| [flag.to_owned(), v]));
    push("-F", config.map(|c| c.to_string_lossy().into_owned()));
    push("-l", asked.user.map(str::to_owned));
    push("-p", asked.port.map(|p| p.to_string()));
    push("-o", asked.address.map(|a| format!("HostName={}", literal(a))));
    push("-J", via(asked));
    arguments.extend(["--".to_owned(), asked.alias.to_owned()]);
    arguments
}
