//! One hop of a route: inventory settings override ssh_config, which overrides OpenSSH's defaults.
//!
//! Reads no files and runs nothing: `route_resolver` supplies the options.

use std::path::PathBuf;
use std::time::Duration;

use super::RemoteError;
use super::auth_options::AuthOptions;
use super::connection_options::{self, AlgorithmLists, BindOptions, ProxyCommand, value_error};
use super::hop_target::HopTarget;
use super::host_key::HostKeyPolicy;
use super::ssh_settings::SshSettings;
use crate::inventory::HostKeyChecking;
use crate::ssh_config::known_hosts;
use crate::ssh_config::{PercentTokens, SettingOrigin, SshOptions};

/// Default timeout for TCP, key exchange and authentication together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Default keepalive interval.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Allowed address families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressFamily {
    /// `AddressFamily any`.
    Any,
    /// `inet`.
    V4,
    /// `inet6`.
    V6,
}

/// Why a key file is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyFileSource {
    /// Named in the inventory: it must exist.
    Inventory,
    /// Named in ssh_config.
    Config,
    /// One of OpenSSH's defaults.
    Default,
}

/// A private key file, not read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyFile {
    pub(super) path: PathBuf,
    pub(super) source: KeyFileSource,
    pub(super) origin: SettingOrigin,
}

/// Everything needed for one connection.
#[derive(Debug, Clone)]
pub(super) struct Hop {
    /// Name shown to the user.
    pub(super) name: String,
    pub(super) is_jump: bool,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) key_files: Vec<KeyFile>,
    /// Certificates of user keys.
    pub(super) certificate_files: Vec<PathBuf>,
    pub(super) identities_only: bool,
    pub(super) agent_socket: Option<PathBuf>,
    pub(super) host_key_policy: HostKeyPolicy,
    /// Name of the environment variable with the password.
    pub(super) password_variable: Option<String>,
    pub(super) auth: AuthOptions,
    pub(super) connect_timeout: Duration,
    /// Keepalive interval; `None` sends none.
    pub(super) keepalive_interval: Option<Duration>,
    pub(super) keepalive_max: usize,
    /// TCP keepalives by the kernel.
    pub(super) tcp_keepalive: bool,
    /// Attempts per address within the timeout.
    pub(super) connection_attempts: u64,
    pub(super) address_family: AddressFamily,
    pub(super) bind: BindOptions,
    /// The program that carries the connection, if it is not the previous hop.
    pub(super) proxy_command: Option<ProxyCommand>,
    pub(super) algorithms: AlgorithmLists,
}

impl AddressFamily {
    /// Whether an address belongs to the family.
    pub(super) fn allows(self, address: &std::net::IpAddr) -> bool {
        match self {
            AddressFamily::Any => true,
            AddressFamily::V4 => address.is_ipv4(),
            AddressFamily::V6 => address.is_ipv6(),
        }
    }
}

impl Hop {
    /// Adds the name of a jump host to a message. Callers add the target host's name, so that hosts can share a message.
    pub(super) fn prefix_message(&self, what: &str) -> String {
        if self.is_jump { format!("jump host {}: {what}", self.name) } else { what.to_owned() }
    }
}

