//! One hop of the way to a host: the inventory's settings over what ssh_config says over OpenSSH's defaults.
//!
//! Uses `inventory`, `ssh_config` and `settings`. Knows no files, runs nothing: `resolve` brings the options.

use std::path::PathBuf;
use std::time::Duration;

use super::RemoteError;
use super::hop_request::Asked;
use super::known_hosts;
use super::login::Login;
use super::settings::Settings;
use super::ssh_config::{Options, Origin, Tokens};
use super::trust::Policy;
use super::way::{self, Algorithms, Bind, Proxy, place};
use crate::inventory::HostKeys;

/// For TCP, key exchange and authentication together, where nothing else is said.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a silent connection is asked whether it lives.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Which addresses may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// `AddressFamily any`.
    Any,
    /// `inet`.
    V4,
    /// `inet6`.
    V6,
}

/// Why a key file is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// The inventory names it: it must be there.
    Inventory,
    /// ssh_config names it.
    Config,
    /// OpenSSH would try it.
    Standard,
}

/// A private key file, not yet read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyFile {
    pub(super) path: PathBuf,
    pub(super) named: Named,
    /// Who says so.
    pub(super) origin: Origin,
}

/// Everything that one connection needs.
#[derive(Debug, Clone)]
pub(super) struct Hop {
    /// The name people know it by.
    pub(super) name: String,
    /// Whether it is a jump host.
    pub(super) jump: bool,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) keys: Vec<KeyFile>,
    /// Certificates of user keys.
    pub(super) certificates: Vec<PathBuf>,
    /// IdentitiesOnly.
    pub(super) only_keys: bool,
    pub(super) agent: Option<PathBuf>,
    pub(super) policy: Policy,
    /// The name of the variable that holds the password.
    pub(super) password: Option<String>,
    /// How it is logged in to.
    pub(super) login: Login,
    pub(super) connect_timeout: Duration,
    /// How often a silent connection is asked whether it lives; nothing: never.
    pub(super) keepalive: Option<Duration>,
    pub(super) keepalive_max: usize,
    /// Whether the kernel asks as well.
    pub(super) tcp_keepalive: bool,
    /// How often an address is tried within the timeout.
    pub(super) attempts: u64,
    pub(super) family: Family,
    pub(super) bind: Bind,
    /// The program that carries the connection, where it is not the hop before.
    pub(super) proxy: Option<Proxy>,
    pub(super) algorithms: Algorithms,
}

impl Family {
    /// Whether an address is of it.
    pub(super) fn has(self, address: &std::net::IpAddr) -> bool {
        match self {
            Family::Any => true,
            Family::V4 => address.is_ipv4(),
            Family::V6 => address.is_ipv6(),
        }
    }
}

impl Hop {
    /// A sentence about this hop. The faces add the host's name, so that one sentence can stand for many hosts; a jump host is named here.
    pub(super) fn says(&self, what: &str) -> String {
        if self.jump { format!("jump host {}: {what}", self.name) } else { what.to_owned() }
    }
}

/// Puts a hop together. `jump`: the hop before it, for `%j`.
pub(super) fn build(asked: &Asked<'_>, options: &Options, settings: &Settings, jump: &str) -> Result<Hop, RemoteError> {
    let wrong = |what: String| RemoteError::Settings {
        what: if asked.jump { format!("ssh settings of jump host {}: {what}", asked.alias) } else { format!("ssh settings: {what}") },
        hint: "`ssh -G` with the host's name shows what ssh_config says; the inventory's ssh: fields stand over it".to_owned(),
    };
    let host = asked.address.or(options.first("hostname")).unwrap_or(asked.alias).to_owned();
    let port = asked.port.or_else(|| options.first("port")?.parse().ok()).unwrap_or(22);
    let key_name = options.first("hostkeyalias").map_or_else(|| asked.alias.to_owned(), str::to_ascii_lowercase);
    let tokens = Tokens {
        host: &host,
        alias: asked.alias,
        key_name: &key_name,
        port,
        user: "",
        jump,
        local_user: &settings.user,
        home: &settings.home,
        uid: rustix::process::getuid().as_raw(),
        variables: &settings.variables,
    };
    let user = match options.value("User").filter(|_| asked.user.is_none()) {
        Some(value) => tokens.user(&value.text).map_err(|what| wrong(place(value, "User", &what)))?,
        None => asked.user.unwrap_or(&settings.user).to_owned(),
    };
    let tokens = Tokens { user: &user, ..tokens };
    let text = |key| options.first(key).map(str::to_owned);
    let seconds = |key| options.number(key).map(Duration::from_secs);
    let keys = keys(asked, options, settings, &tokens).map_err(wrong)?;
    let certificates = paths("CertificateFile", options, &tokens).map_err(wrong)?;
    let algorithms = way::algorithms(options).map_err(wrong)?;
    let policy = policy(asked, options, settings, &tokens, &algorithms).map_err(wrong)?;
    let proxy = way::proxy(options, &tokens, (settings.variables)("SHELL")).map_err(wrong)?;
    let agent = agent(options, settings, &tokens).map_err(wrong)?;
    Ok(Hop {
        name: asked.alias.to_owned(),
        jump: asked.jump,
        policy,
        keys,
        certificates,
        only_keys: options.yes("identitiesonly"),
        agent,
        password: asked.ssh.password.clone().filter(|_| !asked.jump),
        login: Login::read(options),
        connect_timeout: asked.ssh.connect_timeout.or(seconds("connecttimeout")).unwrap_or(CONNECT_TIMEOUT),
        keepalive: asked.ssh.keepalive.map_or_else(|| way::keepalive(options, KEEPALIVE), Some),
        keepalive_max: options.number("serveralivecountmax").and_then(|n| usize::try_from(n).ok()).unwrap_or(3),
        tcp_keepalive: !options.no("tcpkeepalive"),
        attempts: options.number("connectionattempts").unwrap_or(1),
        family: family(options),
        bind: Bind { address: text("bindaddress"), interface: text("bindinterface") },
        proxy,
        algorithms,
        host,
        port,
        user,
    })
}

