//! One hop of the way to a host: the inventory's settings over what ssh_config says over OpenSSH's defaults.
//!
//! Uses `inventory`, `config` and `settings`. Knows no files, runs nothing: `resolve` brings the options.

use std::path::PathBuf;
use std::time::Duration;

use super::RemoteError;
use super::config::{Jump, Options, Tokens};
use super::known_hosts;
use super::settings::Settings;
use super::trust::Policy;
use crate::inventory::{Host, HostKeys, Ssh};

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
    /// What ssh_config forbids.
    pub(super) no_password: bool,
    pub(super) no_questions: bool,
    pub(super) no_keys: bool,
    pub(super) connect_timeout: Duration,
    pub(super) keepalive: Duration,
    pub(super) keepalive_max: usize,
    pub(super) family: Family,
}

/// What a hop is asked for: a host of the inventory, or a jump host on the way to one.
#[derive(Debug, Clone)]
pub(super) struct Asked<'a> {
    /// The alias that ssh_config is asked for.
    pub(super) alias: &'a str,
    /// Stands over ssh_config: `-o HostName`, `-l`, `-p`.
    pub(super) address: Option<&'a str>,
    pub(super) user: Option<&'a str>,
    pub(super) port: Option<u16>,
    /// The inventory's settings for the host at the end of the way.
    pub(super) ssh: &'a Ssh,
    pub(super) jump: bool,
}

impl<'a> Asked<'a> {
    pub(super) fn host(host: &'a Host) -> Self {
        let Host { name, address, ssh, .. } = host;
        Asked { alias: name, address: address.as_deref(), user: ssh.user.as_deref(), port: ssh.port, ssh, jump: false }
    }

    pub(super) fn jump(jump: &'a Jump, ssh: &'a Ssh) -> Self {
        Asked { alias: &jump.host, address: None, user: jump.user.as_deref(), port: jump.port, ssh, jump: true }
    }
}

/// Puts a hop together. `jump`: the hop before it, for `%j`.
pub(super) fn build(asked: &Asked<'_>, options: &Options, settings: &Settings, jump: &str) -> Result<Hop, RemoteError> {
    let wrong = |what: String| RemoteError::Settings {
        what: format!("ssh settings of {}: {what}", asked.alias),
        hint: format!("see `ssh -G {}`; the inventory's ssh: fields stand over ssh_config", asked.alias),
    };
    unsupported(asked, options).map_err(wrong)?;
    let host = asked.address.or(options.first("hostname")).unwrap_or(asked.alias).to_owned();
    let port = asked.port.or_else(|| options.first("port")?.parse().ok()).unwrap_or(22);
    let user = asked.user.or(options.first("user")).unwrap_or(&settings.user).to_owned();
    let key_name = options.first("hostkeyalias").unwrap_or(asked.alias);
    let tokens = Tokens {
        host: &host,
        alias: asked.alias,
        key_name,
        port,
        user: &user,
        jump,
        local_user: &settings.user,
        home: &settings.home,
        uid: rustix::process::getuid().as_raw(),
        variables: &settings.variables,
    };
    let seconds = |key| options.number(key).map(Duration::from_secs);
    let keys = keys(asked, options, settings, &tokens).map_err(wrong)?;
    let certificates = options.all("certificatefile").map(|p| tokens.path(p)).collect::<Result<_, _>>().map_err(wrong)?;
    let policy = policy(asked, options, settings, &tokens).map_err(wrong)?;
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
        no_password: options.no("passwordauthentication"),
        no_questions: options.no("kbdinteractiveauthentication"),
        no_keys: options.no("pubkeyauthentication"),
        connect_timeout: asked.ssh.connect_timeout.or(seconds("connecttimeout")).unwrap_or(CONNECT_TIMEOUT),
        keepalive: asked.ssh.keepalive.or(seconds("serveraliveinterval")).unwrap_or(KEEPALIVE),
        keepalive_max: options.number("serveralivecountmax").and_then(|n| usize::try_from(n).ok()).unwrap_or(3),
        family: family(options),
        host,
        port,
        user,
    })
}

fn family(options: &Options) -> Family {
    match options.first("addressfamily") {
        Some("inet") => Family::V4,
        Some("inet6") => Family::V6,
        _ => Family::Any,
    }
}

/// Options that change what is safe or reachable and that we do not follow: better said than guessed.
fn unsupported(asked: &Asked<'_>, options: &Options) -> Result<(), String> {
    let own_way = !asked.jump && asked.ssh.jump.is_some();
    if let Some(command) = options.first("proxycommand").filter(|_| !own_way) {
        return Err(format!("`ProxyCommand {command}` is not supported yet; use ProxyJump, or ssh.jump in the inventory"));
    }
    if let Some(file) = options.first("revokedhostkeys") {
        return Err(format!("`RevokedHostKeys {file}` is not supported yet; @revoked lines in known_hosts are"));
    }
    Ok(())
}