/// Builds a hop. `jump`: the previous hop, for `%j`.
pub(super) fn build_hop(target: &HopTarget<'_>, options: &SshOptions, settings: &SshSettings, jump: &str) -> Result<Hop, RemoteError> {
    let wrong = |what: String| RemoteError::InvalidConfig {
        what: if target.is_jump { format!("ssh settings of jump host {}: {what}", target.alias) } else { format!("ssh settings: {what}") },
        hint: "`ssh -G HOST` prints the settings of ssh_config; the `ssh` keys of the inventory override them".to_owned(),
    };
    let host = target.address.or(options.first_text("hostname")).unwrap_or(target.alias).to_owned();
    let port = target.port.or_else(|| options.first_text("port")?.parse().ok()).unwrap_or(22);
    let key_name = options.first_text("hostkeyalias").map_or_else(|| target.alias.to_owned(), str::to_ascii_lowercase);
    let tokens = PercentTokens {
        host: &host,
        alias: target.alias,
        host_key_name: &key_name,
        port,
        user: "",
        jump_host: jump,
        local_user: &settings.local_user,
        home: &settings.home,
        uid: rustix::process::getuid().as_raw(),
        env: &settings.env,
    };
    let user = match options.first_value("User").filter(|_| target.user.is_none()) {
        Some(value) => tokens.expand_user(&value.text).map_err(|what| wrong(value_error(value, "User", &what)))?,
        None => target.user.unwrap_or(&settings.local_user).to_owned(),
    };
    let tokens = PercentTokens { user: &user, ..tokens };
    let text = |key| options.first_text(key).map(str::to_owned);
    let seconds = |key| options.positive_number(key).map(Duration::from_secs);
    let keys = key_files(target, options, settings, &tokens).map_err(wrong)?;
    let certificates = expand_paths("CertificateFile", options, &tokens).map_err(wrong)?;
    let algorithms = connection_options::parse_algorithms(options).map_err(wrong)?;
    let policy = host_key_policy(target, options, settings, &tokens, &algorithms).map_err(wrong)?;
    let proxy = connection_options::parse_proxy_command(options, &tokens, (settings.env)("SHELL")).map_err(wrong)?;
    let agent = agent_socket(options, settings, &tokens).map_err(wrong)?;
    Ok(Hop {
        name: target.alias.to_owned(),
        is_jump: target.is_jump,
        host_key_policy: policy,
        key_files: keys,
        certificate_files: certificates,
        identities_only: options.is_yes("identitiesonly"),
        agent_socket: agent,
        password_variable: target.ssh.password_variable.clone().filter(|_| !target.is_jump),
        auth: AuthOptions::from_options(options),
        connect_timeout: target.ssh.connect_timeout.or(seconds("connecttimeout")).unwrap_or(CONNECT_TIMEOUT),
        keepalive_interval: target
            .ssh
            .keepalive_interval
            .map_or_else(|| connection_options::keepalive_interval(options, KEEPALIVE_INTERVAL), Some),
        keepalive_max: options.positive_number("serveralivecountmax").and_then(|n| usize::try_from(n).ok()).unwrap_or(3),
        tcp_keepalive: !options.is_no("tcpkeepalive"),
        connection_attempts: options.positive_number("connectionattempts").unwrap_or(1),
        address_family: address_family(options),
        bind: BindOptions { address: text("bindaddress"), interface: text("bindinterface") },
        proxy_command: proxy,
        algorithms,
        host,
        port,
        user,
    })
}

fn expand_paths(keyword: &str, options: &SshOptions, tokens: &PercentTokens<'_>) -> Result<Vec<PathBuf>, String> {
    options.values(keyword).map(|value| tokens.expand_path(&value.text).map_err(|what| value_error(value, keyword, &what))).collect()
}

fn address_family(options: &SshOptions) -> AddressFamily {
    match options.first_text("addressfamily") {
        Some("inet") => AddressFamily::V4,
        Some("inet6") => AddressFamily::V6,
        _ => AddressFamily::Any,
    }
}

fn key_files(
    target: &HopTarget<'_>,
    options: &SshOptions,
    settings: &SshSettings,
    tokens: &PercentTokens<'_>,
) -> Result<Vec<KeyFile>, String> {
    let source = if target.is_jump { KeyFileSource::Config } else { KeyFileSource::Inventory };
    let own = |text: &String| KeyFile { path: settings.resolve_path(text), source, origin: SettingOrigin::Inventory };
    let mut keys: Vec<KeyFile> = target.ssh.identity_files.iter().map(own).collect();
    let source = if options.has_default_keys() { KeyFileSource::Default } else { KeyFileSource::Config };
    for (path, value) in expand_paths("IdentityFile", options, tokens)?.into_iter().zip(options.values("IdentityFile")) {
        if !keys.iter().any(|k| k.path == path) {
            keys.push(KeyFile { path, source, origin: value.origin.clone() });
        }
    }
    Ok(keys)
}