fn paths(keyword: &str, options: &Options, tokens: &Tokens<'_>) -> Result<Vec<PathBuf>, String> {
    options.values(keyword).map(|value| tokens.path(&value.text).map_err(|what| place(value, keyword, &what))).collect()
}

fn family(options: &Options) -> Family {
    match options.first("addressfamily") {
        Some("inet") => Family::V4,
        Some("inet6") => Family::V6,
        _ => Family::Any,
    }
}

fn keys(asked: &Asked<'_>, options: &Options, settings: &Settings, tokens: &Tokens<'_>) -> Result<Vec<KeyFile>, String> {
    let named = if asked.jump { Named::Config } else { Named::Inventory };
    let own = |text: &String| KeyFile { path: settings.resolve(text), named, origin: Origin::Inventory };
    let mut keys: Vec<KeyFile> = asked.ssh.identity.iter().map(own).collect();
    let named = if options.standard_keys() { Named::Standard } else { Named::Config };
    for (path, value) in paths("IdentityFile", options, tokens)?.into_iter().zip(options.values("IdentityFile")) {
        if !keys.iter().any(|k| k.path == path) {
            keys.push(KeyFile { path, named, origin: value.origin.clone() });
        }
    }
    Ok(keys)
}

fn policy(
    asked: &Asked<'_>,
    options: &Options,
    settings: &Settings,
    tokens: &Tokens<'_>,
    algorithms: &Algorithms,
) -> Result<Policy, String> {
    let (user, system) = match &asked.ssh.known_hosts {
        Some(path) => (vec![settings.resolve(path)], Vec::new()),
        None => (paths("UserKnownHostsFile", options, tokens)?, paths("GlobalKnownHostsFile", options, tokens)?),
    };
    let accept_new = match asked.ssh.host_keys {
        Some(HostKeys::Strict) => false,
        Some(HostKeys::AcceptNew) => true,
        None => matches!(options.first("stricthostkeychecking"), Some("accept-new" | "no")),
    };
    let alias = options.first("hostkeyalias").map(str::to_ascii_lowercase);
    let bare = (alias.is_none() && tokens.port != 22).then(|| tokens.host.to_ascii_lowercase());
    let name = alias.unwrap_or_else(|| known_hosts::name(tokens.host, tokens.port));
    Ok(Policy {
        bare,
        principal: options.first("hostkeyalias").map_or_else(|| tokens.host.to_ascii_lowercase(), str::to_owned),
        command: way::known_hosts_command(options, tokens, &name)?,
        revoked: way::revoked(options, tokens)?,
        learn: user.first().cloned(),
        files: user.into_iter().chain(system).collect(),
        accept_new,
        hashed: options.yes("hashknownhosts"),
        algorithms: algorithms.host_keys.names.clone(),
        authority_algorithms: algorithms.authorities.names.clone(),
        name,
    })
}