fn keys(asked: &Asked<'_>, options: &Options, settings: &Settings, tokens: &Tokens<'_>) -> Result<Vec<KeyFile>, String> {
    let named = if asked.jump { Named::Config } else { Named::Inventory };
    let mut keys: Vec<KeyFile> = asked.ssh.identity.iter().map(|p| KeyFile { path: settings.resolve(p), named }).collect();
    let named = if options.standard_keys() { Named::Standard } else { Named::Config };
    for text in options.all("identityfile") {
        let path = tokens.path(text)?;
        if !keys.iter().any(|k| k.path == path) {
            keys.push(KeyFile { path, named });
        }
    }
    Ok(keys)
}

fn policy(asked: &Asked<'_>, options: &Options, settings: &Settings, tokens: &Tokens<'_>) -> Result<Policy, String> {
    let expand = |key: &str| options.paths(key).iter().map(|p| tokens.path(p)).collect::<Result<Vec<_>, _>>();
    let (user, system) = match &asked.ssh.known_hosts {
        Some(path) => (vec![settings.resolve(path)], Vec::new()),
        None => (expand("userknownhostsfile")?, expand("globalknownhostsfile")?),
    };
    let accept_new = match asked.ssh.host_keys {
        Some(HostKeys::Strict) => false,
        Some(HostKeys::AcceptNew) => true,
        None => matches!(options.first("stricthostkeychecking"), Some("accept-new" | "no" | "false" | "off")),
    };
    let alias = options.first("hostkeyalias").map(str::to_ascii_lowercase);
    let bare = (alias.is_none() && tokens.port != 22).then(|| tokens.host.to_ascii_lowercase());
    Ok(Policy {
        name: alias.unwrap_or_else(|| known_hosts::name(tokens.host, tokens.port)),
        bare,
        principal: options.first("hostkeyalias").unwrap_or(tokens.host).to_ascii_lowercase(),
        learn: user.first().cloned(),
        files: user.into_iter().chain(system).collect(),
        accept_new,
        hashed: options.yes("hashknownhosts"),
    })
}

fn agent(options: &Options, settings: &Settings, tokens: &Tokens<'_>) -> Result<Option<PathBuf>, String> {
    if options.is_none("identityagent") {
        return Ok(None);
    }
    match options.first("identityagent") {
        None | Some("SSH_AUTH_SOCK") => Ok(settings.agent.clone()),
        Some(text) => match text.strip_prefix('$').filter(|t| !t.starts_with('{')) {
            Some(name) => Ok((settings.variables)(name).map(PathBuf::from)),
            None => tokens.path(text).map(Some),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Gpus;
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
        assert_eq!(hop.keys, [KeyFile { path: "/home/li/.ssh/10.0.0.1".into(), named: Named::Config }]);
        assert_eq!((hop.policy.name.as_str(), hop.policy.bare.as_deref()), ("[10.0.0.1]:2222", Some("10.0.0.1")));
        assert_eq!(hop.policy.learn.as_deref(), Some(Path::new("/home/li/kh")));
        assert!(hop.policy.accept_new && hop.policy.hashed && hop.only_keys);
        assert_eq!((hop.connect_timeout.as_secs(), hop.keepalive.as_secs(), hop.keepalive_max), (7, 9, 2));
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
        let first = KeyFile { path: "/srv/inv/keys/id".into(), named: Named::Inventory };
        assert_eq!(hop.keys, [first, KeyFile { path: "/home/li/.ssh/id_rsa".into(), named: Named::Standard }]);
        assert_eq!(hop.policy.files, [Path::new("/srv/inv/kh")]);
        assert!(!hop.policy.accept_new && hop.agent.is_none());
        assert_eq!(hop.connect_timeout.as_secs(), 3);
    }

    #[test]
    fn without_either_openssh_defaults_hold_and_asking_counts_as_strict() {
        let hop = hop(Ssh::default(), "stricthostkeychecking ask\n").expect("a hop");
        assert_eq!((hop.host.as_str(), hop.user.as_str(), hop.port, hop.keepalive), ("gpu01", "li", 22, KEEPALIVE));
        assert!(!hop.policy.accept_new);
    }

    #[test]
    fn a_proxy_command_is_refused_unless_the_inventory_knows_another_way() {
        assert!(hop(Ssh::default(), "proxycommand nc %h %p\n").is_err());
        assert!(hop(Ssh { jump: Some(Vec::new()), ..Ssh::default() }, "proxycommand nc %h %p\n").is_ok());
    }
}