fn host_key_policy(
    target: &HopTarget<'_>,
    options: &SshOptions,
    settings: &SshSettings,
    tokens: &PercentTokens<'_>,
    algorithms: &AlgorithmLists,
) -> Result<HostKeyPolicy, String> {
    let (user, system) = match &target.ssh.known_hosts_file {
        Some(path) => (vec![settings.resolve_path(path)], Vec::new()),
        None => (expand_paths("UserKnownHostsFile", options, tokens)?, expand_paths("GlobalKnownHostsFile", options, tokens)?),
    };
    let accept_new = match target.ssh.host_key_checking {
        Some(HostKeyChecking::Strict) => false,
        Some(HostKeyChecking::AcceptNew) => true,
        None => matches!(options.first_text("stricthostkeychecking"), Some("accept-new" | "no")),
    };
    let alias = options.first_text("hostkeyalias").map(str::to_ascii_lowercase);
    let without_port = (alias.is_none() && tokens.port != 22).then(|| tokens.host.to_ascii_lowercase());
    let name = alias.unwrap_or_else(|| known_hosts::known_hosts_name(tokens.host, tokens.port));
    Ok(HostKeyPolicy {
        name_without_port: without_port,
        principal: options.first_text("hostkeyalias").map_or_else(|| tokens.host.to_ascii_lowercase(), str::to_owned),
        known_hosts_command: connection_options::parse_known_hosts_command(options, tokens, &name)?,
        revoked_key_files: connection_options::revoked_key_files(options, tokens)?,
        append_to: user.first().cloned(),
        known_hosts_files: user.into_iter().chain(system).collect(),
        accept_new,
        hash_names: options.is_yes("hashknownhosts"),
        host_key_algorithms: algorithms.host_keys.names.clone(),
        ca_algorithms: algorithms.ca_signatures.names.clone(),
        name,
    })
}

