//! Connection options of ssh_config: ProxyCommand, bind address, and algorithms.

use std::path::PathBuf;
use std::time::Duration;

use super::algorithms::{self, AlgorithmList, AlgorithmTable};
use super::known_hosts_command::{self, KnownHostsCommand};
use crate::ssh_config::{PercentTokens, SettingOrigin, SshOptionValue, SshOptions, words};

/// Error for a value, with its origin.
pub(super) fn value_error(value: &SshOptionValue, keyword: &str, what: &str) -> String {
    format!("{}: {keyword}: {what}", value.origin)
}

/// `BindAddress` and `BindInterface`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BindOptions {
    pub(super) address: Option<String>,
    pub(super) interface: Option<String>,
}

/// `ProxyCommand` with expanded tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ProxyCommand {
    pub(super) command: String,
    pub(super) shell: String,
    pub(super) origin: String,
}

/// Algorithms offered in the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AlgorithmLists {
    pub(super) kex: AlgorithmList,
    pub(super) ciphers: AlgorithmList,
    pub(super) macs: AlgorithmList,
    pub(super) host_keys: AlgorithmList,
    pub(super) ca_signatures: AlgorithmList,
}

/// Reads the lists; the error is a fragment with its origin.
pub(super) fn parse_algorithms(options: &SshOptions) -> Result<AlgorithmLists, String> {
    let list = |table: &'static AlgorithmTable| {
        let Some(value) = options.first_value(table.keyword) else { return Ok(AlgorithmList::default_for(table)) };
        let read = if value.origin == SettingOrigin::SshG { AlgorithmList::from_ssh_g } else { AlgorithmList::parse };
        let list = read(table, &value.text).map_err(|what| value_error(value, table.keyword, &format!("`{}`: {what}", value.text)))?;
        Ok::<_, String>(AlgorithmList { origin: Some(value.origin.to_string()), ..list })
    };
    Ok(AlgorithmLists {
        kex: list(&algorithms::KEX)?,
        ciphers: list(&algorithms::CIPHERS)?,
        macs: list(&algorithms::MACS)?,
        host_keys: list(&algorithms::HOST_KEYS)?,
        ca_signatures: list(&algorithms::CA_SIGNATURES)?,
    })
}

impl AlgorithmLists {
    /// Requested algorithms that are not supported, one sentence per list.
    pub(super) fn unsupported_notices(&self) -> Vec<String> {
        let all = [&self.kex, &self.ciphers, &self.macs, &self.host_keys, &self.ca_signatures];
        all.into_iter().filter_map(AlgorithmList::unsupported_notice).collect()
    }
}

/// The program that carries the connection, if any.
pub(super) fn parse_proxy_command(
    options: &SshOptions,
    tokens: &PercentTokens<'_>,
    shell: Option<String>,
) -> Result<Option<ProxyCommand>, String> {
    let keyword = "ProxyCommand";
    let Some(value) = options.first_value(keyword) else { return Ok(None) };
    if let Some(fdpass) = options.first_value("ProxyUseFdpass").filter(|v| &*v.text == "yes") {
        return Err(value_error(fdpass, "ProxyUseFdpass", "it is not supported: ProxyCommand must carry the connection itself"));
    }
    if &*value.text == "-" {
        return Err(value_error(value, keyword, "`-` is not supported: standard input cannot carry the connection"));
    }
    let command = tokens.expand_proxy_command(&value.text).map_err(|what| value_error(value, keyword, &what))?;
    let shell = shell.filter(|s| !s.is_empty()).unwrap_or_else(|| "/bin/sh".to_owned());
    Ok(Some(ProxyCommand { command, shell, origin: value.origin.to_string() }))
}

/// Files of revoked host keys with the origin of the setting.
pub(super) fn revoked_key_files(options: &SshOptions, tokens: &PercentTokens<'_>) -> Result<Vec<(PathBuf, String)>, String> {
    let keyword = "RevokedHostKeys";
    let one = |value: &SshOptionValue| {
        Ok((tokens.expand_path(&value.text).map_err(|what| value_error(value, keyword, &what))?, value.origin.to_string()))
    };
    options.values(keyword).map(one).collect()
}

/// The command that supplies further host keys. `name`: the host's name in known_hosts.
pub(super) fn parse_known_hosts_command(
    options: &SshOptions,
    tokens: &PercentTokens<'_>,
    name: &str,
) -> Result<Option<KnownHostsCommand>, String> {
    let keyword = "KnownHostsCommand";
    let Some(value) = options.first_value(keyword) else { return Ok(None) };
    let wrong = |what: String| value_error(value, keyword, &format!("`{}`: {what}", value.text));
    let words = words(&value.text).ok_or_else(|| wrong("unclosed quote".to_owned()))?;
    // The program's path is not expanded.
    let Some((program, arguments)) = words.split_first().filter(|(program, _)| program.starts_with('/')) else {
        return Err(wrong("it must begin with an absolute path".to_owned()));
    };
    let expand = |[i, t, f, k]: [&str; 4]| {
        let more = [('H', name), ('I', i), ('t', t), ('f', f), ('K', k)];
        let expanded = arguments.iter().map(|word| tokens.expand_known_hosts_command(word, &more));
        expanded.collect::<Result<Vec<String>, String>>().map_err(&wrong)
    };
    Ok(Some(KnownHostsCommand {
        program: program.clone(),
        order_args: expand(["ORDER", "NONE", "NONE", "NONE"])?,
        key_args: expand([
            "HOSTNAME",
            known_hosts_command::KEY_TYPE_PLACEHOLDER,
            known_hosts_command::FINGERPRINT_PLACEHOLDER,
            known_hosts_command::KEY_PLACEHOLDER,
        ])?,
        origin: value.origin.to_string(),
    }))
}

/// Keepalive interval; `None` if turned off. That ssh itself sends none by default does not
/// count, since a run watches its hosts for days.
pub(super) fn keepalive_interval(options: &SshOptions, default: Duration) -> Option<Duration> {
    let Some(value) = options.first_value("ServerAliveInterval").filter(|v| v.origin != SettingOrigin::SshG || &*v.text != "0") else {
        return Some(default).filter(|_| !options.is_set_to_none("ServerAliveInterval"));
    };
    value.text.parse().ok().filter(|seconds| *seconds > 0).map(Duration::from_secs)
}
