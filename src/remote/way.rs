//! What ssh_config says about the way to a hop: ProxyCommand, the address to come from, and the algorithms.
//!
//! Uses `ssh_config` and `algorithms`. Pure.

use std::path::PathBuf;
use std::time::Duration;

use super::algorithms::{Kind, List};
use super::lookup::{self, KnownHostsCommand};
use super::ssh_config::{Options, Origin, Tokens, Value, words};

/// What is wrong with a value, with the place it came from.
pub(super) fn place(value: &Value, keyword: &str, what: &str) -> String {
    format!("{}: {keyword}: {what}", value.origin)
}

/// `BindAddress` and `BindInterface`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bind {
    pub(super) address: Option<String>,
    pub(super) interface: Option<String>,
}

/// `ProxyCommand`, its tokens expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) command: String,
    /// What runs it.
    pub(super) shell: String,
    /// Where it stands.
    pub(super) place: String,
}

/// What is offered in the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Algorithms {
    pub(super) kex: List,
    pub(super) ciphers: List,
    pub(super) macs: List,
    pub(super) host_keys: List,
    pub(super) authorities: List,
}

/// Reads the lists; an error is a fragment with the place.
pub(super) fn algorithms(options: &Options) -> Result<Algorithms, String> {
    let list = |kind: Kind| {
        let Some(value) = options.value(kind.keyword()) else { return Ok(List::own(kind)) };
        let read = if value.origin == Origin::Ssh { List::of_ssh } else { List::read };
        let list = read(kind, &value.text).map_err(|what| place(value, kind.keyword(), &format!("`{}`: {what}", value.text)))?;
        Ok::<_, String>(List { place: Some(value.origin.to_string()), ..list })
    };
    Ok(Algorithms {
        kex: list(Kind::Kex)?,
        ciphers: list(Kind::Cipher)?,
        macs: list(Kind::Mac)?,
        host_keys: list(Kind::HostKey)?,
        authorities: list(Kind::Authority)?,
    })
}

impl Algorithms {
    /// What was asked for and cannot be offered, one sentence a list.
    pub(super) fn left_out(&self) -> Vec<String> {
        let all = [
            (Kind::Kex, &self.kex),
            (Kind::Cipher, &self.ciphers),
            (Kind::Mac, &self.macs),
            (Kind::HostKey, &self.host_keys),
            (Kind::Authority, &self.authorities),
        ];
        all.into_iter().filter_map(|(kind, list)| list.left_out(kind)).collect()
    }
}

/// The program that carries the connection, where there is one.
pub(super) fn proxy(options: &Options, tokens: &Tokens<'_>, shell: Option<String>) -> Result<Option<Proxy>, String> {
    let keyword = "ProxyCommand";
    let Some(value) = options.value(keyword) else { return Ok(None) };
    if let Some(fdpass) = options.value("ProxyUseFdpass").filter(|v| &*v.text == "yes") {
        return Err(place(fdpass, "ProxyUseFdpass", "it is not supported: ProxyCommand must carry the connection itself"));
    }
    if &*value.text == "-" {
        return Err(place(value, keyword, "`-` is not supported: our own input is no connection"));
    }
    let command = tokens.proxy_command(&value.text).map_err(|what| place(value, keyword, &what))?;
    let shell = shell.filter(|s| !s.is_empty()).unwrap_or_else(|| "/bin/sh".to_owned());
    Ok(Some(Proxy { command, shell, place: value.origin.to_string() }))
}

/// The files of revoked host keys, each with the place that names it.
pub(super) fn revoked(options: &Options, tokens: &Tokens<'_>) -> Result<Vec<(PathBuf, String)>, String> {
    let keyword = "RevokedHostKeys";
    let one = |value: &Value| Ok((tokens.path(&value.text).map_err(|what| place(value, keyword, &what))?, value.origin.to_string()));
    options.values(keyword).map(one).collect()
}

/// The command that knows further host keys. `name`: under which the host's key is looked for.
pub(super) fn known_hosts_command(options: &Options, tokens: &Tokens<'_>, name: &str) -> Result<Option<KnownHostsCommand>, String> {
    let keyword = "KnownHostsCommand";
    let Some(value) = options.value(keyword) else { return Ok(None) };
    let wrong = |what: String| place(value, keyword, &format!("`{}`: {what}", value.text));
    let words = words(&value.text).ok_or_else(|| wrong("a quote is not closed".to_owned()))?;
    if !words.first().is_some_and(|program| program.starts_with('/')) {
        return Err(wrong("it must begin with an absolute path".to_owned()));
    }
    let expand = |[i, t, f, k]: [&str; 4]| {
        let more = [('H', name), ('I', i), ('t', t), ('f', f), ('K', k)];
        // The program itself is taken as it is written.
        let one = |(at, word): (usize, &String)| if at == 0 { Ok(word.clone()) } else { tokens.known_hosts_command(word, &more) };
        words.iter().enumerate().map(one).collect::<Result<Vec<String>, String>>().map_err(&wrong)
    };
    let order = expand(["ORDER", "NONE", "NONE", "NONE"])?;
    let key = expand(["HOSTNAME", lookup::KIND, lookup::FINGERPRINT, lookup::KEY])?;
    Ok(Some(KnownHostsCommand { order, key, place: value.origin.to_string() }))
}

/// How often a silent connection is asked whether it lives. Nothing where somebody turned it off; that ssh itself does not ask by default is no
/// reason, since a run watches its hosts for days.
pub(super) fn keepalive(options: &Options, own: Duration) -> Option<Duration> {
    let Some(value) = options.value("ServerAliveInterval").filter(|v| v.origin != Origin::Ssh || &*v.text != "0") else {
        return Some(own).filter(|_| !options.is_none("ServerAliveInterval"));
    };
    value.text.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}