fn agent_socket(options: &SshOptions, settings: &SshSettings, tokens: &PercentTokens<'_>) -> Result<Option<PathBuf>, String> {
    if options.is_set_to_none("identityagent") {
        return Ok(None);
    }
    let Some(value) = options.first_value("IdentityAgent").filter(|v| &*v.text != "SSH_AUTH_SOCK") else {
        return Ok(settings.agent_socket.clone());
    };
    match value.text.strip_prefix('$').filter(|t| !t.starts_with('{')) {
        Some(name) => Ok((settings.env)(name).map(PathBuf::from)),
        None => tokens.expand_path(&value.text).map(Some).map_err(|what| value_error(value, "IdentityAgent", &what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{GpuSelection, HostSshSettings, InventoryHost};
    use std::path::Path;

    fn host(ssh: HostSshSettings) -> InventoryHost {
        InventoryHost { name: "gpu01".to_owned(), address: None, fabric_address: None, gpus: GpuSelection::Any, ssh }
    }

    fn hop(ssh: HostSshSettings, config: &str) -> Result<Hop, RemoteError> {
        build_hop(&HopTarget::for_host(&host(ssh)), &SshOptions::parse_ssh_g(config), &SshSettings::for_test(), "")
    }

    #[test]
    fn ssh_config_fills_unset_inventory_fields() {
        let config = "hostname 10.0.0.1\nuser root\nport 2222\nidentityfile ~/.ssh/%h\nuserknownhostsfile ~/kh\nstricthostkeychecking accept-new\n\
                      connecttimeout 7\nserveraliveinterval 9\nserveralivecountmax 2\nidentitiesonly yes\nhashknownhosts yes\naddressfamily inet\nidentityagent $SOCK\n";
        let hop = hop(HostSshSettings::default(), config).expect("a hop");
        assert_eq!((hop.host.as_str(), hop.user.as_str(), hop.port, hop.address_family), ("10.0.0.1", "root", 2222, AddressFamily::V4));
        assert_eq!(
            hop.key_files,
            [KeyFile { path: "/home/li/.ssh/10.0.0.1".into(), source: KeyFileSource::Config, origin: SettingOrigin::SshG }]
        );
        assert_eq!(
            (hop.host_key_policy.name.as_str(), hop.host_key_policy.name_without_port.as_deref()),
            ("[10.0.0.1]:2222", Some("10.0.0.1"))
        );
        assert_eq!(hop.host_key_policy.append_to.as_deref(), Some(Path::new("/home/li/kh")));
        assert!(hop.host_key_policy.accept_new && hop.host_key_policy.hash_names && hop.identities_only);
        assert_eq!((hop.connect_timeout.as_secs(), hop.keepalive_interval.map(|k| k.as_secs()), hop.keepalive_max), (7, Some(9), 2));
        assert_eq!(hop.agent_socket.as_deref(), Some(Path::new("/run/other")));
    }

    #[test]
    fn inventory_overrides_ssh_config() {
        let ssh = HostSshSettings {
            user: Some("eve".to_owned()),
            port: Some(22),
            identity_files: vec!["keys/id".to_owned()],
            known_hosts_file: Some("kh".to_owned()),
            host_key_checking: Some(HostKeyChecking::Strict),
            connect_timeout: Some(Duration::from_secs(3)),
            ..HostSshSettings::default()
        };
        let config = "hostname 10.0.0.1\nuser root\nport 2222\nidentityfile ~/.ssh/id_rsa\nuserknownhostsfile ~/kh\n\
                      stricthostkeychecking no\nconnecttimeout 7\nidentityagent none\n";
        let hop = hop(ssh, config).expect("a hop");
        assert_eq!((hop.user.as_str(), hop.port, hop.host_key_policy.name.as_str()), ("eve", 22, "10.0.0.1"));
        let first = KeyFile { path: "/srv/inv/keys/id".into(), source: KeyFileSource::Inventory, origin: SettingOrigin::Inventory };
        let standard = KeyFile { path: "/home/li/.ssh/id_rsa".into(), source: KeyFileSource::Default, origin: SettingOrigin::SshG };
        assert_eq!(hop.key_files, [first, standard]);
        assert_eq!(hop.host_key_policy.known_hosts_files, [Path::new("/srv/inv/kh")]);
        assert!(!hop.host_key_policy.accept_new && hop.agent_socket.is_none());
        assert_eq!(hop.connect_timeout.as_secs(), 3);
    }

    #[test]
    fn openssh_defaults_apply_and_ask_means_strict() {
        let hop = hop(HostSshSettings::default(), "stricthostkeychecking ask\n").expect("a hop");
        assert_eq!((hop.host.as_str(), hop.user.as_str(), hop.port, hop.keepalive_interval), ("gpu01", "li", 22, Some(KEEPALIVE_INTERVAL)));
        assert!(!hop.host_key_policy.accept_new);
    }

    #[test]
    fn proxy_command_and_algorithms_are_read() {
        let config = "proxycommand nc %h %p\nhostname 10.0.0.1\n";
        let proxy = hop(HostSshSettings::default(), config).expect("a hop").proxy_command.expect("a proxy");
        assert_eq!((proxy.command.as_str(), proxy.shell.as_str()), ("nc 10.0.0.1 22", "/bin/sh"));
        assert!(
            hop(HostSshSettings::default(), "proxycommand nc\nproxyusefdpass yes\n")
                .is_err_and(|e| e.to_string().contains("ProxyUseFdpass"))
        );
        let lists = hop(HostSshSettings::default(), "ciphers aes256-ctr,3des-cbc\nserveraliveinterval 0\n").expect("a hop");
        assert_eq!(
            (lists.algorithms.ciphers.names.as_slice(), lists.keepalive_interval),
            (&["aes256-ctr".to_owned()][..], Some(KEEPALIVE_INTERVAL))
        );
    }
}