fn agent(options: &Options, settings: &Settings, tokens: &Tokens<'_>) -> Result<Option<PathBuf>, String> {
    if options.is_none("identityagent") {
        return Ok(None);
    }
    let Some(value) = options.value("IdentityAgent").filter(|v| &*v.text != "SSH_AUTH_SOCK") else { return Ok(settings.agent.clone()) };
    match value.text.strip_prefix('$').filter(|t| !t.starts_with('{')) {
        Some(name) => Ok((settings.variables)(name).map(PathBuf::from)),
        None => tokens.path(&value.text).map(Some).map_err(|what| place(value, "IdentityAgent", &what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Gpus, Host, Ssh};
    use crate::remote::settings::Prompt;
    use std::path::Path;
    use std::sync::Arc;

    struct Nobody;

    impl Prompt for Nobody {
        fn secret(&self, _: &str) -> Option<String> {
            None
        }
        fn notice(&self, _: &str) {}
    }

    fn settings() -> Settings {
        Settings {
            home: "/home/li".into(),
            base: "/srv/inv".into(),
            config: None,
            agent: Some("/run/agent".into()),
            path: None,
            user: "li".to_owned(),
            prompt: Arc::new(Nobody),
            parallel: 8,
            variables: Arc::new(|name| (name == "SOCK").then(|| "/run/other".to_owned())),
        }
    }

    fn host(ssh: Ssh) -> Host {
        Host { name: "gpu01".to_owned(), address: None, fabric_address: None, gpus: Gpus::Any, ssh }
    }

    fn hop(ssh: Ssh, config: &str) -> Result<Hop, RemoteError> {
        build(&Asked::host(&host(ssh)), &Options::parse(config), &settings(), "")
    }

    #[test]
    fn ssh_config_holds_where_the_inventory_says_nothing() {
        let config = "hostname 10.0.0.1\nuser root\nport 2222\nidentityfile ~/.ssh/%h\nuserknownhostsfile ~/kh\nstricthostkeychecking accept-new\n\
                      connecttimeout 7\nserveraliveinterval 9\nserveralivecountmax 2\nidentitiesonly yes\nhashknownhosts yes\naddressfamily inet\nidentityagent $SOCK\n";
        let hop = hop(Ssh::default(), config).expect("a hop");
        assert_eq!((hop.host.as_str(), hop.user.as_str(), hop.port, hop.family), ("10.0.0.1", "root", 2222, Family::V4));
        assert_eq!(hop.keys, [KeyFile { path: "/home/li/.ssh/10.0.0.1".into(), named: Named::Config, origin: Origin::Ssh }]);
        assert_eq!((hop.policy.name.as_str(), hop.policy.bare.as_deref()), ("[10.0.0.1]:2222", Some("10.0.0.1")));
        assert_eq!(hop.policy.learn.as_deref(), Some(Path::new("/home/li/kh")));
        assert!(hop.policy.accept_new && hop.policy.hashed && hop.only_keys);
        assert_eq!((hop.connect_timeout.as_secs(), hop.keepalive.map(|k| k.as_secs()), hop.keepalive_max), (7, Some(9), 2));
        assert_eq!(hop.agent.as_deref(), Some(Path::new("/run/other")));
    }

    #[test]
    fn the_inventory_stands_over_ssh_config() {
        let ssh = Ssh {
            user: Some("eve".to_owned()),
            port: Some(22),
            identity: vec!["keys/id".to_owned()],
            known_hosts: Some("kh".to_owned()),
            host_keys: Some(HostKeys::Strict),
            connect_timeout: Some(Duration::from_secs(3)),
            ..Ssh::default()
        };
        let config = "hostname 10.0.0.1\nuser root\nport 2222\nidentityfile ~/.ssh/id_rsa\nuserknownhostsfile ~/kh\n\
                      stricthostkeychecking no\nconnecttimeout 7\nidentityagent none\n";
        let hop = hop(ssh, config).expect("a hop");
        assert_eq!((hop.user.as_str(), hop.port, hop.policy.name.as_str()), ("eve", 22, "10.0.0.1"));
        let first = KeyFile { path: "/srv/inv/keys/id".into(), named: Named::Inventory, origin: Origin::Inventory };
        let standard = KeyFile { path: "/home/li/.ssh/id_rsa".into(), named: Named::Standard, origin: Origin::Ssh };
        assert_eq!(hop.keys, [first, standard]);
        assert_eq!(hop.policy.files, [Path::new("/srv/inv/kh")]);
        assert!(!hop.policy.accept_new && hop.agent.is_none());
        assert_eq!(hop.connect_timeout.as_secs(), 3);
    }

    #[test]
    fn without_either_openssh_defaults_hold_and_asking_counts_as_strict() {
        let hop = hop(Ssh::default(), "stricthostkeychecking ask\n").expect("a hop");
        assert_eq!((hop.host.as_str(), hop.user.as_str(), hop.port, hop.keepalive), ("gpu01", "li", 22, Some(KEEPALIVE)));
        assert!(!hop.policy.accept_new);
    }

    #[test]
    fn a_proxy_command_carries_the_connection() {
        let config = "proxycommand nc %h %p\nhostname 10.0.0.1\n";
        let proxy = hop(Ssh::default(), config).expect("a hop").proxy.expect("a proxy");
        assert_eq!((proxy.command.as_str(), proxy.shell.as_str()), ("nc 10.0.0.1 22", "/bin/sh"));
        assert!(hop(Ssh::default(), "proxycommand nc\nproxyusefdpass yes\n").is_err_and(|e| e.to_string().contains("ProxyUseFdpass")));
        let lists = hop(Ssh::default(), "ciphers aes256-ctr,3des-cbc\nserveraliveinterval 0\n").expect("a hop");
        assert_eq!((lists.algorithms.ciphers.names.as_slice(), lists.keepalive), (&["aes256-ctr".to_owned()][..], Some(KEEPALIVE)));
    }
}
