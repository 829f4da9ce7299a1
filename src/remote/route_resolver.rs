//! Resolves the route to a host from ssh_config. Files are read once for all hosts; `ssh -G` runs only
//! where it is needed. With `-F none` or `ssh.config: none` nothing is read.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OnceCell, Semaphore};

use super::RemoteError;
use super::hop::{self, Hop};
use super::hop_target::HopTarget;
use super::name_validation;
use super::ssh_g;
use super::ssh_settings::SshSettings;
use crate::inventory::InventoryHost;
use crate::ssh_config::config_files;
use crate::ssh_config::resolve::{HostQuery, MatchResult, resolve_host};
use crate::ssh_config::{JumpHost, SettingOrigin, SshConfigFile, SshOptions};

/// Concurrent ssh processes.
const MAX_SSH_PROCESSES: usize = 8;
/// No ssh_config at all.
const NO_CONFIG: &str = "none";
/// Maximum number of jump hosts; more is treated as a loop.
const MAX_JUMPS: usize = 8;

/// One result shared by equal requests.
type ResultCache<K, V> = Mutex<HashMap<K, Arc<OnceCell<Result<V, RemoteError>>>>>;

/// Resolves hosts to routes.
pub(super) struct RouteResolver {
    settings: SshSettings,
    ssh_processes: Semaphore,
    source_cache: ResultCache<Option<PathBuf>, Arc<[Arc<SshConfigFile>]>>,
    ssh_g_cache: ResultCache<Vec<String>, SshOptions>,
}

/// One hop with its sources.
pub(super) struct ResolvedHop {
    pub(super) hop: Hop,
    pub(super) options: SshOptions,
}

impl RouteResolver {
    pub(super) fn new(settings: SshSettings) -> Self {
        RouteResolver {
            settings,
            ssh_processes: Semaphore::new(MAX_SSH_PROCESSES),
            source_cache: Mutex::default(),
            ssh_g_cache: Mutex::default(),
        }
    }

    /// The route to a host: its jump hosts in order, then the host.
    pub(super) async fn resolve_hops(&self, host: &InventoryHost) -> Result<Vec<ResolvedHop>, RemoteError> {
        let target = HopTarget::for_host(host);
        let options = self.resolve_options(&target).await?;
        let mut chain = match options.first_value("ProxyJump") {
            Some(jumps) => parse_jump_hosts(&host.name, &jumps.text, &jumps.origin)?,
            None => Vec::new(),
        };
        self.prepend_nested_jumps(host, &mut chain).await?;
        let mut route: Vec<ResolvedHop> = Vec::new();
        let before = |route: &[ResolvedHop]| route.last().map(|s| s.hop.name.clone()).unwrap_or_default();
        for (jump, origin) in &chain {
            let via = before(&route);
            let target = HopTarget {
                forced_jumps: Some(via.clone()).filter(|v| !v.is_empty()),
                ..HopTarget::for_jump_host(jump, &host.ssh, origin)
            };
            let options = self.resolve_options(&target).await?;
            route.push(ResolvedHop { hop: hop::build_hop(&target, &options, &self.settings, &via)?, options });
        }
        route.push(ResolvedHop { hop: hop::build_hop(&target, &options, &self.settings, &before(&route))?, options });
        Ok(route)
    }

    /// Prepends the jump hosts of the first jump host repeatedly: as with ssh, only the first one's own ProxyJump counts.
    async fn prepend_nested_jumps(&self, host: &InventoryHost, chain: &mut Vec<(JumpHost, SettingOrigin)>) -> Result<(), RemoteError> {
        while let Some((first, origin)) = chain.first().cloned() {
            let itself = first.host == host.name && first.port == host.ssh.port && first.user.is_none();
            if itself || chain.len() > MAX_JUMPS || chain.iter().skip(1).any(|(jump, _)| *jump == first) {
                let hops: Vec<&str> = chain.iter().map(|(j, _)| j.host.as_str()).collect();
                return Err(RemoteError::invalid_config(
                    format!("{origin}: the jump hosts of {} form a loop: {}", host.name, hops.join(" → ")),
                    "exclude the jump host from its own `Host` pattern, or give it `ProxyJump none`",
                ));
            }
            let options = self.resolve_options(&HopTarget::for_jump_host(&first, &host.ssh, &origin)).await?;
            let Some(jumps) = options.first_value("ProxyJump") else { return Ok(()) };
            chain.splice(0..0, parse_jump_hosts(&first.host, &jumps.text, &jumps.origin)?);
        }
        Ok(())
    }

    async fn resolve_options(&self, target: &HopTarget<'_>) -> Result<SshOptions, RemoteError> {
        name_validation::validate_hop_names(target)?;
        let resolve = |path: &str| if path == NO_CONFIG { PathBuf::from(path) } else { self.settings.resolve_path(path) };
        let config = self.settings.config_file.clone().or_else(|| target.ssh.config_file.as_deref().map(resolve));
        let nothing = config.as_deref().is_some_and(|path| path == Path::new(NO_CONFIG) || path == Path::new("/dev/null"));
        let sources: Arc<[Arc<SshConfigFile>]> = if nothing { Arc::from([]) } else { self.load_sources(config.clone()).await? };
        let question = HostQuery { alias: target.alias, local_user: &self.settings.local_user };
        match resolve_host(&sources, question, inventory_overrides(target)) {
            MatchResult::Resolved(options) => Ok(options),
            MatchResult::Invalid(lines) => {
                Err(RemoteError::invalid_config(lines.join("; "), "correct these lines, or choose another file with ssh.config or -F"))
            }
            MatchResult::NeedsSsh(place, what) => {
                let Some(program) = ssh_g::find_ssh(self.settings.search_path.as_deref()) else {
                    let what = format!("{place}: {what} needs `ssh` to evaluate it, and there is no `ssh` on PATH");
                    let hint = "install the OpenSSH client (apt install openssh-client), or remove the line";
                    return Err(RemoteError::invalid_config(what, hint));
                };
                let arguments = ssh_g_arguments(target, config);
                let answer = shared_cell(&self.ssh_g_cache, arguments.clone());
                let question = || async {
                    let _permit =
                        self.ssh_processes.acquire().await.map_err(|e| RemoteError::invalid_config(format!("ssh -G: {e}"), ""))?;
                    ssh_g::run_ssh_g(program, &arguments, target.alias).await
                };
                // Overrides still apply without files.
                let mut options = answer.get_or_init(question).await.clone()?;
                for (keyword, values) in inventory_overrides(target).iter() {
                    values.iter().filter(|_| keyword != "HostName").for_each(|v| options.set(keyword, &v.text, &v.origin));
                }
                Ok(options)
            }
        }
    }

    async fn load_sources(&self, config: Option<PathBuf>) -> Result<Arc<[Arc<SshConfigFile>]>, RemoteError> {
        let answer = shared_cell(&self.source_cache, config.clone());
        let wrong = |what| RemoteError::invalid_config(what, "correct the file, or choose another one with ssh.config or -F");
        let home = self.settings.home.clone();
        let read = || async {
            let read = tokio::task::spawn_blocking(move || config_files::read_config_files(config.as_deref(), &home)).await;
            read.unwrap_or_else(|e| Err(format!("ssh_config: {e}"))).map(Arc::from).map_err(wrong)
        };
        answer.get_or_init(read).await.clone()
    }
}

fn shared_cell<K: Hash + Eq, V>(answers: &ResultCache<K, V>, key: K) -> Arc<OnceCell<Result<V, RemoteError>>> {
    answers.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default().clone()
}

fn parse_jump_hosts(alias: &str, text: &str, origin: &SettingOrigin) -> Result<Vec<(JumpHost, SettingOrigin)>, RemoteError> {
    let wrong = |what| RemoteError::invalid_config(format!("{origin}: jump hosts of {alias}: {what}"), "write [user@]host[:port]");
    let jumps = JumpHost::parse_list(text).map_err(wrong)?;
    Ok(jumps.into_iter().map(|jump| (jump, origin.clone())).collect())
}

/// The settings of the inventory, or of the setting that names a jump host, that override ssh_config.
fn inventory_overrides(target: &HopTarget<'_>) -> SshOptions {
    let mut options = SshOptions::default();
    let mut preset = |keyword: &str, value: Option<String>| value.into_iter().for_each(|v| options.set(keyword, &v, &target.origin));
    preset("HostName", target.address.map(escape_percent));
    preset("User", target.user.map(str::to_owned));
    preset("Port", target.port.map(|p| p.to_string()));
    // If the route is given, neither keyword applies.
    preset("ProxyJump", proxy_jump_value(target));
    preset("ProxyCommand", target.forced_jumps.as_ref().map(|_| NO_CONFIG.to_owned()));
    options
}

/// Jump hosts given explicitly; `none` means no jump host.
fn proxy_jump_value(target: &HopTarget<'_>) -> Option<String> {
    target.forced_jumps.as_ref().map(|via| if via.is_empty() { NO_CONFIG.to_owned() } else { via.clone() })
}

/// An address may contain `%` (fe80::1%eth0), which ssh would read as a token.
fn escape_percent(address: &str) -> String {
    address.replace('%', "%%")
}

fn ssh_g_arguments(target: &HopTarget<'_>, config: Option<PathBuf>) -> Vec<String> {
    let mut arguments = vec!["-G".to_owned()];
    let mut push = |flag: &str, value: Option<String>| arguments.extend(value.into_iter().flat_map(|v| [flag.to_owned(), v]));
    push("-F", config.map(|c| c.to_string_lossy().into_owned()));
    push("-l", target.user.map(str::to_owned));
    push("-p", target.port.map(|p| p.to_string()));
    push("-o", target.address.map(|a| format!("HostName={}", escape_percent(a))));
    push("-J", proxy_jump_value(target));
    arguments.extend(["--".to_owned(), target.alias.to_owned()]);
    arguments
}
